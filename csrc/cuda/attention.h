// How attention divides positions among blocks and warps, and what a prompt's chunk needs for
// attention. Owns the numbers that fix the order of every sum.
//
// Positions come in tiles. With n splits, split s of a kv head takes the tiles s, s + n, s + 2 n,
// ..., so all splits have the same amount of work at any context length. A warp takes the same 16
// positions of each tile, one tile after the other, as one online softmax. The warps of a tile are
// merged in their order, then the splits in theirs. All of this follows from the head's shape
// alone. The bound on the length decides only how many splits can have a tile at all.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "ops.h"

namespace soliton::cuda {

// Positions that a warp takes at a time: the rows of a product on tensor cores.
inline constexpr int kStepPositions = 16;
inline constexpr int kMaxSplits = 64;
inline constexpr int64_t kMaxHeadDim = 256;
// Rows of heads in a cache are padded with zeros to a multiple of this, so that every row begins at
// a multiple of 16 bytes in each format.
inline constexpr int64_t kHeadPadding = 16;

// Elements of a row of a cache.
__host__ __device__ constexpr int64_t padded_head_dim(int64_t head_dim) {
    return (head_dim + kHeadPadding - 1) / kHeadPadding * kHeadPadding;
}

// The elements of a row in shared memory: one of the sizes that kernels are compiled for.
__host__ __device__ constexpr int head_width(int64_t head_dim) {
    return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
}

// Warps of a block. Rows of twice the width leave room for half as many.
__host__ __device__ constexpr int attention_warps(int width) {
    return width <= 128 ? 4 : 2;
}

__host__ __device__ constexpr int tile_positions(int width) {
    return attention_warps(width) * kStepPositions;
}

// Splits of a kv head. All heads together make about two blocks for each multiprocessor of a large
// GPU.
__host__ __device__ constexpr int attention_splits(int64_t n_kv_heads) {
    const int64_t n = 256 / n_kv_heads;
    return n < 1 ? 1 : n > kMaxSplits ? kMaxSplits : static_cast<int>(n);
}

// The most queries of a block: their sums fill its registers.
constexpr int max_block_queries(int width) {
    return width <= 128 ? 16 : 8;
}

// For the rows of a prompt's chunk: norm per head and RoPE, K and V into the caches from `pos` on,
// queries out as bfloat16 (n_rows, n_heads, padded_head_dim). Ignores window, scale, softcap,
// sinks, scratch and out of `args`.
cudaError_t rope(const AttentionArgs& args, int64_t pos, int64_t n_rows, void* queries,
                 cudaStream_t stream);

// Converts keys or values of kInt8, (n_kv_heads, max_seq_len, padded_head_dim) with their scales,
// to bfloat16.
struct UnpackKvArgs {
    const void* codes;
    const float* scales;
    int64_t n_kv_heads;
    int64_t head_dim;
    int64_t max_seq_len;
    int64_t begin;  // positions
    int64_t end;
    void* out;  // (n_kv_heads, end - begin, padded_head_dim) bfloat16
};

cudaError_t unpack_kv(const UnpackKvArgs& args, cudaStream_t stream);

}  // namespace soliton::cuda
