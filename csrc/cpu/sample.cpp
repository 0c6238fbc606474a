// The sampler: from logits to one token with its probabilities. The algorithm, compiled once; its
// loops over the vocabulary are kernels (sample_loops.cpp).
//
// Every filter keeps a prefix of the tokens in descending order, and the draw takes the token where
// a prefix reaches a certain mass. So there is one question, "how far to this count or this mass?",
// and nothing is sorted but the bucket of the histogram in which the answer lies.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels.h"

namespace soliton {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int32_t kLastId = std::numeric_limits<int32_t>::max();

// A bucket of more tokens than this is divided again before it is sorted.
constexpr size_t kSortAtMost = 512;

// All that is ever drawn lies within so many nats of the best token; the rest shares a bucket.
constexpr double kSpread = 32.0;

struct Candidate {
    float logit;
    int32_t id;
};

// The descending order: the larger logit first, the lower id first among equals.
bool before(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

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

// The softmax of the adjusted logits over the temperature, as masses relative to the best token's.
class Distribution {
  public:
    Distribution(const float* logits, int64_t vocab_size, LogitRange range, double temperature)
        : kernels_(cpu_kernels()),
          logits_(logits),
          vocab_size_(vocab_size),
          softmax_{range.largest, 1.0 / temperature} {
        const double spread =
            std::min(static_cast<double>(range.largest) - range.smallest, kSpread * temperature);
        scale_ = spread > 0.0 ? static_cast<float>(kBuckets / spread) : 0.0f;
        kernels_.fill_histogram(logits_, vocab_size_, softmax_, scale_, histogram_);
        total_.last = {-kInfinity, kLastId};
        for (int b = 0; b < kBuckets; ++b) {
            total_.count += histogram_.count[b];
            total_.mass += histogram_.mass[b];
        }
    }

    // All tokens that have any mass.
    const Prefix& total() const { return total_; }

    double mass_of(float logit) const {
        const double distance = static_cast<double>(logit) - softmax_.largest;
        const double exponent = distance * softmax_.inverse_temperature;
        return exponent > kLowestExponent ? std::exp(exponent) : 0.0;
    }

    // The shortest prefix that reaches the goal, whose max_count is 1 to total().count.
    Prefix reach(const Goal& goal) const {
        Prefix prefix;
        std::vector<Candidate> members = collect(advance(histogram_, goal, prefix));
        bool in_order = false;
        while (members.size() > kSortAtMost && !in_order) {
            in_order = !narrow(members, goal, prefix);
        }
        if (!in_order) {
            std::sort(members.begin(), members.end(), before);
        }
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

    // The prefix of the tokens whose mass is at least `bound`.
    Prefix above(double bound) const {
        const MassAbove found = kernels_.mass_above(logits_, vocab_size_, softmax_, bound);
        return {found.count, found.mass, {found.smallest, kLastId}};
    }

  private:
    // The tokens of one bucket, ids ascending.
    std::vector<Candidate> collect(int bucket) const {
        std::vector<int32_t> ids(static_cast<size_t>(histogram_.count[bucket]));
        kernels_.collect_bucket(logits_, vocab_size_, softmax_, scale_, bucket, ids.data());
        std::vector<Candidate> members;
        members.reserve(ids.size());
        for (const int32_t id : ids) {
            members.push_back({logits_[id], id});
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

    const CpuKernels& kernels_;
    const float* logits_;
    int64_t vocab_size_;
    Softmax softmax_;
    float scale_;
    Histogram histogram_;
    Prefix total_;
};

// The filters in their order, each on what the one before kept.
Prefix filter(const Distribution& distribution, const SampleArgs& args) {
    constexpr double kUnbounded = std::numeric_limits<double>::infinity();
    Prefix kept = distribution.total();
    if (args.top_k > 0 && args.top_k < kept.count) {
        kept = distribution.reach({kUnbounded, args.top_k});
    }
    if (args.top_p < 1.0) {
        kept = distribution.reach({args.top_p * kept.mass, kept.count});
    }
    if (args.min_p > 0.0) {
        const Prefix likely = distribution.above(args.min_p);
        kept = likely.count < kept.count ? likely : kept;
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

bool can_be_sampled(const LogitRange& range) {
    return !range.bad && range.largest > -kInfinity;
}

// The n tokens with the largest finite logits, in descending order.
std::vector<Candidate> largest(const float* logits, int64_t vocab_size, int64_t n) {
    const CpuKernels& kernels = cpu_kernels();
    std::vector<Candidate> heap;  // the last of the order on top
    if (n <= 0) {
        return heap;
    }
    float bound = -kInfinity;
    for (int64_t i = kernels.next_above(logits, 0, vocab_size, bound); i < vocab_size;
         i = kernels.next_above(logits, i + 1, vocab_size, bound)) {
        if (static_cast<int64_t>(heap.size()) == n) {
            std::pop_heap(heap.begin(), heap.end(), before);
            heap.pop_back();
        }
        heap.push_back({logits[i], static_cast<int32_t>(i)});
        std::push_heap(heap.begin(), heap.end(), before);
        if (static_cast<int64_t>(heap.size()) == n) {
            bound = heap.front().logit;  // an equal one that comes later has the higher id
        }
    }
    std::sort_heap(heap.begin(), heap.end(), before);
    return heap;
}

}  // namespace

Status sample(const SampleArgs& args, SampleOutput& out) {
    const CpuKernels& kernels = cpu_kernels();
    const int64_t vocab_size = args.vocab_size;
    const LogitRange raw = kernels.logit_range(args.logits, vocab_size);
    if (!can_be_sampled(raw)) {
        return kBadLogits;
    }
    const bool is_adjusted = args.n_repetition_ids > 0 || args.n_deltas > 0;
    const float* adjusted = args.logits;
    LogitRange range = raw;
    if (is_adjusted) {
        if (adjust(args, out) != kOk) {
            return kBadId;
        }
        adjusted = args.work;
        range = kernels.logit_range(adjusted, vocab_size);
        if (!can_be_sampled(range)) {
            return kBadAdjusted;
        }
    }

    const double raw_total = kernels.total_mass(args.logits, vocab_size, {raw.largest, 1.0});
    const std::vector<Candidate> top = largest(args.logits, vocab_size, args.n_top);
    out.n_top = static_cast<int64_t>(top.size());
    if (args.temperature == 0.0) {
        out.token_id = std::find(adjusted, adjusted + vocab_size, range.largest) - adjusted;
        out.p_sampled = 1.0;
        for (size_t i = 0; i < top.size(); ++i) {
            out.top_p_sampled[i] = top[i].id == out.token_id ? 1.0 : 0.0;
        }
    } else {
        const Distribution distribution(adjusted, vocab_size, range, args.temperature);
        const Prefix kept = filter(distribution, args);
        // The first token at which the mass exceeds u: just equal is not enough.
        const double drawn = std::nextafter(args.u * kept.mass, kept.mass + 1.0);
        const Candidate token = distribution.reach({drawn, kept.count}).last;
        out.token_id = token.id;
        out.p_sampled = distribution.mass_of(token.logit) / kept.mass;
        for (size_t i = 0; i < top.size(); ++i) {
            const Candidate candidate = {adjusted[top[i].id], top[i].id};
            out.top_p_sampled[i] =
                kept.holds(candidate) ? distribution.mass_of(candidate.logit) / kept.mass : 0.0;
        }
    }

    const double log_total = std::log(raw_total);
    const auto logprob = [&](int64_t id) {
        return static_cast<double>(args.logits[id]) - raw.largest - log_total;
    };
    out.logprob_raw = logprob(out.token_id);
    out.p_raw = std::exp(out.logprob_raw);
    for (size_t i = 0; i < top.size(); ++i) {
        out.top_ids[i] = top[i].id;
        out.top_logprobs_raw[i] = logprob(top[i].id);
    }
    return kOk;
}

}  // namespace soliton
