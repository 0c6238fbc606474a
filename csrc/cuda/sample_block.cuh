// Results that the threads of a block of the sampler compute together. Every thread must call these
// and receives the result; sums have a fixed order.
#pragma once

#include "sample_row.cuh"

namespace soliton::cuda {

inline constexpr int kSampleWarps = kSampleThreads / kWarp;

// This thread's logits of the block's chunk of a row; -inf beyond the row's end. Loaded early, so
// that later code does not wait for them.
struct OwnLogits {
    float of[kTokensPerThread];
    int64_t first_id;

    __device__ OwnLogits(const float* logits, int64_t vocab_size)
        : first_id(int64_t{blockIdx.x} * kChunk + threadIdx.x) {
#pragma unroll
        for (int j = 0; j < kTokensPerThread; ++j) {
            of[j] = id(j) < vocab_size ? logits[id(j)] : -INFINITY;
        }
    }

    __device__ int64_t id(int j) const { return first_id + j * kSampleThreads; }
};

template <typename T, typename Combine>
__device__ T combine_block(T value, Combine combine) {
    __shared__ T of_warps[kSampleWarps];
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
        value = combine(value, __shfl_xor_sync(kAllLanes, value, distance));
    }
    if (threadIdx.x % kWarp == 0) {
        of_warps[threadIdx.x / kWarp] = value;
    }
    __syncthreads();
    value = of_warps[0];
#pragma unroll 1
    for (int warp = 1; warp < kSampleWarps; ++warp) {
        value = combine(value, of_warps[warp]);
    }
    __syncthreads();
    return value;
}

template <typename T>
__device__ T sum_block(T value) {
    return combine_block(value, [](T a, T b) { return a + b; });
}

__device__ inline Bounds bounds_of_block(const Bounds& mine) {
    return {
        .largest = combine_block(mine.largest, [](float a, float b) { return fmaxf(a, b); }),
        .smallest = combine_block(mine.smallest, [](float a, float b) { return fminf(a, b); }),
        .is_bad = combine_block(mine.is_bad, [](int32_t a, int32_t b) { return a | b; }),
    };
}

// The sum of the values of all threads up to and including this one.
__device__ inline Word running_sum(Word value) {
    __shared__ Word of_warps[kSampleWarps];
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
    for (int distance = 1; distance < kWarp; distance *= 2) {
        const Word before = __shfl_up_sync(kAllLanes, value, distance);
        value += lane >= distance ? before : 0;
    }
    if (lane == kWarp - 1) {
        of_warps[warp] = value;
    }
    __syncthreads();
    for (int i = 0; i < warp; ++i) {
        value += of_warps[i];
    }
    __syncthreads();
    return value;
}

}  // namespace soliton::cuda
