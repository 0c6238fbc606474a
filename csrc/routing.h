// Which experts a row goes through. Knows no matrix and no thread.
#pragma once

#include <cstdint>
#include <span>

#include "ops.h"

namespace soliton {

struct Choice {
    int32_t expert;
    float weight;
};

// The choices (n_used,) of one row, the best first, from its numbers (n_experts,). `room`
// (2 n_experts,) is overwritten. Experts that are equally good are taken in their order.
void choose_experts(const Routing& routing, const float* numbers, std::span<float> room,
                    std::span<Choice> choices);

inline int64_t routing_room(const Routing& routing) {
    return 2 * routing.n_experts;
}

// 1 / (1 + e^-x)
float sigmoid(float x);

// The pairs of rows and experts, by expert: what a thread works out for itself. A slot is the place
// of a pair in that order; an expert's slots follow each other, in the order of their rows.
class Groups {
  public:
    // `memory` (n_words(),) belongs to the groups.
    Groups(const Routing& routing, std::span<const Choice> choices, int32_t* memory);

    static int64_t n_words(const Routing& routing, int64_t n_pairs) {
        return 2 * routing.n_experts + 2 + 2 * n_pairs;
    }

    // Experts that have rows, ascending.
    std::span<const int32_t> used() const { return used_; }
    int64_t begin(int64_t expert) const { return begins_[static_cast<size_t>(expert)]; }
    int64_t end(int64_t expert) const { return begins_[static_cast<size_t>(expert) + 1]; }
    // The pair in a slot, and the slot of a pair. Pair p is of row p / n_used.
    int64_t pair(int64_t slot) const { return pairs_[static_cast<size_t>(slot)]; }
    int64_t slot(int64_t pair) const { return slots_[static_cast<size_t>(pair)]; }

  private:
    std::span<int32_t> begins_;  // (n_experts + 1,)
    std::span<int32_t> used_;
    std::span<int32_t> pairs_;
    std::span<int32_t> slots_;
};

}  // namespace soliton
