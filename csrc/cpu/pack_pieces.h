// Blocks of weights become the pieces of a panel, as layout.h describes them. Owns the bytes.
//
// Everything is in an unnamed namespace: no copy is shared between instruction sets.
#pragma once

#include "pack_codes.h"
#include "pack_line.h"
#include "pack_numbers.h"
#include "pack_scales.h"
#include "pack_signed.h"
#include "pack_super.h"

namespace soliton::SOLITON_ISA {
namespace {

void write_f32(const Block& block, uint8_t* out) {
    __builtin_memcpy(out, block.columns, sizeof block.columns);
}

void write_bf16(const Block& block, uint8_t* out) {
    uint32_t pairs[kBlockColumns / 2][kPanelRows];
    for (int64_t pair = 0; pair < kBlockColumns / 2; ++pair) {
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const uint32_t first = to_bfloat16(block.columns[2 * pair].at[row]);
            const uint32_t second = to_bfloat16(block.columns[2 * pair + 1].at[row]);
            pairs[pair][row] = first | second << 16;
        }
    }
    __builtin_memcpy(out, pairs, sizeof pairs);
}

// The divisors of the weights: infinity for scale 0, so that all codes are zero.
Lanes divisors(const Lanes& scale) {
    Lanes result;
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        result.at[row] = scale.at[row] > 0.0f ? scale.at[row] : __builtin_inff();
    }
    return result;
}

void write_q8(const Block& block, uint8_t* out) {
    constexpr int32_t kFirst = __builtin_bit_cast(int32_t, kRounder) - 128;
    Lanes scale = {};
    for (const Lanes& column : block.columns) {
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float magnitude = __builtin_fabsf(column.at[row]);
            scale.at[row] = magnitude > scale.at[row] ? magnitude : scale.at[row];
        }
    }
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        scale.at[row] /= 127.0f;
    }
    const Halves scales = to_float16(scale);
    const Lanes divisor = divisors(scale);
    uint32_t groups[kBlockColumns / 4][kPanelRows] = {};
    for (int64_t k = 0; k < kBlockColumns; ++k) {
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float value = block.columns[k].at[row] / divisor.at[row];
            const int32_t code = rounded_bits<-127, 127>(value) - kFirst;
            groups[k / 4][row] |= static_cast<uint32_t>(code) << k % 4 * 8;
        }
    }
    __builtin_memcpy(out, groups, sizeof groups);
    __builtin_memcpy(out + sizeof groups, scales.at, sizeof scales.at);
}

// The codes that a line gives the weights of a block.
template <Layout kLayout>
void write_codes_on(const Line& line, const Block& block, uint8_t* out) {
    const Lanes per_step = inverse(line.scale);
    uint32_t groups[kGroups][kPanelRows] = {};
    for (int64_t k = 0; k < kBlockColumns; ++k) {
        const int shift = static_cast<int>(k % 4 * 8);
        const Lanes& column = block.columns[k];
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float above = column.at[row] - line.minimum.at[row];
            const float code = nearest_code<kLayout>(above * per_step.at[row]);
            groups[k / 4][row] |= static_cast<uint32_t>(static_cast<int32_t>(code)) << shift;
        }
    }
    write_codes<kLayout>(groups, out);
}

// kQ6, kQ5 or kQ4.
template <Layout kLayout>
void write_line(const Block& block, uint8_t* out) {
    Line line = best_line<kLayout>(block);
    const Halves scales = to_float16(line.scale);
    const Halves minima = to_float16(line.minimum);
    write_codes_on<kLayout>(line, block, out);
    out += scales_at(kLayout);
    __builtin_memcpy(out, scales.at, sizeof scales.at);
    __builtin_memcpy(out + sizeof scales.at, minima.at, sizeof minima.at);
}

// kQ5_K or kQ4_K.
template <Layout kLayout>
void write_super_block(const Block (&blocks)[kSuperBlocks], uint8_t* out) {
    Line lines[kSuperBlocks];
    for (int64_t k = 0; k < kSuperBlocks; ++k) {
        lines[k] = best_line<kLayout>(blocks[k]);
    }
    Factors factors = factors_for(lines);
    PanelScales scales = {};
    for (int64_t k = 0; k < kSuperBlocks; ++k) {
        const Numbers numbers = best_numbers<kLayout>(blocks[k], lines[k], factors);
        for (int64_t row = 0; row < kPanelRows; ++row) {
            scales[row].numbers[2 * k] = static_cast<uint8_t>(numbers.scale.at[row]);
            scales[row].numbers[2 * k + 1] = static_cast<uint8_t>(numbers.minimum.at[row]);
        }
        write_codes_on<kLayout>(line_of(factors, numbers), blocks[k], out + codes_at(kLayout, k));
    }
    const Halves scale_factors = to_float16(factors.scale);
    const Halves minimum_factors = to_float16(factors.minimum);
    for (int64_t row = 0; row < kPanelRows; ++row) {
        scales[row].factor = scale_factors.at[row];
        scales[row].minimum = negative(minimum_factors.at[row]);
    }
    write_scales<kLayout>(scales, out + scales_at(kLayout));
}

// Of half a block.
void add_signed_codes(const HalfBlock& half, const Lanes& scale, Group* groups) {
    const Lanes per_step = signed_inverse(scale);
    for (int64_t k = 0; k < kHalfColumns; ++k) {
        const int shift = static_cast<int>(k % 4 * 8);
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float value = nearest_signed(half.columns[k].at[row] * per_step.at[row]);
            const int32_t code = static_cast<int32_t>(value) - kLowestSigned;
            groups[k / 4][row] |= static_cast<uint32_t>(code) << shift;
        }
    }
}

void write_q6_k(const Block (&blocks)[kSuperBlocks], uint8_t* out) {
    HalfBlock halves[kHalves];
    Lanes wanted[kHalves];
    for (int64_t i = 0; i < kHalves; ++i) {
        const Block& block = blocks[i / 2];
        const int64_t begin = i % 2 * kHalfColumns;
        halves[i] = {block.columns + begin, block.importance + begin};
        wanted[i] = best_scale(halves[i]);
    }
    Lanes factor = factor_for(wanted);
    PanelScales scales = {};
    for (int64_t k = 0; k < kSuperBlocks; ++k) {
        uint32_t groups[kGroups][kPanelRows] = {};
        for (int64_t i = 2 * k; i < 2 * k + 2; ++i) {
            const Lanes number = number_of(wanted[i], factor);
            Lanes scale;
            for (int64_t row = 0; row < kPanelRows; ++row) {
                scales[row].numbers[i] = static_cast<uint8_t>(static_cast<int8_t>(number.at[row]));
                scale.at[row] = factor.at[row] * number.at[row];
            }
            add_signed_codes(halves[i], scale, groups + i % 2 * kGroups / 2);
        }
        write_codes<Layout::kQ6_K>(groups, out + codes_at(Layout::kQ6_K, k));
    }
    const Halves factors = to_float16(factor);
    for (int64_t row = 0; row < kPanelRows; ++row) {
        scales[row].factor = factors.at[row];
    }
    write_scales<Layout::kQ6_K>(scales, out + scales_at(Layout::kQ6_K));
}

// Writes a piece that is one block.
void write_block(Layout layout, const Block& block, uint8_t* out) {
    switch (layout) {
        case Layout::kF32:
            write_f32(block, out);
            break;
        case Layout::kBf16:
            write_bf16(block, out);
            break;
        case Layout::kQ8:
            write_q8(block, out);
            break;
        case Layout::kQ6:
            write_line<Layout::kQ6>(block, out);
            break;
        case Layout::kQ5:
            write_line<Layout::kQ5>(block, out);
            break;
        case Layout::kQ4:
            write_line<Layout::kQ4>(block, out);
            break;
        default:  // holds the blocks of one type only
            break;
    }
}

// Writes a piece of eight blocks.
void write_blocks(Layout layout, const Block (&blocks)[kSuperBlocks], uint8_t* out) {
    if (layout == Layout::kQ4_K) {
        write_super_block<Layout::kQ4_K>(blocks, out);
    } else if (layout == Layout::kQ5_K) {
        write_super_block<Layout::kQ5_K>(blocks, out);
    } else if (layout == Layout::kQ6_K) {
        write_q6_k(blocks, out);
    }
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
