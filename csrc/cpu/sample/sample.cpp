// The order of the sampler's steps. Leading temperatures become part of the softmax. The filters
// after them that keep the most likely tokens are prefixes of the descending order, which
// Distribution finds without sorting. The remaining stages, if any, work on the sorted list of what
// is left.
//
// Few tokens are read one by one: the filters and the draw give a logit below which no token can be
// kept or drawn, and the largest logit of each block shows which blocks have one above it.
#include "sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "../kernels.h"

namespace soliton {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kUnbounded = std::numeric_limits<double>::infinity();
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr int32_t kLastId = std::numeric_limits<int32_t>::max();

// The relative error of sums of masses. A smaller share may be left out.
constexpr double kResolution = 2e-7;

// Up to this size, every token is read.
constexpr int64_t kSmallRow = 256;

// Finite, so that a distance of 0 stays 0 when multiplied by it.
constexpr double kSteepest = 1e300;

// Makes a stage part of the softmax, if that is possible.
bool fold(SampleStage stage, double parameter, Softmax& softmax) {
    if (stage == SampleStage::kTemperature) {
        const double divisor = std::max(parameter, 1.0 / kSteepest);
        softmax.linear = std::min(softmax.linear / divisor, kSteepest);
        softmax.quadratic = std::max(softmax.quadratic / divisor, -kSteepest);
        return true;
    }
    if (stage == SampleStage::kSmoothing && softmax.quadratic == 0.0 && parameter > 0.0) {
        softmax.quadratic = std::max(-parameter * softmax.linear * softmax.linear, -kSteepest);
        softmax.linear = 0.0;
        return softmax.quadratic < 0.0;
    }
    return false;
}

// Whether the stage's result depends on the total mass of its input, not only on counts or ratios.
bool depends_on_mass(SampleStage stage) {
    return stage == SampleStage::kTopP || stage == SampleStage::kTopA;
}

// Whether the stage always keeps a prefix.
bool keeps_prefix(SampleStage stage) {
    return depends_on_mass(stage) || stage == SampleStage::kTopK || stage == SampleStage::kMinP;
}

// The standard deviation of the exponents of all finite logits.
double sigma_of(const Row& row, const Softmax& softmax) {
    const Moments moments = cpu_kernels().moments(row.logits(), row.size(), softmax);
    const double mean = moments.sum / moments.count;
    return std::sqrt(std::max(moments.squares / moments.count - mean * mean, 0.0));
}

int64_t count_from(const Row& row, const Softmax& softmax, double exponent) {
    return std::count_if(row.logits(), row.logits() + row.size(), [&](float logit) {
        return logit > -kInfinity && exponent_of(softmax, logit) >= exponent;
    });
}

}  // namespace

bool Sampler::sample(const SampleArgs& args, SampleOutput& out) {
    const bool is_adjusted = has_adjustments(settings_, args);
    if (!have_valid_ids(settings_, args) ||
        !read(args.logits, is_adjusted ? args.work : nullptr, out)) {
        return false;
    }
    row_ = &raw_;
    if (is_adjusted) {
        if (!adjust(args)) {
            return false;
        }
        row_ = &adjusted_;
        out.trace = adjuster_.trace();
    }
    if (settings_.greedy) {
        choose(out);
    } else {
        draw(args, out);
    }
    report_raw(out);
    return true;
}

bool Sampler::score(const float* logits, int64_t token_id, SampleOutput& out) {
    if (token_id < 0 || token_id >= settings_.vocab_size || !read(logits, nullptr, out)) {
        return false;
    }
    out.token_id = token_id;
    report_raw(out);
    out.p_sampled = out.p_raw;
    for (SampledTop& top : out.top) {
        top.p_sampled = std::exp(top.logprob_raw);
    }
    return true;
}

// Reads the logits and finds the most likely tokens; false if nothing can be drawn.
bool Sampler::read(const float* logits, float* copy, SampleOutput& out) {
    raw_.read(logits, settings_.vocab_size, copy);
    if (!raw_.can_be_sampled()) {
        return false;
    }
    raw_.largest(std::max<int64_t>(settings_.n_top, 2), tokens_, top_);
    out.trace.clear();
    out.kept_mass = 1.0;
    out.top.clear();
    for (size_t i = 0; i < top_.size() && std::ssize(out.top) < settings_.n_top; ++i) {
        out.top.push_back({.id = top_[i].id, .logprob_raw = 0.0, .p_sampled = 0.0});
    }
    return true;
}

bool Sampler::adjust(const SampleArgs& args) {
    if (!adjuster_.adjust(args, top_[0].id)) {
        return false;
    }
    adjusted_.take_over(args.work, raw_);
    for (const int32_t id : adjuster_.changed()) {
        adjusted_.touch(id);
    }
    adjusted_.refresh(args.work, args.mask);
    return adjusted_.can_be_sampled();
}

void Sampler::choose(SampleOutput& out) {
    out.token_id = row_->first_largest();
    out.p_sampled = 1.0;
    for (SampledTop& top : out.top) {
        top.p_sampled = top.id == out.token_id ? 1.0 : 0.0;
    }
}

void Sampler::draw(const SampleArgs& args, SampleOutput& out) {
    Softmax softmax = {row_->largest(), 1.0, 0.0};
    int64_t begin = 0;
    while (begin < settings_.n_stages && fold(stage(begin), parameters(begin)[0], softmax)) {
        note(begin++, 0, false, out);
    }
    int64_t end = begin;
    while (end < settings_.n_stages &&
           (keeps_prefix(stage(end)) || (end == begin && stage(end) == SampleStage::kTopNSigma))) {
        ++end;
    }
    const bool is_all = end == settings_.n_stages && settings_.skew == 0.0;
    bool is_complete = false;
    const Prefix kept = filter(args, softmax, begin, end, is_all, is_complete, out);
    const bool is_filtered = end > begin && (!is_complete || kept.count < distribution_.count() ||
                                             stage(begin) == SampleStage::kTopNSigma);
    if (is_all) {
        draw_from_prefix(args, softmax, kept, is_filtered, out);
    } else {
        distribution_.sort(kept, sorted_);
        candidates_.assign(sorted_, softmax);
        draw_from_list(args, end, is_filtered, out);
    }
}

// Runs the stages [begin, end) on all tokens; with `is_all`, the draw follows. Builds the
// distribution, which holds every token with a mass if `is_complete`.
Prefix Sampler::filter(const SampleArgs& args, const Softmax& softmax, int64_t begin, int64_t end,
                       bool is_all, bool& is_complete, SampleOutput& out) {
    // Tokens that a filter will remove need not be read, unless a trace counts them or the row is
    // so small that exact numbers are worth more.
    const bool is_pruned = !settings_.want_trace && row_->size() > kSmallRow;
    double exponent = kLowestExponent;
    double sigma = 0.0;
    double total = kUnknown;
    if (begin < end && stage(begin) == SampleStage::kTopNSigma) {
        sigma = sigma_of(*row_, softmax);
        const double lowest = -parameters(begin)[0] * sigma;
        exponent = is_pruned ? std::max(exponent, lowest) : exponent;
        if (is_pruned && std::exp(lowest) < kResolution) {
            const bool is_last = begin + 1 == end;
            const bool needs_total = is_last ? is_all : depends_on_mass(stage(begin + 1));
            // If the total is not needed, the mass of the most likely token is a sufficient bound.
            const double known = needs_total ? row_->total(softmax) : 1.0;
            const double most_removed = std::exp(lowest) * static_cast<double>(row_->size());
            if (most_removed < kResolution * known) {
                ++begin;  // it removes nothing noticeable
                total = needs_total ? known : kUnknown;
            }
        }
    }
    const bool draws = begin == end && is_all;
    if (std::isnan(total) && (draws || (begin < end && depends_on_mass(stage(begin))))) {
        total = row_->total(softmax);
    }
    float bound = -kInfinity;
    if (is_pruned) {
        exponent = std::max(exponent, exponent_needed(args, begin, end, draws, total));
        bound = bound_needed(begin, end);
    }
    const float lowest = bound_below(softmax, exponent);
    is_complete = exponent == kLowestExponent && bound <= lowest;
    row_->at_least(std::max(lowest, bound), tokens_);
    distribution_.assign(tokens_, softmax);
    const double exact = distribution_.exact_mass();
    if (is_complete ? !std::isnan(exact) : total - exact < kResolution * total) {
        total = exact;
    }
    Prefix kept = {distribution_.count(), total, {-kInfinity, kLastId}};
    for (int64_t i = begin; i < end; ++i) {
        const Prefix given = kept;
        kept = filtered(given, stage(i), parameters(i)[0], sigma);
        if (settings_.want_trace) {
            trace_filter(softmax, i, i == begin, given, kept, sigma, out);
        }
    }
    return kept;
}

// Tokens with a smaller exponent are neither kept nor drawn. `total` is the mass of all tokens, if
// the first stage or the draw depends on it.
double Sampler::exponent_needed(const SampleArgs& args, int64_t begin, int64_t end, bool draws,
                                double total) const {
    double exponent = kLowestExponent;
    if (draws || (begin < end && stage(begin) == SampleStage::kTopP)) {
        // All tokens with less than this share have together at most half of the mass that may be
        // left out.
        const double left_out = (1.0 - (draws ? args.u : parameters(begin)[0])) * total;
        const double share = 0.5 * left_out / static_cast<double>(row_->size());
        exponent = share > 0.0 ? std::max(exponent, std::log(share)) : exponent;
    }
    for (int64_t i = begin; i < end && is_free(begin, i); ++i) {
        if (stage(i) == SampleStage::kMinP && parameters(i)[0] > 0.0) {
            exponent = std::max(exponent, std::log(parameters(i)[0]));
        }
    }
    return exponent;
}

// The same for logits.
float Sampler::bound_needed(int64_t begin, int64_t end) {
    float bound = -kInfinity;
    for (int64_t i = begin; i < end && is_free(begin, i); ++i) {
        if (stage(i) == SampleStage::kTopK) {
            bound = row_->bound_of(static_cast<int64_t>(parameters(i)[0]));
        }
    }
    return bound;
}

// Whether no stage from `begin` to `i` needs the mass of tokens that stage `i` will remove. The
// first stage knows the mass of all tokens.
bool Sampler::is_free(int64_t begin, int64_t i) const {
    for (int64_t before = begin + 1; before <= i; ++before) {
        if (depends_on_mass(stage(before))) {
            return false;
        }
    }
    return true;
}

void Sampler::trace_filter(const Softmax& softmax, int64_t i, bool is_first, const Prefix& given,
                           const Prefix& kept, double sigma, SampleOutput& out) {
    // Top-n-sigma works on logits, so tokens without mass count too.
    const bool is_sigma = stage(i) == SampleStage::kTopNSigma;
    const double from = is_sigma ? -kUnbounded : kLowestExponent;
    const double lowest = -parameters(i)[0] * sigma;
    const int64_t n_given = is_first ? count_from(*row_, softmax, from) : given.count;
    const int64_t n_kept = is_sigma ? count_from(*row_, softmax, lowest) : kept.count;
    const Candidate argmax = {row_->logits()[top_[0].id], top_[0].id};
    const double exponent = exponent_of(softmax, argmax.logit);
    const bool was_there = given.holds(argmax) && exponent > from;
    const bool is_there = is_sigma ? exponent >= lowest : kept.holds(argmax);
    note(i, n_given - n_kept, was_there && !is_there, out);
}

Prefix Sampler::filtered(const Prefix& kept, SampleStage stage, double parameter, double sigma) {
    double exponent = 0.0;
    double mass = 0.0;
    switch (stage) {
        case SampleStage::kTopK: {
            const auto count = std::min(kept.count, static_cast<int64_t>(parameter));
            const bool keeps_all = count == kept.count && !std::isnan(kept.mass);
            return keeps_all ? kept : distribution_.reach({kUnbounded, count});
        }
        case SampleStage::kTopP:
            return parameter < 1.0 ? distribution_.reach({parameter * kept.mass, kept.count})
                                   : kept;
        case SampleStage::kTopA:
            mass = std::min(parameter / kept.mass, 1.0);
            exponent = std::log(mass);
            break;
        case SampleStage::kMinP:
            mass = parameter;
            exponent = std::log(mass);
            break;
        default:  // tokens on both sides of this bound may have equal masses after rounding
            exponent = -parameter * sigma;
            mass = kUnbounded;
            break;
    }
    const Prefix likely = distribution_.above(exponent, mass);
    return likely.count <= kept.count ? likely : kept;
}

// Draws a token by its share of the kept tokens' mass.
void Sampler::draw_from_prefix(const SampleArgs& args, const Softmax& softmax, const Prefix& kept,
                               bool is_filtered, SampleOutput& out) {
    // The first token at which the cumulated mass exceeds u; equal is not enough.
    const double drawn = std::nextafter(args.u * kept.mass, kept.mass + 1.0);
    const Candidate token = distribution_.reach({drawn, kept.count}).last;
    out.token_id = token.id;
    out.p_sampled = std::min(mass_of(softmax, token.logit) / kept.mass, 1.0);
    for (SampledTop& top : out.top) {
        const Candidate candidate = {row_->logits()[top.id], top.id};
        const bool is_kept =
            kept.holds(candidate) && exponent_of(softmax, candidate.logit) > kLowestExponent;
        top.p_sampled =
            is_kept ? std::min(mass_of(softmax, candidate.logit) / kept.mass, 1.0) : 0.0;
    }
    if (is_filtered) {
        const Softmax plain = {row_->largest(), 1.0, 0.0};
        const bool is_plain = softmax.linear == 1.0 && softmax.quadratic == 0.0;
        out.kept_mass = share_of(is_plain ? kept.mass : distribution_.mass(kept, plain));
    }
}

// Runs the stages from `begin` on, then draws.
void Sampler::draw_from_list(const SampleArgs& args, int64_t begin, bool is_filtered,
                             SampleOutput& out) {
    for (int64_t i = begin; i < settings_.n_stages; ++i) {
        bool removed_argmax = false;
        const int64_t n_removed =
            candidates_.run(stage(i), parameters(i), settings_, args, top_[0].id, removed_argmax);
        is_filtered = is_filtered || n_removed > 0;
        note(i, n_removed, removed_argmax, out);
    }
    const Draw drawn = candidates_.draw(args.u, settings_.skew);
    out.token_id = drawn.id;
    out.p_sampled = drawn.p;
    for (SampledTop& top : out.top) {
        top.p_sampled = candidates_.p_of({row_->logits()[top.id], top.id});
    }
    if (is_filtered) {
        out.kept_mass = share_of(candidates_.mass({row_->largest(), 1.0, 0.0}));
    }
}

// This mass as a share of the softmax of all logits that the draw uses.
double Sampler::share_of(double mass) const {
    return std::min(mass / row_->mass().total, 1.0);
}

void Sampler::note(int64_t stage_index, int64_t n_removed, bool removed_argmax, SampleOutput& out) {
    if (settings_.want_trace) {
        out.trace.push_back({.stage = stage(stage_index),
                             .n_removed = n_removed,
                             .removed_argmax = removed_argmax});
    }
}

void Sampler::report_raw(SampleOutput& out) {
    const Mass mass = raw_.mass();
    double of_top = 0.0;
    for (const Candidate& candidate : top_) {
        of_top += std::exp(static_cast<double>(candidate.logit) - raw_.largest());
    }
    const bool is_all = mass.total - of_top < kResolution * mass.total;
    const double log_total = std::log(is_all ? of_top : mass.total);
    const auto logprob = [&](float logit) {
        return static_cast<double>(logit) - raw_.largest() - log_total;
    };
    out.logprob_raw = logprob(raw_.logits()[out.token_id]);
    out.p_raw = std::exp(out.logprob_raw);
    for (size_t i = 0; i < out.top.size(); ++i) {
        out.top[i].logprob_raw = logprob(top_[i].logit);
    }
    const auto drawn = std::find_if(top_.begin(), top_.end(), [&](const Candidate& candidate) {
        return candidate.id == out.token_id;
    });
    out.rank = drawn != top_.end() ? drawn - top_.begin() : raw_.rank(out.token_id);
    out.entropy = std::max(log_total - mass.moment / mass.total, 0.0);
    const double second = top_.size() > 1 ? std::exp(logprob(top_[1].logit)) : 0.0;
    out.margin = std::exp(-log_total) - second;
}

}  // namespace soliton
