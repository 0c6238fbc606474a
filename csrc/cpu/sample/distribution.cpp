#include "distribution.h"

#include <algorithm>
#include <array>
#include <bit>

#include "../kernels.h"

namespace soliton {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowestFinite = std::numeric_limits<float>::lowest();
constexpr int32_t kLastId = std::numeric_limits<int32_t>::max();

// More tokens than this go through a histogram before a part of them is sorted.
constexpr int64_t kSortAtMost = 256;

// More candidates than this are sorted digit by digit.
constexpr int64_t kCompareAtMost = 1024;

// Nearly every token that is ever drawn lies within this many nats of the best one; the others
// share a bucket.
constexpr double kSpread = 32.0;

// Bounds on logits are lowered by this many nats, against rounding errors in their inputs.
constexpr double kSlack = 1e-6;

// An unsigned number that ascends as the float descends.
uint32_t descending_key(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value + 0.0f);  // -0 becomes +0
    return bits & 0x80000000u ? bits : ~bits & 0x7fffffffu;
}

}  // namespace

double distance_of(const Softmax& softmax, double exponent) {
    return softmax.quadratic == 0.0 ? exponent / softmax.linear
                                    : -std::sqrt(exponent / softmax.quadratic);
}

float bound_below(const Softmax& softmax, double exponent) {
    const double lowest = softmax.largest + distance_of(softmax, exponent - kSlack);
    return lowest > kLowestFinite ? std::nextafter(static_cast<float>(lowest), -kInfinity)
                                  : kLowestFinite;
}

void Distribution::assign(const Tokens& tokens, const Softmax& softmax) {
    tokens_ = &tokens;
    softmax_ = softmax;
    is_sorted_ = tokens.count <= kSortAtMost;
    if (is_sorted_) {
        sorted_.clear();
        for (int64_t i = 0; i < tokens.count; ++i) {
            sorted_.push_back(tokens[i]);
        }
        std::sort(sorted_.begin(), sorted_.end(), before);
        return;
    }
    const float* logits = tokens.logits.data();
    const double smallest = *std::min_element(logits, logits + tokens.count);
    const double spread = std::min(softmax.largest - smallest, -distance_of(softmax, -kSpread));
    scale_ = spread > 0.0 ? static_cast<float>(kBuckets / spread) : 0.0f;
    cpu_kernels().fill_histogram(logits, tokens.count, softmax, scale_, histogram_);
}

double Distribution::exact_mass() const {
    if (!is_sorted_) {
        return std::numeric_limits<double>::quiet_NaN();
    }
    double mass = 0.0;
    for (const Candidate& candidate : sorted_) {
        mass += mass_of(softmax_, candidate.logit);
    }
    return mass;
}

Prefix Distribution::reach(const Goal& goal) {
    Prefix prefix = {0, 0.0, {kInfinity, -1}};
    if (is_sorted_) {
        return walk(sorted_, goal, prefix);
    }
    collect(advance(histogram_, goal, prefix));
    while (std::ssize(members_) > kSortAtMost) {
        if (!narrow(goal, prefix)) {
            return take_equals(goal, prefix);
        }
    }
    std::sort(members_.begin(), members_.end(), before);
    return walk(members_, goal, prefix);
}

Prefix Distribution::above(double exponent, double mass) {
    // The mass needs checking only near the bound.
    const float hardly = bound_below(softmax_, exponent);
    keep([&](const Candidate& token) { return token.logit >= hardly; });
    const double surely =
        softmax_.largest + distance_of(softmax_, std::min(exponent + kSlack, 0.0));
    std::erase_if(kept_, [&](float logit) {
        return !(logit > surely || exponent_of(softmax_, logit) >= exponent ||
                 mass_of(softmax_, logit) >= mass);
    });
    Prefix prefix = {0, 0.0, {*std::min_element(kept_.begin(), kept_.end()), kLastId}};
    prefix.count = std::ssize(kept_);
    prefix.mass = mass_of_all(kept_.data(), prefix.count, softmax_);
    return prefix;
}

void Distribution::sort(const Prefix& prefix, std::vector<Candidate>& sorted) {
    sorted.clear();
    if (is_sorted_) {
        sorted.assign(sorted_.begin(), sorted_.begin() + prefix.count);
        return;
    }
    for (int64_t i = 0; i < tokens_->count; ++i) {
        if (prefix.holds((*tokens_)[i])) {
            sorted.push_back((*tokens_)[i]);
        }
    }
    sort_descending(sorted);
}

double Distribution::mass(const Prefix& prefix, const Softmax& softmax) {
    keep([&](const Candidate& token) { return prefix.holds(token); });
    return mass_of_all(kept_.data(), std::ssize(kept_), softmax);
}

// Keeps the logits of the tokens for which holds(token) is true. Branch-free, because the branch
// would be unpredictable.
template <typename Holds>
void Distribution::keep(Holds holds) {
    kept_.resize(static_cast<size_t>(tokens_->count));
    int64_t count = 0;
    for (int64_t i = 0; i < tokens_->count; ++i) {
        kept_[count] = tokens_->logits[i];
        count += holds((*tokens_)[i]) ? 1 : 0;
    }
    kept_.resize(static_cast<size_t>(count));
}

// Adds the buckets before the goal to the prefix and returns the bucket that holds the goal. If
// rounding of the sums puts the goal just after the last bucket with a token, returns that bucket.
int Distribution::advance(const Histogram& histogram, const Goal& goal, Prefix& prefix) const {
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

// The prefix with members added, in order, until it reaches the goal.
Prefix Distribution::walk(const std::vector<Candidate>& members, const Goal& goal,
                          Prefix prefix) const {
    for (const Candidate& member : members) {
        prefix.count += 1;
        prefix.mass += mass_of(softmax_, member.logit);
        prefix.last = member;
        if (goal.reached(prefix.count, prefix.mass)) {
            break;
        }
    }
    return prefix;
}

// The same for members with equal logits.
Prefix Distribution::take_equals(const Goal& goal, const Prefix& prefix) const {
    const double mass = mass_of(softmax_, members_[0].logit);
    const double most = std::min<double>(std::ssize(members_), goal.max_count - prefix.count);
    const double needed = std::ceil((goal.mass - prefix.mass) / mass);
    const auto taken = static_cast<int64_t>(std::max(1.0, std::min(most, needed)));
    return {prefix.count + taken, prefix.mass + taken * mass, members_[taken - 1]};
}

// Makes the tokens of one bucket the members, ids ascending.
void Distribution::collect(int bucket) {
    places_.resize(static_cast<size_t>(histogram_.count[bucket]));
    cpu_kernels().collect_bucket(tokens_->logits.data(), tokens_->count, softmax_, scale_, bucket,
                                 places_.data());
    members_.clear();
    for (const int32_t place : places_) {
        members_.push_back((*tokens_)[place]);
    }
}

// Divides the members into finer buckets, adds the buckets before the goal to the prefix, and keeps
// the members of the bucket that holds it. Returns false if all members are equal, hence in order.
bool Distribution::narrow(const Goal& goal, Prefix& prefix) {
    const auto [least, most] =
        std::minmax_element(members_.begin(), members_.end(),
                            [](const auto& a, const auto& b) { return a.logit < b.logit; });
    const double largest = most->logit;
    const double spread = largest - least->logit;
    if (spread == 0.0) {
        return false;
    }
    // The largest goes into the first bucket and the least into the last, so the members become
    // fewer.
    const auto bucket_of = [largest, spread](const Candidate& member) {
        return static_cast<int>((largest - member.logit) / spread * (kBuckets - 1));
    };
    Histogram finer = {};
    for (const Candidate& member : members_) {
        finer.count[bucket_of(member)] += 1;
        finer.mass[bucket_of(member)] += mass_of(softmax_, member.logit);
    }
    const int held = advance(finer, goal, prefix);
    std::erase_if(members_, [&](const Candidate& member) { return bucket_of(member) != held; });
    return true;
}

void sort_descending(std::vector<Candidate>& candidates) {
    if (std::ssize(candidates) <= kCompareAtMost) {
        std::sort(candidates.begin(), candidates.end(), before);
        return;
    }
    // Radix sort, least significant digit first; each pass is stable.
    constexpr int kDigitBits = 11;
    std::vector<Candidate> other(candidates.size());
    for (int shift = 0; shift < 32; shift += kDigitBits) {
        const auto digit_of = [shift](const Candidate& candidate) {
            return descending_key(candidate.logit) >> shift & ((1u << kDigitBits) - 1);
        };
        std::array<uint32_t, 1u << kDigitBits> ends = {};
        for (const Candidate& candidate : candidates) {
            ends[digit_of(candidate)] += 1;
        }
        uint32_t begin = 0;
        for (uint32_t& end : ends) {
            const uint32_t count = end;
            end = begin;
            begin += count;
        }
        for (const Candidate& candidate : candidates) {
            other[ends[digit_of(candidate)]++] = candidate;
        }
        candidates.swap(other);
    }
}

}  // namespace soliton
