// Products of codes in AVX-512 with dot products of bytes: Codes, as codes.h describes it.
#pragma once

#include "codes.h"

namespace soliton::SOLITON_ISA {
namespace {

// The largest number of rows of a tile, by layout. Half of the registers hold the sums, and a pass
// over 16 rows is one tile.
template <Layout>
constexpr int kMostRows = 16;
// Whether the words of x are read instead of its codes.
template <Layout>
constexpr bool kReadsWords = false;
template <Layout kLayout>
constexpr int kExcess = kUnsignedExcess<kLayout>;
template <Layout kLayout>
constexpr ByteTable kTable = byte_table(kLayout, kExcess<kLayout>);

// The bits of `a` that the mask has, and of `b` the others.
SOLITON_INLINE __m512i choose(int mask, __m512i a, __m512i b) {
    return _mm512_ternarylogic_epi32(_mm512_set1_epi8(static_cast<char>(mask)), a, b, 0xca);
}

// The codes of group j, as stored; unsigned numbers of the table, if there is one.
template <Layout kLayout>
SOLITON_INLINE __m512i load_group(const uint8_t* block, int64_t j) {
    const auto line = [&](int64_t i) __attribute__((always_inline)) {
        return _mm512_loadu_si512(block + i * kLineBytes);
    };
    const auto lowest = [](__m512i codes) __attribute__((always_inline)) {
        constexpr char kMask = static_cast<char>((1 << code_bits(kLayout)) - 1);
        return _mm512_and_si512(codes, _mm512_set1_epi8(kMask));
    };
    constexpr int kBits = code_bits(kLayout);
    if constexpr (kBits == 8) {
        return load_halves(block + j * kLineBytes);
    } else if constexpr (kBits == 6) {
        const int64_t first = j / 4 * 3;
        if (j % 4 < 3) {
            return lowest(line(first + j % 4));
        }
        const __m512i second = _mm512_srli_epi16(line(first + 1), 2);
        const __m512i third = _mm512_srli_epi16(line(first + 2), 4);
        const __m512i upper = choose(0xf0, choose(0xc0, line(first), second), third);
        return lowest(_mm512_srli_epi16(upper, 2));
    } else if constexpr (kBits == 5) {
        if (j == 7) {
            const __m512i second = _mm512_srli_epi16(line(1), 1);
            const __m512i lower = choose(0x10, second, _mm512_srli_epi16(line(3), 2));
            return lowest(_mm512_srli_epi16(choose(0xe0, line(4), lower), 3));
        }
        const int64_t i = j - j / 3;
        if (j % 3 < 2) {
            return lowest(line(i));
        }
        const __m512i lower = _mm512_srli_epi16(line(i - 1), 3);
        return lowest(_mm512_srli_epi16(choose(0xe0, line(i - 2), lower), 3));
    } else if constexpr (kBits == 2) {
        return lowest(_mm512_srli_epi16(line(j / 4), static_cast<unsigned>(j % 4 * 2)));
    } else {
        const __m512i codes = lowest(j % 2 == 0 ? line(j / 2) : _mm512_srli_epi16(line(j / 2), 4));
        if constexpr (!has_table(kLayout)) {
            return codes;
        } else {
            const __m128i* table = reinterpret_cast<const __m128i*>(&kTable<kLayout>);
            return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_load_si128(table)), codes);
        }
    }
}

template <Layout kLayout, int kRows>
struct Codes {
    Rows x;

    template <int kPart>
    SOLITON_INLINE void multiply(const uint8_t* block, int64_t b, Ints (&dots)[kRows]) const {
        constexpr int64_t kBegin = kPart * kPartGroups<kLayout>;
        const std::byte* codes = x.at + b * kBlockColumns;
#pragma GCC unroll 8
        for (int64_t j = kBegin; j < kBegin + kPartGroups<kLayout>; ++j) {
            const __m512i weights = load_group<kLayout>(block, j);
            for (int row = 0; row < kRows; ++row) {
                const __m512i four = _mm512_set1_epi32(four_codes(codes + row * x.stride + j * 4));
                dots[row].all = _mm512_dpbusd_epi32(dots[row].all, weights, four);
            }
        }
    }
};

}  // namespace
}  // namespace soliton::SOLITON_ISA
