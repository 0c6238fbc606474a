// Loads keys and values of one step, 16 positions, from shared memory into operands of tensor
// cores. Owns the layout of rows there, per format. Knows no softmax.
//
// Both are the A operand: keys as (positions, elements), values as (elements, positions). The order
// of elements is free, as long as the other operand, or the code that reads the result, uses the
// same one. It is chosen so that lanes read whole words from different banks.
#pragma once

#include "attention.h"
#include "common.cuh"
#include "head_row.cuh"

namespace soliton::cuda {

// load_keys gives the operands of two products, for elements 32i to 32i + 31 of the keys. The other
// operand is the 16 bytes at query_chunk(i) of a column.
//
// load_values gives the operands of four products, for elements 64i to 64i + 63 of the values, in
// bands of 16.
template <KvType kKv, int kWidth>
struct KvRows;

template <int kWidth>
struct KvRows<KvType::kBf16, kWidth> {
    // Padding instead of a swizzle: the 8 rows that ldmatrix reads begin 4 banks apart.
    static constexpr int kStride = 2 * kWidth + 16;
    static constexpr int kQueryStride = 2 * kWidth + 16;

    static __device__ __forceinline__ int query_chunk(int i, int lane) {
        return i / 2 * 8 + lane % 4 * 2 + i % 2;
    }

    static __device__ __forceinline__ void load_keys(uint32_t (&a)[2][4], const uint8_t* rows,
                                                     int i, int lane) {
        const uint8_t* from = rows + lane / 4 * kStride + query_chunk(i, lane) * 16;
        const uint4 low = *reinterpret_cast<const uint4*>(from);
        const uint4 high = *reinterpret_cast<const uint4*>(from + 8 * kStride);
        a[0][0] = low.x, a[0][1] = high.x, a[0][2] = low.y, a[0][3] = high.y;
        a[1][0] = low.z, a[1][1] = high.z, a[1][2] = low.w, a[1][3] = high.w;
    }

    static __device__ __forceinline__ void load_values(uint32_t (&a)[4][4], const uint8_t* rows,
                                                       int i, int lane) {
        // Tiles 0 and 1 are the first 8 positions, each of 8 elements.
        const uint8_t* row = rows + (lane % 8 + lane / 16 * 8) * kStride + lane / 8 % 2 * 16;
#pragma unroll
        for (int band = 0; band < 4; ++band) {
            load_transposed(a[band], row + i * 128 + band * 32);
        }
    }

    // The element in row `lane / 4` of a band's result. That of the row 8 below is kNextElement
    // further.
    static __device__ __forceinline__ int element(int band, int lane) {
        return band * 16 + lane / 4;
    }
    static constexpr int kNextElement = 8;

    static __device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4],
                                                    const uint32_t (&b)[2]) {
        multiply_bf16(d, a, b);
    }

    // A number as two 16-bit numbers, with the high part in the lower half.
    static __device__ __forceinline__ uint32_t split(float value) {
        const uint32_t high = bf16_bits(value);
        return high | bf16_bits(value - __uint_as_float(high << 16)) << 16;
    }
};

template <int kWidth>
struct KvRows<KvType::kInt8, kWidth> {
    // Padding instead of a swizzle: 4 rows begin 8 banks apart.
    static constexpr int kStride = kWidth + 32;
    static constexpr int kQueryStride = 2 * kWidth + 64;

    static __device__ __forceinline__ int query_chunk(int i, int lane) { return i * 4 + lane % 4; }

    static __device__ __forceinline__ void load_keys(uint32_t (&a)[2][4], const uint8_t* rows,
                                                     int i, int lane) {
        const uint8_t* from = rows + lane / 4 * kStride + query_chunk(i, lane) * 8;
        const uint2 low = *reinterpret_cast<const uint2*>(from);
        const uint2 high = *reinterpret_cast<const uint2*>(from + 8 * kStride);
        a[0][0] = pair<0, 1>(low.x), a[0][1] = pair<0, 1>(high.x);
        a[0][2] = pair<2, 3>(low.x), a[0][3] = pair<2, 3>(high.x);
        a[1][0] = pair<0, 1>(low.y), a[1][1] = pair<0, 1>(high.y);
        a[1][2] = pair<2, 3>(low.y), a[1][3] = pair<2, 3>(high.y);
    }

    static __device__ __forceinline__ void load_values(uint32_t (&a)[4][4], const uint8_t* rows,
                                                       int i, int lane) {
        // Half of the lanes read the later position first, so that all lanes read from different
        // banks.
        const int t = lane % 4;
        const uint8_t* from = rows + 2 * t * kStride + i * 64 + lane / 4 * 8;
        const int first = t / 2 * kStride;
        const uint32_t low = t < 2 ? 0x5410 : 0x1054;
        const uint32_t high = t < 2 ? 0x7632 : 0x3276;
#pragma unroll
        for (int half = 0; half < 2; ++half) {  // positions 2t and 2t + 1, then those + 8
            const uint8_t* both = from + half * 8 * kStride;
            const uint2 one = *reinterpret_cast<const uint2*>(both + first);
            const uint2 other = *reinterpret_cast<const uint2*>(both + kStride - first);
            const uint32_t elements[4] = {
                select_bytes(one.x, other.x, low), select_bytes(one.x, other.x, high),
                select_bytes(one.y, other.y, low), select_bytes(one.y, other.y, high)};
#pragma unroll
            for (int band = 0; band < 4; ++band) {
                a[band][2 * half] = pair<0, 2>(elements[band]);
                a[band][2 * half + 1] = pair<1, 3>(elements[band]);
            }
        }
    }

    static __device__ __forceinline__ int element(int band, int lane) {
        return band / 4 * 64 + lane / 4 * 8 + band % 4 * 2;
    }
    static constexpr int kNextElement = 1;

    static __device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4],
                                                    const uint32_t (&b)[2]) {
        multiply_f16(d, a, b);
    }

    static __device__ __forceinline__ uint32_t split(float value) {
        const __half high = __float2half_rn(value);
        const __half low = __float2half_rn(value - __half2float(high));
        return __half_as_ushort(high) | static_cast<uint32_t>(__half_as_ushort(low)) << 16;
    }

  private:
    // Two of the four codes of a word as float16, exactly: builds the bits of 1024 + byte, then
    // subtracts 1152.
    template <int kFirst, int kSecond>
    static __device__ __forceinline__ uint32_t pair(uint32_t word) {
        constexpr uint32_t kSelector = 0x4040 | kSecond << 8 | kFirst;
        const uint32_t raised = select_bytes(word, 0x64646464, kSelector);
        const __half2 codes = __hsub2(reinterpret_cast<const __half2&>(raised),
                                      __half2(__ushort_as_half(0x6480), __ushort_as_half(0x6480)));
        return reinterpret_cast<const uint32_t&>(codes);
    }
};

}  // namespace soliton::cuda
