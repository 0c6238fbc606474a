// The scratch of a mixture of experts: where a step keeps the choice, the groups and what lies
// between its products. Owns the places.
#pragma once

#include <cstdint>

#include "ops.h"

namespace soliton::cuda {

// Byte offsets; the next layer's step overwrites them all.
struct ExpertsPlaces {
    int64_t n_bytes = 0;
    int64_t weights, experts, n_groups, group_experts, group_begins, slots;
    int64_t inner, products, shared_inner, shared;

    ExpertsPlaces(int64_t n_used, int64_t hidden, int64_t dim, int64_t shared_hidden) {
        const int64_t n_pairs = kMaxRows * n_used;
        weights = take(n_pairs);
        experts = take(n_pairs);
        n_groups = take(1);
        group_experts = take(n_pairs);
        group_begins = take(n_pairs + 1);
        slots = take(n_pairs);
        inner = take(n_pairs * hidden);
        products = take(n_pairs * dim);
        shared_inner = take(kMaxRows * shared_hidden);
        shared = take(shared_hidden > 0 ? kMaxRows * dim : 0);
    }

  private:
    // Of so many words.
    int64_t take(int64_t n) {
        const int64_t begin = n_bytes;
        n_bytes += (n * 4 + 15) / 16 * 16;
        return begin;
    }
};

}  // namespace soliton::cuda
