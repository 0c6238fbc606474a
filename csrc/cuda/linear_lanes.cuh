// The part of a step that a lane multiplies, from shared memory into registers. Owns where it lies
// there, per layout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common.cuh"
#include "layout.h"
#include "linear_shape.h"

namespace soliton::cuda {

// The part of a step that a lane multiplies, in registers.
template <Layout kLayout>
struct LaneWeights;

template <>
struct LaneWeights<Layout::kBf16> {
    uint4 octets[2][2];  // from columns 16t and 16t + 8 of the block on, rows g and g + 8

    __device__ __forceinline__ LaneWeights(const std::byte* step, int lane) {
        const int g = lane / 4;
        const int first = g * 128 + (2 * (lane % 4) ^ (g & 1)) * 16;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const std::byte* own = step + (first ^ 16 * half);
            octets[half][0] = *reinterpret_cast<const uint4*>(own);
            octets[half][1] = *reinterpret_cast<const uint4*>(own + 8 * 128);
        }
    }
};

// For two blocks: codes, and for rows g and g + 8 the scale.
template <>
struct LaneWeights<Layout::kQ8> {
    uint4 codes[2][2];
    float scales[2][2];

    __device__ __forceinline__ LaneWeights(const std::byte* step, int lane) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const std::byte* block = step + i * block_bytes(Layout::kQ8);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                codes[i][half] =
                    *reinterpret_cast<const uint4*>(block + (half * kWarp + lane) * 16);
                scales[i][half] = __half2float(reinterpret_cast<const __half*>(
                    block + kPanelRows * kBlockColumns)[lane / 4 + 8 * half]);
            }
        }
    }
};

// For four blocks: codes, and for rows g and g + 8 scale and minimum.
template <>
struct LaneWeights<Layout::kQ4> {
    static constexpr int kBlocks = step_blocks(Layout::kQ4);

    uint4 codes[kBlocks];
    __half2 scales[kBlocks][2];

    __device__ __forceinline__ LaneWeights(const std::byte* step, int lane) {
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) {
            const std::byte* block = step + i * block_bytes(Layout::kQ4);
            codes[i] = *reinterpret_cast<const uint4*>(block + lane * 16);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                scales[i][half] = reinterpret_cast<const __half2*>(
                    block + kPanelRows * kBlockColumns / 2)[lane / 4 + 8 * half];
            }
        }
    }
};

// For two blocks: codes, and for rows g and g + 8 the larger of the two scales, with what the
// lane's codes are multiplied by to share it: a power of two. Numbers that are 2^24 times smaller
// than those of the neighbouring group lose digits; the sum would lose them too.
template <>
struct LaneWeights<Layout::kMxfp4> {
    uint4 codes[2];
    float scales[2][2];
    __half factors[2][2];

    __device__ __forceinline__ LaneWeights(const std::byte* step, int lane) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const std::byte* block = step + i * block_bytes(Layout::kMxfp4);
            codes[i] = *reinterpret_cast<const uint4*>(block + lane * 16);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint32_t both = reinterpret_cast<const unsigned short*>(
                    block + kPanelRows * kBlockColumns / 2)[lane / 4 + 8 * half];
                const int own = static_cast<int>(both >> lane % 4 / 2 * 8 & 0xff);
                const int top = static_cast<int>(max(both & 0xff, both >> 8));
                scales[i][half] = __uint_as_float(static_cast<uint32_t>(top) << 23);
                factors[i][half] = __float2half_rn(
                    __uint_as_float(static_cast<uint32_t>(127 + max(own - top, -100)) << 23));
            }
        }
    }
};

}  // namespace soliton::cuda
