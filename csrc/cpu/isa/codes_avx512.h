// Products of codes in AVX-512 with dot products of bytes: Codes, as codes.h describes it.
#pragma once

#include "codes.h"

namespace soliton::SOLITON_ISA {
namespace {

// The largest number of rows of a tile, by layout.
template <Layout>
constexpr int kMostRows = 12;
// Whether the words of x are read instead of its codes.
template <Layout>
constexpr bool kReadsWords = false;
// Whether codes of kQ8 are multiplied as stored, 128 too large.
constexpr bool kHasExcess = true;

template <Layout kLayout, int kRows>
struct Codes {
    Rows x;

    SOLITON_INLINE void multiply(const uint8_t* block, int64_t b, Ints (&dots)[kRows]) const {
        const std::byte* codes = x.at + b * kBlockColumns;
        const auto add_group = [&](int64_t j, __m512i weights) {
            for (int row = 0; row < kRows; ++row) {
                const __m512i four = _mm512_set1_epi32(four_codes(codes + row * x.stride + j * 4));
                dots[row].all = _mm512_dpbusd_epi32(dots[row].all, weights, four);
            }
        };
        if constexpr (kLayout == Layout::kQ8) {
            for (int64_t j = 0; j < kBlockColumns / 4; ++j) {
                add_group(j, _mm512_loadu_si512(block + j * kLineBytes));
            }
        } else {
            const __m512i low_halves = _mm512_set1_epi8(15);
            for (int64_t j = 0; j < kBlockColumns / 4; j += 2) {
                const __m512i both = _mm512_loadu_si512(block + j / 2 * kLineBytes);
                add_group(j, _mm512_and_si512(both, low_halves));
                add_group(j + 1, _mm512_and_si512(_mm512_srli_epi16(both, 4), low_halves));
            }
        }
    }
};

}  // namespace
}  // namespace soliton::SOLITON_ISA
