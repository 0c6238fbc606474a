// Tokens and the mass that a softmax gives them. Owns the one question of all filters that keep the
// most likely and of the draw: how far in descending order to this count or this mass? Answers it
// without sorting more than the bucket of a histogram in which the answer lies.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels.h"
#include "row.h"

namespace soliton {

// In nats: the logarithm of the mass.
inline double exponent_of(const Softmax& softmax, float logit) {
    const double distance = static_cast<double>(logit) - softmax.largest;
    return distance * (softmax.linear + softmax.quadratic * distance);
}

inline double mass_of(const Softmax& softmax, float logit) {
    return std::exp(exponent_of(softmax, logit));
}

// The distance from the largest logit, at most 0, with this exponent.
double distance_of(const Softmax& softmax, double exponent);

// A logit that is below those with this exponent, and not by much.
float bound_below(const Softmax& softmax, double exponent);

// The first `count` tokens of the descending order.
struct Prefix {
    int64_t count;
    double mass;
    Candidate last;

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

class Distribution {
  public:
    // At least one token, each with a mass; they must stay as they are.
    void assign(const Tokens& tokens, const Softmax& softmax);

    int64_t count() const { return tokens_->count; }

    // Of all tokens, added one by one; only when there are few, else NaN.
    double exact_mass() const;

    // The shortest prefix that reaches the goal, whose max_count is at least 1.
    Prefix reach(const Goal& goal);

    // The prefix of the tokens whose exponent is at least this, at most 0, or whose mass is.
    Prefix above(double exponent, double mass);

    // The tokens of a prefix in descending order.
    void sort(const Prefix& prefix, std::vector<Candidate>& sorted);

    // The mass that another softmax gives to the tokens of a prefix.
    double mass(const Prefix& prefix, const Softmax& softmax);

  private:
    template <typename Holds>
    void keep(Holds holds);
    int advance(const Histogram& histogram, const Goal& goal, Prefix& prefix) const;
    Prefix walk(const std::vector<Candidate>& members, const Goal& goal, Prefix prefix) const;
    Prefix take_equals(const Goal& goal, const Prefix& prefix) const;
    void collect(int bucket);
    bool narrow(const Goal& goal, Prefix& prefix);

    const Tokens* tokens_ = nullptr;
    Softmax softmax_ = {};
    bool is_sorted_ = false;         // there are few
    std::vector<Candidate> sorted_;  // then
    Histogram histogram_;            // otherwise
    float scale_ = 0.0f;             // of its buckets
    std::vector<int32_t> places_;
    std::vector<Candidate> members_;
    std::vector<float> kept_;
};

// In descending order; ids ascending before.
void sort_descending(std::vector<Candidate>& candidates);

}  // namespace soliton
