// Sizes of the attention kernel: a block's shared memory, and which split owns which tiles of
// positions. Owns no memory and no arithmetic.
#pragma once

#include "attention.h"
#include "attention_tiles.cuh"
#include "common.cuh"
#include "head_row.cuh"

namespace soliton::cuda {

// The tiles with a position that the pass sees.
struct Tiles {
    int first;
    int last;
    int n_splits;

    // The first tile of a split; after `last` if it has none.
    __device__ int begin(int split) const {
        return first + (split - first % n_splits + n_splits) % n_splits;
    }

    __device__ int n_active() const { return min(n_splits, last - first + 1); }

    // The i-th of the splits that have tiles, in ascending order.
    __device__ int active(int i) const {
        const int begin = first % n_splits;
        const int n_wrapped = max(begin + n_active() - n_splits, 0);
        return i < n_wrapped ? i : begin + i - n_wrapped;
    }
};

// For a cache format, a head width, and 4 queries per column.
template <KvType kFormat, int kHeadWidth, int kQueryColumns>
struct AttentionShape {
    using Rows = KvRows<kFormat, kHeadWidth>;
    static constexpr KvType kKv = kFormat;
    static constexpr int kWidth = kHeadWidth;
    static constexpr int kWarps = attention_warps(kWidth);
    static constexpr int kThreads = kWarps * kWarp;
    static constexpr int kTile = tile_positions(kWidth);
    static constexpr int kColumns =
        kQueryColumns;  // each 8 wide in a product: 4 queries in 2 parts
    static constexpr int kQueries = 4 * kColumns;
    static constexpr int kBands = kWidth / 16;
    static constexpr bool kHasScales = kKv == KvType::kInt8;
    static constexpr int kElement = kElementBytes<kKv>;
    static constexpr int kRowChunks = kWidth * kElement / 16;  // of 16 bytes

    // A step of a warp: 16 keys, 16 values, and for kInt8 their scales.
    static constexpr int kValuesAt = kStepPositions * Rows::kStride;
    static constexpr int kScalesAt = 2 * kValuesAt;
    static constexpr int kScaleBytes = kHasScales ? kStepPositions * 4 : 0;
    static constexpr int kStageBytes = kScalesAt + 2 * kScaleBytes;
    // A new row: key, value, both scales.
    static constexpr int kFreshBytes = 2 * Rows::kStride + 16;
    static constexpr int kQueryBytes = 2 * kQueries * Rows::kQueryStride;
    static constexpr int kOtherBytes = kQueryBytes + kQueries * 4 + kMaxRows * kFreshBytes;

    // Every supported GPU gives a block 99 KiB; a large one has room for two such blocks. A stage
    // in flight has 4 (kInt8) or 8 KiB (kBf16) for each warp; all together are several times what
    // hides the memory's latency.
    static constexpr int kMaxStages = 6;
    static constexpr int kRoom = (99 * 1024 - 512 - kOtherBytes) / (kWarps * kStageBytes);
    static constexpr int kStages = kRoom < kMaxStages ? kRoom : kMaxStages;
    static_assert(kStages >= 2);

    static constexpr int kQueriesAt = kWarps * kStages * kStageBytes;
    static constexpr int kFactorsAt = kQueriesAt + kQueryBytes;
    static constexpr int kFreshAt = kFactorsAt + kQueries * 4;

    // At the end, in place of the stages: each warp's sums of values, then its tops and sums.
    static constexpr int kPartFloats = kQueries * kWidth;
    static constexpr int kTopsAt = kWarps * kPartFloats;
    static constexpr int kSumsAt = kTopsAt + kWarps * kQueries;
    static_assert((kSumsAt + kWarps * kQueries) * 4 <= kQueriesAt);

    // A split's record of one query in device memory: the sums of values, then top and sum.
    static constexpr int kRecordFloats = kWidth + 4;

    static size_t shared_bytes(int n_rows) { return kFreshAt + n_rows * kFreshBytes; }
};

}  // namespace soliton::cuda
