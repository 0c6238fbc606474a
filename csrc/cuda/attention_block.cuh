// Where a block of the attention kernel works: its part of the pass, its queries and its tiles.
// Owns no data.
#pragma once

#include "attention_shape.cuh"

namespace soliton::cuda {

inline constexpr float kLog2E = 1.44269504f;

template <typename S>
struct AttentionBlock {
    // The pass's rows from `first_row` on, `rows` of them.
    __device__ AttentionBlock(const AttentionArgs& recorded, const StepState* state, int first_row,
                              int rows)
        : args(recorded),
          shared(shared_memory<uint8_t>()),
          lane(static_cast<int>(threadIdx.x) % kWarp),
          warp(static_cast<int>(threadIdx.x) / kWarp),
          kv_head(static_cast<int>(blockIdx.y)),
          group(static_cast<int>(recorded.n_heads / recorded.n_kv_heads)),
          pos(static_cast<int>(load_fresh(&state->pos)) + first_row),
          n_rows(rows),
          first_query(static_cast<int>(blockIdx.z) * S::kQueries),
          n_queries(min(S::kQueries, rows * group - first_query)) {
        const int window = static_cast<int>(args.window);
        const int oldest = window ? max(pos - window + 1, 0) : 0;
        tiles = {oldest / S::kTile, (pos + n_rows - 1) / S::kTile,
                 attention_splits(args.n_kv_heads)};
    }

    __device__ int row_of(int q) const { return min((first_query + q) / group, n_rows - 1); }

    __device__ int head_of_query(int q) const {
        return kv_head * group + (first_query + q) % group;
    }

    // Of a query, in arrays (rows, n_heads, ...).
    __device__ int64_t index_of_query(int q) const {
        return row_of(q) * args.n_heads + head_of_query(q);
    }

    // In the shared memory: what the scores of each query are multiplied by.
    __device__ float* factors() const { return reinterpret_cast<float*>(shared + S::kFactorsAt); }

    const AttentionArgs& args;
    uint8_t* const shared;
    const int lane;
    const int warp;
    const int kv_head;
    const int group;
    const int pos;  // of the first row
    const int n_rows;
    const int first_query;
    const int n_queries;
    Tiles tiles;
};

// The scales of a step's keys (0) or values (1).
template <typename S>
__device__ __forceinline__ float* scales_of(uint8_t* rows, int which) {
    return reinterpret_cast<float*>(rows + S::kScalesAt + which * S::kScaleBytes);
}

}  // namespace soliton::cuda
