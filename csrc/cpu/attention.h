// What the kernels of attention and those who call them agree on: tiles, blocks, records and
// per-thread memory. Owns no code that is shared between instruction sets.
#pragma once

#include <cstdint>

#include "../ops.h"

namespace soliton {

// Keys whose scores share one maximum and one sum: positions kKeyBlock * i and up. Part of the
// result's definition, so it depends on nothing.
inline constexpr int64_t kKeyBlock = 256;
// Keys unpacked at once, so that they stay in the first-level cache.
inline constexpr int64_t kKeyChunk = 64;
// The most queries that share unpacked keys.
inline constexpr int64_t kQueryTile = 64;
inline constexpr int64_t kMaxHeadDim = 256;
// Records hold outputs padded to a multiple of this.
inline constexpr int64_t kHeadDimMultiple = 32;
// Rows of queries and of scores are this far apart.
inline constexpr int64_t kTileStride = 256;
static_assert(kTileStride >= kKeyBlock && kTileStride >= kMaxHeadDim);

// Some queries of one kv head. Query i of a kv head is that of row i / group and of the head i %
// group among those that share the keys, group = n_heads / n_kv_heads.
struct QueryTile {
    int64_t kv_head;
    int64_t first;
    int64_t count;  // at most kQueryTile
    int64_t pos;    // position of row 0
};

// What one block or several say about a query, as floats: outputs (padded head_dim,), then the
// largest score and the sum of the probabilities, both the outputs and the sum relative to the
// largest score. With nothing seen: zeros, and -infinity as the largest.
inline constexpr int64_t kRecordTail = 16;  // keeps records on cache lines

[[gnu::always_inline]] constexpr inline int64_t padded_head_dim(int64_t head_dim) {
    return (head_dim + kHeadDimMultiple - 1) / kHeadDimMultiple * kHeadDimMultiple;
}

// One thread's memory.
struct AttentionWork {
    alignas(64) float queries[kQueryTile * kTileStride];  // normed, rotated and scaled
    float scores[kQueryTile * kTileStride];               // then probabilities
    float keys[kMaxHeadDim * kKeyChunk];
    float values[kKeyChunk * kMaxHeadDim];
    float key_scales[kKeyBlock];
    float value_scales[kKeyBlock];
    float records[2][kQueryTile * (kMaxHeadDim + kRecordTail)];
};

}  // namespace soliton
