#include "adjust.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels.h"

namespace soliton {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The largest DRY penalty; engine/sampling/reference/adjustments.py has the same number.
constexpr double kLargestDryPenalty = 1e30;

bool penalizes(const SampleSettings& settings) {
    return settings.repetition_penalty != 1.0 || settings.frequency_penalty != 0.0 ||
           settings.presence_penalty != 0.0;
}

bool are_ids(const int32_t* ids, int64_t n, int64_t vocab_size) {
    // As unsigned numbers, negative ids are large.
    const auto end = static_cast<uint32_t>(vocab_size);
    uint32_t bad = 0;
    for (int64_t i = 0; i < n; ++i) {
        bad |= static_cast<uint32_t>(ids[i]) >= end ? 1 : 0;
    }
    return bad == 0;
}

}  // namespace

bool is_in(const int32_t* set, int64_t id) {
    return (static_cast<uint32_t>(set[id / kMaskBits]) >> (id % kMaskBits) & 1) != 0;
}

bool have_valid_ids(const SampleSettings& settings, const SampleArgs& args) {
    return are_ids(args.context, args.n_context, settings.vocab_size) &&
           are_ids(settings.bias_ids, settings.n_biases, settings.vocab_size) &&
           are_ids(args.banned_ids, args.n_banned, settings.vocab_size);
}

bool has_adjustments(const SampleSettings& settings, const SampleArgs& args) {
    return penalizes(settings) || settings.n_biases > 0 || settings.dry_multiplier != 0.0 ||
           args.mask != nullptr || args.n_banned > 0;
}

bool Adjuster::adjust(const SampleArgs& args, int64_t argmax) {
    changed_.clear();
    trace_.clear();
    argmax_ = argmax;
    all_numbers_ = true;
    if (penalizes(settings_)) {
        begin(SampleStage::kPenalties);
        penalize(args);
    }
    if (settings_.n_biases > 0) {
        begin(SampleStage::kBias);
        for (int64_t i = 0; i < settings_.n_biases; ++i) {
            const int32_t id = settings_.bias_ids[i];
            write(args, id, args.work[id] + settings_.bias_deltas[i]);
        }
    }
    if (settings_.dry_multiplier != 0.0) {
        begin(SampleStage::kDry);
        dry(args);
    }
    if (!all_numbers_) {
        return false;
    }
    if (args.mask != nullptr) {
        begin(SampleStage::kMask);
        note_mask(args);
    }
    if (args.n_banned > 0) {
        begin(SampleStage::kBanned);
        ban(args);
    }
    return true;
}

void Adjuster::penalize(const SampleArgs& args) {
    const int64_t range = settings_.repetition_range;
    const int64_t decay = settings_.repetition_decay;
    const int64_t n = args.n_context;
    const int64_t reach = range < 0 ? n : std::min(n, range + decay);
    const int64_t n_completion = n - settings_.n_prompt;
    for (int64_t back = 0; back < reach; ++back) {  // newest first
        const bool in_completion = back < n_completion;
        const double weight =
            range < 0 || back < range ? 1.0 : static_cast<double>(range + decay - back) / decay;
        Seen& entry = seen(args.context[n - 1 - back]);
        if (entry.weight == 0.0) {
            entry.weight = weight;
            entry.in_completion = in_completion;
        }
        entry.count += in_completion ? weight : 0.0;
    }
    for (const Seen& entry : seen_) {
        const double factor = 1.0 + (settings_.repetition_penalty - 1.0) * entry.weight;
        const double presence =
            entry.in_completion ? settings_.presence_penalty * entry.weight : 0.0;
        double logit = args.work[entry.id];
        logit = logit > 0.0 ? logit / factor : logit * factor;
        logit -= presence + settings_.frequency_penalty * entry.count;
        write(args, entry.id, static_cast<float>(logit));
    }
    forget_seen();
}

void Adjuster::dry(const SampleArgs& args) {
    const int64_t n =
        settings_.dry_range > 0 ? std::min(args.n_context, settings_.dry_range) : args.n_context;
    const int32_t* context = args.context + args.n_context - n;
    const auto breaks = [&](int32_t id) {
        return settings_.dry_breakers != nullptr && is_in(settings_.dry_breakers, id);
    };
    // The length of the end that has no breaker; only that can be a repeat.
    int64_t longest = 0;
    while (longest < std::min(n, settings_.dry_max_ngram) && !breaks(context[n - 1 - longest])) {
        ++longest;
    }
    if (longest == 0) {
        return;
    }
    const int32_t last = context[n - 1];
    for (int64_t end = 0; end < n - 1; ++end) {
        if (context[end] != last || breaks(context[end + 1])) {
            continue;
        }
        int64_t length = 1;
        while (length < longest && length <= end &&
               context[end - length] == context[n - 1 - length]) {
            ++length;
        }
        Seen& entry = seen(context[end + 1]);
        entry.length = std::max(entry.length, length);
    }
    for (const Seen& entry : seen_) {
        if (entry.length < std::max<int64_t>(settings_.dry_allowed_length, 1)) {
            continue;
        }
        const double penalty =
            settings_.dry_multiplier *
            std::pow(settings_.dry_base,
                     static_cast<double>(entry.length - settings_.dry_allowed_length));
        write(args, entry.id,
              static_cast<float>(args.work[entry.id] - std::min(penalty, kLargestDryPenalty)));
    }
    forget_seen();
}

// The mask itself is applied while the logits are added up.
void Adjuster::note_mask(const SampleArgs& args) {
    if (!settings_.want_trace) {
        return;
    }
    SampleTraceStep& step = trace_.back();
    for (int64_t id = 0; id < settings_.vocab_size; ++id) {
        if (!is_in(args.mask, id) && args.work[id] != -kInfinity) {
            step.n_removed += 1;
            step.removed_argmax |= id == argmax_;
        }
    }
}

void Adjuster::ban(const SampleArgs& args) {
    for (int64_t i = 0; i < args.n_banned; ++i) {
        const int32_t id = args.banned_ids[i];
        if (args.mask != nullptr && !is_in(args.mask, id)) {
            continue;  // the mask has removed it
        }
        write(args, id, -kInfinity);
    }
}

Adjuster::Seen& Adjuster::seen(int32_t id) {
    if (slots_.empty()) {
        slots_.resize(static_cast<size_t>(settings_.vocab_size));
    }
    int32_t& slot = slots_[id];
    if (slot == 0) {
        seen_.push_back(
            {.id = id, .in_completion = false, .weight = 0.0, .count = 0.0, .length = 0});
        slot = static_cast<int32_t>(seen_.size());
    }
    return seen_[slot - 1];
}

void Adjuster::forget_seen() {
    for (const Seen& entry : seen_) {
        slots_[entry.id] = 0;
    }
    seen_.clear();
}

void Adjuster::write(const SampleArgs& args, int32_t id, float logit) {
    if (settings_.want_trace && logit == -kInfinity && args.work[id] != -kInfinity) {
        trace_.back().n_removed += 1;
        trace_.back().removed_argmax |= id == argmax_;
    }
    all_numbers_ &= logit < kInfinity;
    args.work[id] = logit;
    changed_.push_back(id);
}

void Adjuster::begin(SampleStage stage) {
    if (settings_.want_trace) {
        trace_.push_back({.stage = stage, .n_removed = 0, .removed_argmax = false});
    }
}

}  // namespace soliton
