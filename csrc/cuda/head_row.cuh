// One row of a head, held by a warp: norm, rotation, and storing it as a key or value.
//
// Lane l holds elements 64 i + 2 l and 64 i + 2 l + 1, for every i.
#pragma once

#include "attention.h"
#include "common.cuh"

namespace soliton::cuda {

// Norm and rotation of the heads of one position.
struct Rotation {
    const float* cos;  // (half,)
    const float* sin;  // (half,)
    int half;
    float eps;
    int head_dim;
};

template <int kWidth>
inline constexpr int kRowElements = kWidth / kWarp;

__device__ __forceinline__ int element_of_row(int i, int lane) {
    return i / 2 * 64 + 2 * lane + i % 2;
}

__device__ __forceinline__ Rotation rotation_at(const AttentionArgs& args, int64_t position) {
    const int64_t at = position * args.rotary_half;
    return {args.cos + at, args.sin + at, static_cast<int>(args.rotary_half), args.eps,
            static_cast<int>(args.head_dim)};
}

// Loads zeros beyond head_dim.
template <int kWidth>
__device__ __forceinline__ void load_row(float (&row)[kRowElements<kWidth>], const float* x,
                                         int head_dim, int lane) {
#pragma unroll
    for (int i = 0; i < kRowElements<kWidth>; ++i) {
        const int d = element_of_row(i, lane);
        row[i] = d < head_dim ? x[d] : 0.0f;
    }
}

// The query or key from `x`, with the norm `norm` (head_dim,) unless that is null.
template <int kWidth>
__device__ __forceinline__ void rotated_row(float (&row)[kRowElements<kWidth>], const float* x,
                                            const float* norm, const Rotation& rotation, int lane) {
    load_row<kWidth>(row, x, rotation.head_dim, lane);
    float inverse = 1.0f;
    if (norm) {
        float squares = 0.0f;
#pragma unroll
        for (int i = 0; i < kRowElements<kWidth>; ++i) {
            squares += row[i] * row[i];
        }
        const float mean = sum_of_warp(squares) / static_cast<float>(rotation.head_dim);
        inverse = 1.0f / sqrtf(mean + rotation.eps);
    }
    const int half = rotation.half;
#pragma unroll
    for (int i = 0; i < kRowElements<kWidth>; ++i) {
        const int d = element_of_row(i, lane);
        if (d >= rotation.head_dim) {
            continue;
        }
        const bool first = d < half;
        const float own = row[i] * inverse * (norm ? norm[d] : 1.0f);
        row[i] = own;
        if (d < 2 * half) {
            const int other = first ? d + half : d - half;
            const int angle = first ? d : other;
            const float partner = x[other] * inverse * (norm ? norm[other] : 1.0f);
            row[i] = own * rotation.cos[angle] + (first ? -partner : partner) * rotation.sin[angle];
        }
    }
}

__device__ __forceinline__ uint32_t bf16_bits(float value) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

// A row as a cache stores it: pairs of neighbouring elements, and for kInt8 the scale.
template <int kWidth>
struct StoredRow {
    uint32_t pairs[kRowElements<kWidth> / 2];
    float scale;
};

template <KvType kKv>
inline constexpr int kElementBytes = kKv == KvType::kBf16 ? 2 : 1;

// Codes are stored as code + 128. The scale is the largest element / 127, or NaN if an element is
// NaN.
template <KvType kKv, int kWidth>
__device__ __forceinline__ StoredRow<kWidth> stored_row(const float (&row)[kRowElements<kWidth>]) {
    constexpr int kElements = kRowElements<kWidth>;
    StoredRow<kWidth> stored = {};
    if constexpr (kKv == KvType::kBf16) {
#pragma unroll
        for (int i = 0; i < kElements; i += 2) {
            stored.pairs[i / 2] = bf16_bits(row[i]) | bf16_bits(row[i + 1]) << 16;
        }
    } else {
        float largest = 0.0f;
        bool bad = false;
#pragma unroll
        for (int i = 0; i < kElements; ++i) {
            largest = fmaxf(largest, fabsf(row[i]));
            bad |= row[i] != row[i];
        }
        largest = max_of_warp(largest);
        stored.scale = __any_sync(kAllLanes, bad) ? nanf("") : largest / 127.0f;
        const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
#pragma unroll
        for (int i = 0; i < kElements; ++i) {
            const float code = fminf(fmaxf(rintf(row[i] * inverse), -127.0f), 127.0f);
            const auto byte = static_cast<uint32_t>(static_cast<int>(code) + 128);
            stored.pairs[i / 2] |= byte << i % 2 * 8;
        }
    }
    return stored;
}

// Writes the first n_elements of a row; n_elements must be even.
template <KvType kKv, int kWidth>
__device__ __forceinline__ void write_row(uint8_t* to, const StoredRow<kWidth>& stored,
                                          int n_elements, int lane) {
#pragma unroll
    for (int i = 0; i < kRowElements<kWidth>; i += 2) {
        const int d = element_of_row(i, lane);
        if (d >= n_elements) {
            continue;
        }
        if constexpr (kKv == KvType::kBf16) {
            reinterpret_cast<uint32_t*>(to)[d / 2] = stored.pairs[i / 2];
        } else {
            reinterpret_cast<uint16_t*>(to)[d / 2] = static_cast<uint16_t>(stored.pairs[i / 2]);
        }
    }
}

}  // namespace soliton::cuda
