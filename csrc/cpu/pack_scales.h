// The scales of a piece of a panel, as Scaling in layout.h describes them. Knows no codes.
//
// Everything is in an unnamed namespace: no copy is shared between instruction sets.
#pragma once

#include "kernels.h"

namespace soliton::SOLITON_ISA {
namespace {

// Those of a row.
struct RowScales {
    uint16_t factor;      // float16, or what Scaling multiplies its numbers with
    uint16_t minimum;     // the same for what is added to a product
    uint8_t numbers[16];  // those of Scaling, or the exponent
};

uint16_t negative(uint16_t half) {
    return half ^ 0x8000;
}

using PanelScales = RowScales[kPanelRows];

void write_factors(const PanelScales& scales, uint8_t* out, bool with_minima) {
    uint16_t halves[2 * kPanelRows];
    for (int64_t row = 0; row < kPanelRows; ++row) {
        halves[row] = scales[row].factor;
        halves[kPanelRows + row] = scales[row].minimum;
    }
    __builtin_memcpy(out, halves, with_minima ? sizeof halves : sizeof halves / 2);
}

// 4 * kCount numbers of 6 bits of each row, in three times kCount bytes.
template <int kCount>
void write_six_bits(const PanelScales& scales, uint8_t* out) {
    for (int i = 0; i < 3 * kCount; ++i) {
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const uint8_t* numbers = scales[row].numbers;
            const int last = numbers[3 * kCount + i % kCount];
            out[i * kPanelRows + row] =
                static_cast<uint8_t>(numbers[i] | last >> (4 - i / kCount * 2) << 6);
        }
    }
}

// The scales of a piece, as Scaling describes them.
template <Layout kLayout>
void write_scales(const PanelScales& scales, uint8_t* out) {
    constexpr Scaling kScaling = scaling(kLayout);
    if constexpr (kScaling == Scaling::kExponent) {
        for (int64_t row = 0; row < kPanelRows; ++row) {
            out[row] = scales[row].numbers[0];
        }
        return;
    }
    write_factors(scales, out, has_minimum(kLayout));
    out += kPanelRows * (has_minimum(kLayout) ? 4 : 2);
    if constexpr (kScaling == Scaling::kSuperLine) {
        write_six_bits<4>(scales, out);
    } else if constexpr (kScaling == Scaling::kSuperScale) {
        write_six_bits<2>(scales, out);
    } else if constexpr (scales_per_block(kLayout) == 2) {
        for (int64_t i = 0; i < 16; ++i) {
            for (int64_t row = 0; row < kPanelRows; ++row) {
                out[i * kPanelRows + row] = scales[row].numbers[i];
            }
        }
    }
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
