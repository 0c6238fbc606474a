// A row of logits with the largest of every block and the sums of every tile. Owns adding them up,
// on all threads if the vocabulary is large. Knows no settings and no stage.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.h"

namespace soliton {

struct Candidate {
    float logit;
    int32_t id;
};

// The descending order: the larger logit first, the lower id first among equals.
inline bool before(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// The mass of n logits in a softmax without temperature, relative to the largest.
struct Mass {
    double total;
    double moment;  // the sum of mass * (logit - largest)
};

// Tokens in ascending order of their ids.
struct Tokens {
    std::vector<int32_t> ids;
    std::vector<float> logits;
    int64_t count = 0;

    Candidate operator[](int64_t i) const { return {logits[i], ids[i]}; }
};

class Row {
  public:
    // Reads the logits, and copies them unless `copy` is null. The logits must stay valid while
    // this row is used.
    void read(const float* logits, int64_t size, float* copy);

    // Takes the sums of another row for a copy of its logits.
    void take_over(const float* logits, const Row& other);

    // Marks the logit as changed, so that `refresh` adds up its tile again.
    void touch(int64_t id) { stale_[id / kSampleTile] = 1; }

    // Call this after changes to `logits`, which must be this row's. Sets the tokens that the mask
    // does not allow to -inf; a null mask allows all.
    void refresh(float* logits, const int32_t* mask);

    // Whether no logit is NaN or +inf, and at least one is finite.
    bool can_be_sampled() const;

    const float* logits() const { return logits_; }
    int64_t size() const { return size_; }
    float largest() const { return largest_; }
    int64_t first_largest() const;

    // Of the softmax without temperature.
    Mass mass() const { return mass_; }
    // The total mass of another softmax.
    double total(const Softmax& softmax);

    // A bound that at least `count` finite logits reach (all, if there are fewer), and few more.
    float bound_of(int64_t count);

    void at_least(float bound, Tokens& tokens) const;

    // The n tokens with the largest finite logits, in descending order.
    void largest(int64_t n, Tokens& tokens, std::vector<Candidate>& best);

    // The number of tokens before this one in descending order.
    int64_t rank(int64_t id) const;

  private:
    // Calls prepare(begin, n) for every tile, in any order, and adds the tile up if that returns
    // true.
    template <typename Prepare>
    void sum_tiles(double scale, std::vector<TileSums>& tiles, Prepare prepare);

    const float* logits_ = nullptr;
    int64_t size_ = 0;
    float largest_ = 0.0f;
    Mass mass_ = {};
    std::vector<float> maxima_;
    std::vector<float> group_maxima_;
    std::vector<float> best_maxima_;
    std::vector<TileSums> tiles_;
    std::vector<TileSums> other_tiles_;  // of another softmax
    std::vector<char> stale_;
};

// The sum of the masses of n logits, among them the softmax's largest.
double mass_of_all(const float* logits, int64_t n, const Softmax& softmax);

}  // namespace soliton
