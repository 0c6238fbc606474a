// Tokens and the mass that a softmax gives them. Owns the question that the draw and all filters
// for the most likely tokens ask: which prefix of the descending order has this count or this mass?
// Answers it by sorting no more than the one bucket of a histogram that holds the answer.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels.h"
#include "row.h"

namespace soliton {

// The logarithm of the mass, in nats.
inline double exponent_of(const Softmax& softmax, float logit) {
    const double distance = static_cast<double>(logit) - softmax.largest;
    return distance * (softmax.linear + softmax.quadratic * distance);
}

inline double mass_of(const Softmax& softmax, float logit) {
    return std::exp(exponent_of(softmax, logit));
}

// The difference to the largest logit, at most 0, that has this exponent.
double distance_of(const Softmax& softmax, double exponent);

// A logit slightly below those with this exponent.
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
    // Takes at least one token, each with a mass. The tokens must not change while they are used.
    void assign(const Tokens& tokens, const Softmax& softmax);

    int64_t count() const { return tokens_->count; }

    // The mass of all tokens, added one by one; NaN unless the tokens are few.
    double exact_mass() const;

    // The shortest prefix that reaches the goal, whose max_count is at least 1.
    Prefix reach(const Goal& goal);

    // The prefix of the tokens whose exponent is at least `exponent` (at most 0), or whose mass is
    // at least `mass`.
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
    bool is_sorted_ = false;         // true if the tokens are few
    std::vector<Candidate> sorted_;  // if is_sorted_
    Histogram histogram_;            // if not is_sorted_
    float scale_ = 0.0f;             // of its buckets
    std::vector<int32_t> places_;
    std::vector<Candidate> members_;
    std::vector<float> kept_;
};

// Sorts into descending order; the ids must be ascending.
void sort_descending(std::vector<Candidate>& candidates);

}  // namespace soliton
