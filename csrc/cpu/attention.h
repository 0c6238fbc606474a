// What attention's kernels and their callers share: the layout of the caches, tiles, blocks,
// records and per-thread memory. Owns no code that is shared between instruction sets.
#pragma once

#include <cstdint>

#include "../ops.h"

namespace soliton {

// Keys and values lie in panels of 16 lanes of 32 bits, so that no product adds across lanes or
// transposes a matrix. A lane of a panel of keys is a key and holds its dimensions, one group per
// row of lanes; a lane of a panel of values is a dimension and holds its positions. A group is what
// fits into 32 bits: 1 float, 2 bfloat16, 4 codes of 8 bits in the order 0, 2, 1, 3, or 8 codes of
// 4 bits: 0, 2, 1, 3 in the low halves of the bytes, 4, 6, 5, 7 in the high ones.
//
// Keys of a kv head: (padded positions / 16, padded head_dim / group, 16, group). The rows of four
// panels of values take turns, because a product reads them together: processors fetch ahead of one
// long stream, and hardly of four short ones. So values are (padded positions / group, 64, group)
// for each 64 dimensions, one after the other; the last of them may be 16, 32 or 48. Padding is
// never read into a result.
//
// Codes are those of rotated heads (attention_rotation.h). With 8 bits a head has one scale at a
// position; with 4 bits 32 dimensions share one. Scales of two neighbouring blocks of 32 lie
// together, so that a lane of 16 positions holds 16 pairs.
inline constexpr int64_t kKvLanes = 16;
inline constexpr int64_t kWovenDims = 4 * kKvLanes;
inline constexpr int64_t kScaledDims = 32;
// The pairs of scales that a head has at one position.
[[gnu::always_inline]] constexpr inline int64_t scale_pairs(int64_t head_dim) {
    return (head_dim + 2 * kScaledDims - 1) / (2 * kScaledDims);
}
// How many elements a lane of 32 bits holds.
[[gnu::always_inline]] constexpr inline int64_t per_lane(KvType kv) {
    switch (kv) {
        case KvType::kF32:
            return 1;
        case KvType::kBf16:
            return 2;
        case KvType::kInt8:
            return 4;
        case KvType::kInt4:
            return 8;
    }
    return 1;
}
inline constexpr int64_t kLaneBytes = 4;
// The bytes of n elements, a multiple of 16.
[[gnu::always_inline]] constexpr inline int64_t stored_bytes(KvType kv, int64_t n) {
    return n / per_lane(kv) * kLaneBytes;
}
// A head_dim or a number of positions, rounded up as the caches store it.
[[gnu::always_inline]] constexpr inline int64_t padded(int64_t n) {
    return (n + kKvLanes - 1) / kKvLanes * kKvLanes;
}

// Where the values of one kv head lie, in bytes from its begin.
struct ValuePlaces {
    KvType kv;
    int64_t positions;  // padded, as the next one is
    int64_t head_dim;

    [[gnu::always_inline]] constexpr int64_t head_bytes() const {
        return stored_bytes(kv, positions * head_dim);
    }
    // How many dimensions from this multiple of 64 on take turns.
    [[gnu::always_inline]] constexpr int64_t n_woven(int64_t dim) const {
        return head_dim - dim < kWovenDims ? head_dim - dim : kWovenDims;
    }
    // The row of these dimensions that holds a position.
    [[gnu::always_inline]] constexpr int64_t row(int64_t dim, int64_t position) const {
        return stored_bytes(kv, dim * positions) +
               position / per_lane(kv) * n_woven(dim) * kLaneBytes;
    }
};
[[gnu::always_inline]] inline ValuePlaces value_places(const AttentionArgs& args) {
    return {args.v_type, padded(args.max_seq_len), padded(args.head_dim)};
}

// Where a position lies in caches that may hold fewer than the sequence has: they go round. With a
// window they hold at least kKeyBlock more than a pass sees, so that none of its blocks share a
// place.
[[gnu::always_inline]] inline int64_t place_of(const AttentionArgs& args, int64_t pos) {
    return pos < args.max_seq_len ? pos : pos % args.max_seq_len;
}

// Keys whose scores share one maximum and one sum: positions from kKeyBlock * i on. It determines
// the result's bits, so it is the same everywhere.
inline constexpr int64_t kKeyBlock = 256;
inline constexpr int64_t kMaxHeadDim = 512;
// The distance between rows of scores, and between rows of queries with a head_dim up to it.
inline constexpr int64_t kTileStride = 256;
static_assert(kTileStride >= kKeyBlock);
// Keys of 4 bits from which the same is taken: positions from kCommonChunk * i on. Fewer lose a
// little less, and cost more.
inline constexpr int64_t kCommonChunk = 64;
static_assert(kKeyBlock % kCommonChunk == 0);
// That between wider queries.
inline constexpr int64_t kWideStride = 512;
static_assert(kWideStride >= kMaxHeadDim);
[[gnu::always_inline]] constexpr inline bool is_wide(int64_t head_dim) {
    return head_dim > kTileStride;
}

// The largest number of queries that go through a block together. Of wide ones it is half as many,
// so that they take no more memory.
inline constexpr int64_t kQueryTile = 64;
inline constexpr int64_t kWideQueryTile = kQueryTile * kTileStride / kWideStride;

// Some queries of one kv head. With group = n_heads / n_kv_heads, query i of a kv head belongs to
// row i / group, and to head i % group of those that share the keys.
struct QueryTile {
    int64_t kv_head;
    int64_t first;
    int64_t count;  // at most kQueryTile
    int64_t pos;    // position of row 0
    int64_t step;   // from a row's position to the next one's: 1, or 0 for rows of branches
    // What the thread reads after the last block of the tile, which is fetched meanwhile.
    const void* after = nullptr;
    int64_t after_bytes = 0;

    [[gnu::always_inline]] constexpr int64_t position(int64_t row) const {
        return pos + row * step;
    }
};

// The partial result of one or more blocks for a query, as floats: outputs (padded head_dim,), then
// the largest score and the sum of the probabilities. Outputs and sum are relative to the largest
// score. If the query sees no key: zeros, and -infinity as the largest score.
inline constexpr int64_t kRecordTail = 16;  // keeps records on cache lines

static_assert(kWideQueryTile * (kMaxHeadDim + kRecordTail) <=
              kQueryTile * (kTileStride + kRecordTail));

// The scores of a query with what keys of 4 bits have in common, but for what turns with them.
struct CommonScores {
    float first;  // of the key at position 0, all of it
    float rest;   // of the others, in the dimensions that are not rotated
};

// The memory of one thread.
struct AttentionWork {
    // Normed, rotated and scaled. Beside keys of 4 bits, what turns of their common scores.
    alignas(64) float queries[kQueryTile * kTileStride];
    CommonScores common_scores[kQueryTile];
    float scores[kQueryTile * kTileStride];  // then probabilities
    // Beside codes: the same as 15-bit codes, with a scale per row.
    int16_t query_codes[kQueryTile * kTileStride];
    int16_t probability_codes[kQueryTile * kTileStride];
    float query_scales[kQueryTile];
    float probability_scales[kQueryTile];
    float value_scales[kKeyBlock];
    float records[2][kQueryTile * (kTileStride + kRecordTail)];
};

}  // namespace soliton
