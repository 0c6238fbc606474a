// Prepares the rows of x in shared memory: multiplies by the norm's weight, and splits into two
// 16-bit parts for the tensor cores. Owns the layout of x in shared memory. Each block does this
// for itself, section by section. A row's numbers depend on this row alone.
//
// `high` is the 16-bit number nearest to the value, and `low` the nearest to the remainder. A group
// of 64 columns that is multiplied by codes is first scaled by a power of two, so that neither
// float16 part overflows or underflows; bfloat16 needs no scaling.
//
// A half of a block of 64 columns holds, for each row, 8 columns for each t = lane % 4, from column
// 16t + 8 half of the block on: first the high parts, 16 bytes for each t, then the low parts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common.cuh"
#include "linear_params.h"

namespace soliton::cuda {

inline constexpr int kPartBytes = 4 * 16;  // the high or the low parts of one row of a half block
inline constexpr int kHalfBytes = 2 * kPartBytes;

// For one row of a group of 64 columns: their sum, and the factor that undoes the scaling in a
// product.
struct alignas(8) Group {
    float sum;
    float unscale;
};

struct Octet {
    float values[kOctet];
};

// x[first .. first + 7] of a row of n values; zeros beyond its end.
__device__ __forceinline__ Octet load_octet(const float* row, int first, int n) {
    Octet octet = {};
    if (n % 4 == 0) {  // then all rows are aligned
#pragma unroll
        for (int i = 0; i < kOctet; i += 4) {
            if (first + i < n) {
                const float4 four = *reinterpret_cast<const float4*>(row + first + i);
                octet.values[i] = four.x;
                octet.values[i + 1] = four.y;
                octet.values[i + 2] = four.z;
                octet.values[i + 3] = four.w;
            }
        }
        return octet;
    }
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
        if (first + i < n) {
            octet.values[i] = row[first + i];
        }
    }
    return octet;
}

struct SplitOctet {
    uint32_t high[kOctet / 2];
    uint32_t low[kOctet / 2];
};

__device__ __forceinline__ uint32_t pair_bits(__nv_bfloat16 first, __nv_bfloat16 second) {
    return __bfloat16_as_ushort(first) | uint32_t{__bfloat16_as_ushort(second)} << 16;
}

__device__ __forceinline__ uint32_t pair_bits(__half first, __half second) {
    return __half_as_ushort(first) | uint32_t{__half_as_ushort(second)} << 16;
}

// kBf16 uses bfloat16, the others float16. For nibbles the pairs of columns follow the order of the
// codes.
template <Layout kLayout>
__device__ __forceinline__ SplitOctet split(const Octet& octet) {
    SplitOctet result;
#pragma unroll
    for (int i = 0; i < kOctet / 2; ++i) {
        const int first = has_nibbles(kLayout) ? i / 2 * 4 + i % 2 : 2 * i;
        const float a = octet.values[first];
        const float b = octet.values[first + (has_nibbles(kLayout) ? 2 : 1)];
        if constexpr (kLayout == Layout::kBf16) {
            const __nv_bfloat16 high_a = __float2bfloat16_rn(a);
            const __nv_bfloat16 high_b = __float2bfloat16_rn(b);
            result.high[i] = pair_bits(high_a, high_b);
            result.low[i] = pair_bits(__float2bfloat16_rn(a - __bfloat162float(high_a)),
                                      __float2bfloat16_rn(b - __bfloat162float(high_b)));
        } else {
            const __half high_a = __float2half_rn(a);
            const __half high_b = __float2half_rn(b);
            result.high[i] = pair_bits(high_a, high_b);
            result.low[i] = pair_bits(__float2half_rn(a - __half2float(high_a)),
                                      __float2half_rn(b - __half2float(high_b)));
        }
    }
    return result;
}

// Scales the octets of the eight lanes of a group by a power of two, so that the largest number is
// at least 2^14; a group of tiny numbers stays smaller.
__device__ __forceinline__ Group scale_group(Octet& octet) {
    float largest = 0;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
        largest = fmaxf(largest, fabsf(octet.values[i]));
        sum += octet.values[i];
    }
#pragma unroll
    for (int distance = 1; distance < kBlockColumns / kOctet; distance *= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, distance));
        sum += __shfl_xor_sync(kAllLanes, sum, distance);
    }
    constexpr int kBias = 127;
    const int exponent = max(static_cast<int>(__float_as_uint(largest) >> 23) - kBias, -112);
    const float scale = __uint_as_float(static_cast<uint32_t>(kBias + 14 - exponent) << 23);
#pragma unroll
    for (int i = 0; i < kOctet; ++i) {
        octet.values[i] *= scale;
    }
    return {sum, __uint_as_float(static_cast<uint32_t>(kBias - 14 + exponent) << 23)};
}

// One row of a section; each thread has an octet of it.
struct Item {
    int section;
    int row;
};

__device__ __forceinline__ Item after(Item item, int n_rows) {
    return item.row + 1 < n_rows ? Item{item.section, item.row + 1} : Item{item.section + 1, 0};
}

// What a thread reads for an item.
struct Sources {
    Octet x;
    Octet norm;

    __device__ __forceinline__ void load_norm(const LinearParams& params, Item item) {
        if (params.norm != nullptr) {
            norm = load_octet(params.norm, column(item), params.n_in);
        }
    }
    template <typename Params>
    __device__ __forceinline__ void load_x(const Params& params, Item item) {
        x = load_octet(params.x + params.x_row(item.row) * params.n_in, column(item), params.n_in);
    }

  private:
    __device__ __forceinline__ static int column(Item item) {
        return item.section * kSectionColumns + static_cast<int>(threadIdx.x) * kOctet;
    }
};

// Prepares an item of the pass that begins with section `begin`. All threads of the block must call
// it.
template <Layout kLayout>
__device__ __forceinline__ void prepare(const LinearParams& params, int begin, Item item,
                                        const Sources& sources, std::byte* shared) {
    const int octet = static_cast<int>(threadIdx.x);
    const int n_rows = params.n_rows;
    Octet x = sources.x;
    if (params.norm != nullptr) {
        float square = 0;
#pragma unroll
        for (int j = 0; j < kOctet; ++j) {
            square = fmaf(x.values[j], x.values[j], square);
            x.values[j] *= sources.norm.values[j];
        }
        square = sum_of_warp(square);
        if (octet % kWarp == 0) {
            float& total = reinterpret_cast<float*>(
                shared + params.shared.squares)[item.row * kLinearWarps + octet / kWarp];
            total = item.section == 0 ? square : total + square;
        }
    }
    const int block = (item.section - begin) * kSectionBlocks + octet / 8;
    if constexpr (kLayout != Layout::kBf16) {
        const Group group = scale_group(x);
        if (octet % 8 == 0) {
            reinterpret_cast<Group*>(shared + params.shared.groups)[block * n_rows + item.row] =
                group;
        }
    }
    const SplitOctet parts = split<kLayout>(x);
    std::byte* to = shared + params.shared.x +
                    ((2 * block + octet % 2) * n_rows + item.row) * kHalfBytes + octet % 8 / 2 * 16;
    *reinterpret_cast<uint4*>(to) = {parts.high[0], parts.high[1], parts.high[2], parts.high[3]};
    *reinterpret_cast<uint4*>(to + kPartBytes) = {parts.low[0], parts.low[1], parts.low[2],
                                                  parts.low[3]};
}

// Items that are read at a time, so that their loads overlap.
template <int kItems>
class Batch {
  public:
    // Takes the items from `first` on, up to section `end`, and loads their weights of the norm:
    // these may be read before the previous launch has ended.
    __device__ __forceinline__ void begin(const LinearParams& params, Item first, int end) {
        next_ = first;
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
            items_[i] = next_;
            next_ = after(next_, params.n_rows);
            if (items_[i].section < end) {
                sources_[i].load_norm(params, items_[i]);
            }
        }
    }

    // Prepares the items, and all others up to section `end`, and adds their squares to the sums of
    // the sections before. `begin_section` is the first one of the pass. All threads of the block
    // must call it.
    template <Layout kLayout, typename Params>
    __device__ __forceinline__ void prepare_all(const Params& params, int begin_section, int end,
                                                std::byte* shared) {
        for (;;) {
#pragma unroll
            for (int i = 0; i < kItems; ++i) {
                if (items_[i].section < end) {
                    sources_[i].load_x(params, items_[i]);
                }
            }
#pragma unroll
            for (int i = 0; i < kItems; ++i) {
                if (items_[i].section < end) {
                    prepare<kLayout>(params, begin_section, items_[i], sources_[i], shared);
                }
            }
            if (next_.section >= end) {
                return;
            }
            begin(params, next_, end);
        }
    }

  private:
    Item items_[kItems];
    Item next_;
    Sources sources_[kItems];
};

// Computes 1 / sqrt(mean of the squares + eps) of each row. Needs a barrier before, with all
// sections prepared, and another one before the results are read.
__device__ __forceinline__ void invert_norms(const LinearParams& params, std::byte* shared) {
    const int row = static_cast<int>(threadIdx.x);
    if (row >= params.n_rows) {
        return;
    }
    float inverse = 1;
    if (params.norm != nullptr) {
        const float* squares =
            reinterpret_cast<const float*>(shared + params.shared.squares) + row * kLinearWarps;
        float sum = 0;
#pragma unroll
        for (int warp = 0; warp < kLinearWarps; ++warp) {
            sum += squares[warp];
        }
        inverse = 1.0f / sqrtf(sum / static_cast<float>(params.n_in) + params.eps);
    }
    reinterpret_cast<float*>(shared + params.shared.inverses)[row] = inverse;
}

}  // namespace soliton::cuda
