// The sampler: from logits to one token with its probabilities. The algorithm, compiled once; its
// loops over the vocabulary are kernels (sample_loops.cpp).
//
// Every filter keeps a prefix of the tokens in descending order, and the draw takes the token where
// a prefix reaches a certain mass. So there is one question, "how far to this count or this mass?".
// It is put to few tokens: the settings give a logit below which none can be kept or drawn, and the
// largest logit of each block of the vocabulary tells which blocks have any above it. Should many
// remain, only the bucket of a histogram in which the answer lies is sorted.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels.h"

namespace soliton {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowestFinite = std::numeric_limits<float>::lowest();
constexpr int32_t kLastId = std::numeric_limits<int32_t>::max();

// More tokens than this are divided by a histogram before they are sorted.
constexpr int64_t kSortAtMost = 256;

// Nearly all that is ever drawn lies within so many nats of the best token; the rest shares a
// bucket.
constexpr double kSpread = 32.0;

// 1 / temperature is at most this, so that a distance of 0 stays 0.
constexpr double kSteepest = 1e300;

// Bounds on logits are lowered by so many nats, against the rounding of what they are made of.
constexpr double kSlack = 1e-6;

struct Candidate {
    float logit;
    int32_t id;
};

// The descending order: the larger logit first, the lower id first among equals.
bool before(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// Tokens, their ids ascending.
struct Tokens {
    std::unique_ptr<int32_t[]> ids;
    std::unique_ptr<float[]> logits;
    int64_t count = 0;

    Candidate operator[](int64_t i) const { return {logits[i], ids[i]}; }
};

// A row of logits, with the largest of each block.
class Row {
  public:
    Row(const float* logits, int64_t size)
        : logits_(logits), size_(size), maxima_((size + kSampleBlock - 1) / kSampleBlock) {
        has_numbers_ = cpu_kernels().block_maxima(logits_, size_, maxima_.data());
        largest_ = *std::max_element(maxima_.begin(), maxima_.end());
    }

    bool can_be_sampled() const { return has_numbers_ && largest_ > -kInfinity; }

    const float* logits() const { return logits_; }

    int64_t size() const { return size_; }

    float largest() const { return largest_; }

    int64_t first_largest() const {
        const auto block = std::find(maxima_.begin(), maxima_.end(), largest_) - maxima_.begin();
        return std::find(logits_ + block * kSampleBlock, logits_ + size_, largest_) - logits_;
    }

    double total_mass(const Softmax& softmax) const {
        return cpu_kernels().total_mass(logits_, size_, softmax);
    }

    // A bound that at least `count` finite logits reach, if there are so many, and few more.
    float bound_of(int64_t count) const {
        if (count > std::ssize(maxima_)) {
            return kLowestFinite;
        }
        std::vector<float> best(static_cast<size_t>(count));
        std::partial_sort_copy(maxima_.begin(), maxima_.end(), best.begin(), best.end(),
                               std::greater<>());
        return std::max(best.back(), kLowestFinite);
    }

    Tokens at_least(float bound) const {
        const auto n_blocks = std::count_if(maxima_.begin(), maxima_.end(),
                                            [&](float maximum) { return maximum >= bound; });
        Tokens tokens;
        // One more, because the kernel writes before it knows whether to keep.
        tokens.ids = std::make_unique_for_overwrite<int32_t[]>(n_blocks * kSampleBlock + 1);
        tokens.count =
            cpu_kernels().collect(logits_, size_, maxima_.data(), bound, tokens.ids.get());
        tokens.logits = std::make_unique_for_overwrite<float[]>(tokens.count);
        for (int64_t i = 0; i < tokens.count; ++i) {
            tokens.logits[i] = logits_[tokens.ids[i]];
        }
        return tokens;
    }

  private:
    const float* logits_;
    int64_t size_;
    std::vector<float> maxima_;
    float largest_;
    bool has_numbers_;
};

// The first `count` tokens of the descending order.
struct Prefix {
    int64_t count = 0;
    double mass = 0.0;
    Candidate last = {kInfinity, -1};

    bool holds(const Candidate& candidate) const { return !before(last, candidate); }
};

// Where a prefix ends: at this mass, but after max_count tokens at the latest.
struct Goal {
    double mass;
    int64_t max_count;

    bool reached(int64_t count, double reached_mass) const {
        return count >= max_count || reached_mass >= mass;
    }
};

// Adds the buckets before the goal to the prefix and returns the bucket that holds it: the last one
// with any token, should the rounding of the sums leave the goal just behind that.
int advance(const Histogram& histogram, const Goal& goal, Prefix& prefix) {
    int held = -1;
    for (int b = 0; b < kBuckets; ++b) {
        if (histogram.count[b] == 0) {
            continue;
        }
        if (held >= 0) {
            prefix.count += histogram.count[held];
            prefix.mass += histogram.mass[held];
        }
        held = b;
        if (goal.reached(prefix.count + histogram.count[b], prefix.mass + histogram.mass[b])) {
            break;
        }
    }
    return held;
}

// The mass that a softmax gives to the tokens from which one is drawn.
class Distribution {
  public:
    // At least one token, each with a mass.
    Distribution(Tokens tokens, const Softmax& softmax)
        : tokens_(std::move(tokens)), softmax_(softmax) {
        if (tokens_.count <= kSortAtMost) {
            for (int64_t i = 0; i < tokens_.count; ++i) {
                sorted_.push_back(tokens_[i]);
            }
            std::sort(sorted_.begin(), sorted_.end(), before);
            return;
        }
        const float* logits = tokens_.logits.get();
        const double smallest = *std::min_element(logits, logits + tokens_.count);
        const double spread =
            std::min(softmax_.largest - smallest, kSpread / softmax_.inverse_temperature);
        scale_ = spread > 0.0 ? static_cast<float>(kBuckets / spread) : 0.0f;
        histogram_ = std::make_unique_for_overwrite<Histogram>();
        cpu_kernels().fill_histogram(logits, tokens_.count, softmax_, scale_, *histogram_);
    }

    int64_t count() const { return tokens_.count; }

    double mass_of(float logit) const {
        return std::exp((static_cast<double>(logit) - softmax_.largest) *
                        softmax_.inverse_temperature);
    }

    // The shortest prefix that reaches the goal, whose max_count is at least 1.
    Prefix reach(const Goal& goal) const {
        Prefix prefix;
        if (!histogram_) {
            return walk(sorted_, goal, prefix);
        }
        std::vector<Candidate> members = collect(advance(*histogram_, goal, prefix));
        while (std::ssize(members) > kSortAtMost) {
            if (!narrow(members, goal, prefix)) {
                return take_equals(members, goal, prefix);
            }
        }
        std::sort(members.begin(), members.end(), before);
        return walk(members, goal, prefix);
    }

    // The prefix of the tokens whose mass is at least `bound`.
    Prefix above(double bound) const {
        // Only near the bound does the mass have to be looked at.
        const double nats = std::log(bound) / softmax_.inverse_temperature;
        const double surely = softmax_.largest + nats + kSlack / softmax_.inverse_temperature;
        Prefix prefix;
        prefix.last = {softmax_.largest, kLastId};
        std::vector<float> kept;
        for (int64_t i = 0; i < tokens_.count; ++i) {
            const float logit = tokens_.logits[i];
            if (logit > surely || mass_of(logit) >= bound) {
                kept.push_back(logit);
                prefix.last.logit = std::min(prefix.last.logit, logit);
            }
        }
        prefix.count = std::ssize(kept);
        prefix.mass = cpu_kernels().total_mass(kept.data(), prefix.count, softmax_);
        return prefix;
    }

  private:
    // The prefix with tokens added, in order, until it reaches the goal.
    Prefix walk(const std::vector<Candidate>& members, const Goal& goal, Prefix prefix) const {
        for (const Candidate& member : members) {
            prefix.count += 1;
            prefix.mass += mass_of(member.logit);
            prefix.last = member;
            if (goal.reached(prefix.count, prefix.mass)) {
                break;
            }
        }
        return prefix;
    }

    // The same for tokens that are all equal.
    Prefix take_equals(const std::vector<Candidate>& members, const Goal& goal,
                       const Prefix& prefix) const {
        const double mass = mass_of(members[0].logit);
        const double most = std::min<double>(std::ssize(members), goal.max_count - prefix.count);
        const double needed = std::ceil((goal.mass - prefix.mass) / mass);
        const auto taken = static_cast<int64_t>(std::max(1.0, std::min(most, needed)));
        return {prefix.count + taken, prefix.mass + taken * mass, members[taken - 1]};
    }

    // The tokens of one bucket, ids ascending.
    std::vector<Candidate> collect(int bucket) const {
        std::vector<int32_t> places(static_cast<size_t>(histogram_->count[bucket]));
        cpu_kernels().collect_bucket(tokens_.logits.get(), tokens_.count, softmax_, scale_, bucket,
                                     places.data());
        std::vector<Candidate> members;
        members.reserve(places.size());
        for (const int32_t place : places) {
            members.push_back(tokens_[place]);
        }
        return members;
    }

    // Divides a bucket into finer ones, adds those before the goal to the prefix and leaves the
    // members of the one that holds it. False: all are equal, hence in order.
    bool narrow(std::vector<Candidate>& members, const Goal& goal, Prefix& prefix) const {
        const auto [least, most] =
            std::minmax_element(members.begin(), members.end(),
                                [](const auto& a, const auto& b) { return a.logit < b.logit; });
        const double largest = most->logit;
        const double spread = largest - least->logit;
        if (spread == 0.0) {
            return false;
        }
        // The largest goes into the first bucket and the least into the last, so this shrinks.
        const auto bucket_of = [largest, spread](const Candidate& member) {
            return static_cast<int>((largest - member.logit) / spread * (kBuckets - 1));
        };
        Histogram finer = {};
        for (const Candidate& member : members) {
            finer.count[bucket_of(member)] += 1;
            finer.mass[bucket_of(member)] += mass_of(member.logit);
        }
        const int held = advance(finer, goal, prefix);
        std::erase_if(members, [&](const Candidate& member) { return bucket_of(member) != held; });
        return true;
    }

    Tokens tokens_;
    Softmax softmax_;
    std::vector<Candidate> sorted_;         // when there are few
    std::unique_ptr<Histogram> histogram_;  // when there are many
    float scale_ = 0.0f;                    // of its buckets
};

// Whether the mass of the whole vocabulary matters: to a share of it, or to a draw from all of it.
bool needs_total(const SampleArgs& args) {
    return args.top_k == 0 && (args.top_p < 1.0 || args.min_p == 0.0);
}

// The tokens that can be kept and drawn, perhaps with some more. total: the mass of all of them, if
// it is needed.
Tokens candidates(const Row& row, const SampleArgs& args, const Softmax& softmax, double total) {
    double exponent = kLowestExponent;
    if (needs_total(args)) {
        // All tokens of less than this together leave out half of what may be left out.
        const double share = args.top_p < 1.0 ? args.top_p : args.u;
        const double left_out = (1.0 - share) * total;
        exponent = std::max(exponent, std::log(0.5 * left_out / static_cast<double>(row.size())));
    }
    // After top_k, a share of top_p is of all that top_k kept.
    if (args.min_p > 0.0 && (args.top_k == 0 || args.top_p == 1.0)) {
        exponent = std::max(exponent, std::log(args.min_p));
    }
    const double lowest = softmax.largest + (exponent - kSlack) / softmax.inverse_temperature;
    float bound = lowest > kLowestFinite ? std::nextafter(static_cast<float>(lowest), -kInfinity)
                                         : kLowestFinite;
    if (args.top_k > 0) {
        bound = std::max(bound, row.bound_of(args.top_k));
    }
    return row.at_least(bound);
}

// The filters in their order, each on what the one before kept.
Prefix filter(const Distribution& distribution, const SampleArgs& args, double total) {
    constexpr double kUnbounded = std::numeric_limits<double>::infinity();
    Prefix kept = {distribution.count(), total, {-kInfinity, kLastId}};
    if (args.top_k > 0) {
        kept = distribution.reach({kUnbounded, args.top_k});
    }
    if (args.top_p < 1.0) {
        kept = distribution.reach({args.top_p * kept.mass, kept.count});
    }
    if (args.min_p > 0.0) {
        const Prefix likely = distribution.above(args.min_p);
        kept = likely.count <= kept.count ? likely : kept;
    }
    return kept;
}

// Penalties and biases, into args.work.
Status adjust(const SampleArgs& args, SampleOutput& out) {
    std::copy_n(args.logits, args.vocab_size, args.work);
    const auto is_bad = [&](int32_t id) {
        out.token_id = id;
        return id < 0 || id >= args.vocab_size;
    };
    for (int64_t i = 0; i < args.n_repetition_ids; ++i) {
        const int32_t id = args.repetition_ids[i];
        if (is_bad(id)) {
            return kBadId;
        }
        float& logit = args.work[id];
        logit = logit > 0.0f ? logit / args.repetition_penalty : logit * args.repetition_penalty;
    }
    for (int64_t i = 0; i < args.n_deltas; ++i) {
        if (is_bad(args.delta_ids[i])) {
            return kBadId;
        }
        args.work[args.delta_ids[i]] += args.deltas[i];
    }
    return kOk;
}

// The n tokens with the largest finite logits, in descending order.
std::vector<Candidate> largest(const Row& row, int64_t n) {
    std::vector<Candidate> best;
    if (n <= 0) {
        return best;
    }
    const Tokens tokens = row.at_least(row.bound_of(n));
    best.reserve(static_cast<size_t>(tokens.count));
    for (int64_t i = 0; i < tokens.count; ++i) {
        best.push_back(tokens[i]);
    }
    const auto end = best.begin() + std::min(n, tokens.count);
    std::nth_element(best.begin(), end, best.end(), before);
    best.erase(end, best.end());
    std::sort(best.begin(), best.end(), before);
    return best;
}

// The most likely token, of all the mass.
void choose(const Row& row, const std::vector<Candidate>& top, SampleOutput& out) {
    out.token_id = row.first_largest();
    out.p_sampled = 1.0;
    for (size_t i = 0; i < top.size(); ++i) {
        out.top_p_sampled[i] = top[i].id == out.token_id ? 1.0 : 0.0;
    }
}

// A token by its share of the mass of those that the filters keep. raw_total: the mass of all raw
// logits.
void draw(const Row& row, const SampleArgs& args, double raw_total,
          const std::vector<Candidate>& top, SampleOutput& out) {
    const Softmax softmax = {row.largest(), std::min(1.0 / args.temperature, kSteepest)};
    double total = std::numeric_limits<double>::quiet_NaN();
    if (needs_total(args)) {
        const bool is_raw = row.logits() == args.logits && args.temperature == 1.0;
        total = is_raw ? raw_total : row.total_mass(softmax);
    }
    const Distribution distribution(candidates(row, args, softmax, total), softmax);
    const Prefix kept = filter(distribution, args, total);
    // The first token at which the mass exceeds u: just equal is not enough.
    const double drawn = std::nextafter(args.u * kept.mass, kept.mass + 1.0);
    const Candidate token = distribution.reach({drawn, kept.count}).last;
    out.token_id = token.id;
    out.p_sampled = distribution.mass_of(token.logit) / kept.mass;
    for (size_t i = 0; i < top.size(); ++i) {
        const Candidate candidate = {row.logits()[top[i].id], top[i].id};
        out.top_p_sampled[i] =
            kept.holds(candidate) ? distribution.mass_of(candidate.logit) / kept.mass : 0.0;
    }
}

}  // namespace

Status sample(const SampleArgs& args, SampleOutput& out) {
    const Row raw(args.logits, args.vocab_size);
    if (!raw.can_be_sampled()) {
        return kBadLogits;
    }
    std::optional<Row> adjusted;
    if (args.n_repetition_ids > 0 || args.n_deltas > 0) {
        if (adjust(args, out) != kOk) {
            return kBadId;
        }
        adjusted.emplace(args.work, args.vocab_size);
        if (!adjusted->can_be_sampled()) {
            return kBadAdjusted;
        }
    }
    const Row& row = adjusted ? *adjusted : raw;

    const double raw_total = raw.total_mass({raw.largest(), 1.0});
    const std::vector<Candidate> top = largest(raw, args.n_top);
    out.n_top = std::ssize(top);
    if (args.temperature == 0.0) {
        choose(row, top, out);
    } else {
        draw(row, args, raw_total, top, out);
    }

    const double log_total = std::log(raw_total);
    const auto logprob = [&](float logit) {
        return static_cast<double>(logit) - raw.largest() - log_total;
    };
    out.logprob_raw = logprob(args.logits[out.token_id]);
    out.p_raw = std::exp(out.logprob_raw);
    for (size_t i = 0; i < top.size(); ++i) {
        out.top_ids[i] = top[i].id;
        out.top_logprobs_raw[i] = logprob(top[i].logit);
    }
    return kOk;
}

}  // namespace soliton
