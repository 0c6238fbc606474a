// Multiplies a lane's weights by rows of x on the tensor cores (mma m16n8k16: 16 rows of W, 8
// columns for 4 rows of x), and keeps the lane's sums. Owns how codes are dequantised, and which
// fragment of x a lane loads from shared memory. Knows no memory of the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common.cuh"
#include "layout.h"
#include "linear_activations.cuh"
#include "linear_lanes.cuh"
#include "linear_shape.h"

namespace soliton::cuda {

// Rows of x in one tile of the tensor cores: a column of it for the high parts, one for the low.
inline constexpr int kTileRows = 4;

// Where a lane finds its column of each tile in a half block of x. Columns beyond the last row
// repeat that row, and their results are ignored.
template <int kTiles>
struct LaneColumns {
    int offsets[kTiles];  // bytes
    int groups[kTiles];   // of the row whose sums this lane holds

    __device__ __forceinline__ LaneColumns(int lane, int n_rows) {
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
            const int row = min(tile * kTileRows + lane / 8, n_rows - 1);
            offsets[tile] = row * kHalfBytes + lane / 4 % 2 * kPartBytes + lane % 4 * 16;
            groups[tile] = min(tile * kTileRows + lane % 4, n_rows - 1);
        }
    }
};

// Two products of 16 columns: `first` and `second` are 8 columns of rows g and g + 8.
template <Layout kLayout>
__device__ __forceinline__ void multiply_octet(float (&d)[4], const uint4& first,
                                               const uint4& second, const uint4& x) {
    const uint32_t a[2][4] = {{first.x, second.x, first.y, second.y},
                              {first.z, second.z, first.w, second.w}};
    const uint32_t b[2][2] = {{x.x, x.y}, {x.z, x.w}};
    if constexpr (kLayout == Layout::kBf16) {
        multiply_bf16(d, a[0], b[0]);
        multiply_bf16(d, a[1], b[1]);
    } else {
        multiply_f16(d, a[0], b[0]);
        multiply_f16(d, a[1], b[1]);
    }
}

__device__ __forceinline__ uint32_t bits_of(__half2 pair) {
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

__device__ __forceinline__ __half2 half2_of(uint32_t bits) {
    __half2 pair;
    memcpy(&pair, &bits, sizeof pair);
    return pair;
}

// Dequantising without a conversion: as a float16, 0x6400 + n is 1024 + n, for a byte or nibble n.
inline constexpr uint32_t kMagic = 0x64006400;

// Eight codes of kQ8, from two words: prmt puts two bytes into the halves of the magic number.
__device__ __forceinline__ uint4 codes_of_bytes(uint32_t low, uint32_t high) {
    const __half2 offset = __float2half2_rn(1024 + 128);
    const auto pair = [&](uint32_t word, uint32_t selector) {
        return bits_of(__hsub2(half2_of(select_bytes(word, kMagic, selector)), offset));
    };
    return {pair(low, 0x7150), pair(low, 0x7352), pair(high, 0x7150), pair(high, 0x7352)};
}

// Eight codes of kQ4, from two words: the low nibbles of their bytes, or the high ones; one lop3
// for each pair.
template <int kHalf>
__device__ __forceinline__ uint4 codes_of_nibbles(uint32_t low, uint32_t high) {
    const auto pair = [](uint32_t word) {
        if constexpr (kHalf == 0) {
            return bits_of(
                __hsub2(half2_of(and_or<0x000f000f, kMagic>(word)), __float2half2_rn(1024)));
        } else {
            return bits_of(__hfma2(half2_of(and_or<0x00f000f0, kMagic>(word)),
                                   __float2half2_rn(1.0f / 16), __float2half2_rn(-1024.0f / 16)));
        }
    };
    return {pair(low), pair(low >> 8), pair(high), pair(high >> 8)};
}

// Eight codes of kMxfp4 times a power of two, from two words: sign, exponent and fraction of a
// nibble move to where a float16 has them, which makes it 2^14 times too small; exact.
template <int kHalf>
__device__ __forceinline__ uint4 codes_of_fp4(uint32_t low, uint32_t high, __half factor) {
    const __half2 raise = __half2half2(__hmul(factor, __float2half_rn(0x1p14f)));
    const auto pair = [&](uint32_t word) {
        const uint32_t size = kHalf == 0 ? (word & 0x00070007) << 9 : (word & 0x00700070) << 5;
        const uint32_t sign = kHalf == 0 ? (word & 0x00080008) << 12 : (word & 0x00800080) << 8;
        return bits_of(__hmul2(half2_of(size | sign), raise));
    };
    return {pair(low), pair(low >> 8), pair(high), pair(high >> 8)};
}

// A lane's sums of one section: for each tile, rows g and g + 8 of the panel times one row of x.
template <Layout kLayout, int kTiles>
class SectionSums;

template <int kTiles>
class SectionSums<Layout::kBf16, kTiles> {
  public:
    // `x` is the block's first half; the next half is `half_bytes` further.
    __device__ __forceinline__ void add(const LaneWeights<Layout::kBf16>& weights,
                                        const std::byte* x, int half_bytes, const Group*, int,
                                        const LaneColumns<kTiles>& columns) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int tile = 0; tile < kTiles; ++tile) {
                const uint4 column =
                    *reinterpret_cast<const uint4*>(x + half * half_bytes + columns.offsets[tile]);
                multiply_octet<Layout::kBf16>(d_[tile], weights.octets[half][0],
                                              weights.octets[half][1], column);
            }
        }
    }

    __device__ __forceinline__ float sum(int tile, int i) const {
        return d_[tile][2 * i] + d_[tile][2 * i + 1];
    }

  private:
    float d_[kTiles][4] = {};
};

// For codes: a group's products are exact, and its scale and minimum are applied to their sum.
template <Layout kLayout, int kTiles>
class SectionSums {
  public:
    __device__ __forceinline__ void add(const LaneWeights<kLayout>& weights, const std::byte* x,
                                        int half_bytes, const Group* groups, int n_rows,
                                        const LaneColumns<kTiles>& columns) {
#pragma unroll
        for (int i = 0; i < step_blocks(kLayout); ++i) {
            float d[kTiles][4] = {};
            add_half<0>(d, weights, i, x + 2 * i * half_bytes, columns);
            add_half<1>(d, weights, i, x + (2 * i + 1) * half_bytes, columns);
#pragma unroll
            for (int tile = 0; tile < kTiles; ++tile) {
                const Group group = groups[i * n_rows + columns.groups[tile]];
#pragma unroll
                for (int row = 0; row < 2; ++row) {
                    const float products = d[tile][2 * row] + d[tile][2 * row + 1];
                    float& total = totals_[tile][row];
                    if constexpr (kLayout == Layout::kQ4) {
                        const float2 scale = __half22float2(weights.scales[i][row]);
                        total = fmaf(scale.x * group.unscale, products, total);
                        total = fmaf(scale.y, group.sum, total);
                    } else {
                        total = fmaf(weights.scales[i][row] * group.unscale, products, total);
                    }
                }
            }
        }
    }

    __device__ __forceinline__ float sum(int tile, int i) const { return totals_[tile][i]; }

  private:
    template <int kHalf>
    __device__ __forceinline__ static void add_half(float (&d)[kTiles][4],
                                                    const LaneWeights<kLayout>& weights, int i,
                                                    const std::byte* x,
                                                    const LaneColumns<kTiles>& columns) {
        uint4 first;
        uint4 second;
        if constexpr (kLayout == Layout::kQ4) {
            first = codes_of_nibbles<kHalf>(weights.codes[i].x, weights.codes[i].y);
            second = codes_of_nibbles<kHalf>(weights.codes[i].z, weights.codes[i].w);
        } else if constexpr (kLayout == Layout::kMxfp4) {
            first =
                codes_of_fp4<kHalf>(weights.codes[i].x, weights.codes[i].y, weights.factors[i][0]);
            second =
                codes_of_fp4<kHalf>(weights.codes[i].z, weights.codes[i].w, weights.factors[i][1]);
        } else {
            first = codes_of_bytes(weights.codes[i][kHalf].x, weights.codes[i][kHalf].y);
            second = codes_of_bytes(weights.codes[i][kHalf].z, weights.codes[i][kHalf].w);
        }
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
            const uint4 column = *reinterpret_cast<const uint4*>(x + columns.offsets[tile]);
            multiply_octet<kLayout>(d[tile], first, second, column);
        }
    }

    float totals_[kTiles][2] = {};
};

}  // namespace soliton::cuda
