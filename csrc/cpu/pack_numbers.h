// The numbers that packing works on: one for each row of a panel, as floats, and their conversions
// from and to the stored types. Knows no layout.
//
// Everything is in an unnamed namespace: no copy is shared between instruction sets.
#pragma once

#include "kernels.h"

namespace soliton::SOLITON_ISA {
namespace {

constexpr float kLargestFloat16 = 65504.0f;
constexpr uint16_t kLargestHalf = 0x7bff;  // its bits

// Blocks of a super-block, whose scales have factors in common.
constexpr int64_t kSuperBlocks = 8;

// One number for each row of a panel. Loops over them become vector code.
struct alignas(64) Lanes {
    float at[kPanelRows];
};

// One block of a panel, column by column.
struct Block {
    Lanes columns[kBlockColumns];
    float importance[kBlockColumns];  // of an error in a column
};

float from_bits(uint32_t bits) {
    return __builtin_bit_cast(float, bits);
}

float to_float(float value) {
    return value;
}

// The stored 16-bit types, as two types for overloading.
struct Float16 {
    uint16_t bits;
};
struct Bfloat16 {
    uint16_t bits;
};

float to_float(Float16 half) {
    // Moves exponent and fraction into place. The product corrects the exponent's bias, also for
    // subnormal numbers. The largest exponent means infinity or NaN; both become NaN.
    const uint32_t magnitude = static_cast<uint32_t>(half.bits & 0x7fff) << 13;
    const float value = from_bits(magnitude) * 0x1p112f;
    const float finite_or_nan = magnitude >= 0x7c00u << 13 ? __builtin_nanf("") : value;
    return half.bits & 0x8000 ? -finite_or_nan : finite_or_nan;
}

float to_float(Bfloat16 half) {
    return from_bits(static_cast<uint32_t>(half.bits) << 16);
}

// The nearest float16, ties to even; larger values become the largest finite float16. Computes both
// kinds of numbers and has no branches, so that loops become vector code.
uint16_t to_float16(float value) {
    const uint32_t sign = __builtin_bit_cast(uint32_t, value) >> 16 & 0x8000;
    const float size = __builtin_fabsf(value);
    const float magnitude = size < kLargestFloat16 ? size : kLargestFloat16;
    const uint32_t bits = __builtin_bit_cast(uint32_t, magnitude);
    // Subnormal: adding 1/2 rounds it, because the last place of 1/2 is that of the result.
    const uint32_t subnormal = __builtin_bit_cast(uint32_t, magnitude + 0.5f) - 0x3f000000;
    const uint32_t normal = (bits - (112u << 23) + 0xfff + (bits >> 13 & 1)) >> 13;
    return static_cast<uint16_t>(sign | (magnitude < 0x1p-14f ? subnormal : normal));
}

uint16_t to_bfloat16(float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Added to a float and taken away again, this rounds it to an integer, ties to even.
constexpr float kRounder = 0x1.8p23f;

// The bits of kRounder + the integer next to a value, but at least kLow and at most kHigh. The bits
// of such sums are in their order, and integers have a minimum in one instruction.
template <int kLow, int kHigh>
int32_t rounded_bits(float value) {
    constexpr int32_t kZero = __builtin_bit_cast(int32_t, kRounder);
    const int32_t bits = __builtin_bit_cast(int32_t, value + kRounder);
    const int32_t above = bits > kZero + kLow ? bits : kZero + kLow;
    return above < kZero + kHigh ? above : kZero + kHigh;
}

// That integer itself, as a float.
template <int kLow, int kHigh>
float rounded(float value) {
    return __builtin_bit_cast(float, rounded_bits<kLow, kHigh>(value)) - kRounder;
}

// Scales or minima as they are stored. to_float16 sets `wide` to the stored values.
struct Halves {
    uint16_t at[kPanelRows];
};

Halves to_float16(Lanes& wide) {
    Halves halves;
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        halves.at[row] = to_float16(wide.at[row]);
        wide.at[row] = to_float(Float16{halves.at[row]});
    }
    return halves;
}

// Factors become the next float16 that is not smaller: the largest number times a smaller one would
// not reach what it must. Those of small weights are subnormal, where float16 is coarse.
void round_up_to_float16(Lanes& wide) {
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        const uint16_t nearest = to_float16(wide.at[row]);
        const bool is_less = to_float(Float16{nearest}) < wide.at[row] && nearest < kLargestHalf;
        wide.at[row] = to_float(Float16{static_cast<uint16_t>(nearest + (is_less ? 1 : 0))});
    }
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
