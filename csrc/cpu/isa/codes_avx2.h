// Products of codes in AVX2: Codes, as codes.h describes it.
#pragma once

#include "codes.h"

namespace soliton::SOLITON_ISA {
namespace {

// The largest number of rows of a tile, by layout.
template <Layout>
constexpr int kMostRows = 6;
// Whether the words of x are read instead of its codes.
template <Layout kLayout>
constexpr bool kReadsWords = kLayout == Layout::kQ8;
// Whether codes of kQ8 are multiplied as stored, 128 too large.
constexpr bool kHasExcess = true;

SOLITON_INLINE __m256i load_bytes(const void* at) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(at));
}

// Forces the compiler to compute the sums here. Otherwise it starts so many products before the
// first sum that they do not fit the registers.
SOLITON_INLINE void settle(__m256i& sums) {
    asm volatile("" : "+x"(sums));
}

template <Layout kLayout, int kRows>
struct Codes;

// The instruction for products of bytes adds pairs in 16 bits, in which these would overflow. So
// bytes become words, those at even places and those at odd places.
template <int kRows>
struct Codes<Layout::kQ8, kRows> {
    Rows x;

    SOLITON_INLINE void multiply(const uint8_t* block, int64_t b, Ints (&dots)[kRows]) const {
        const std::byte* words = x.at + b * kBlockWordBytes;
        const __m256i even_places = _mm256_set1_epi16(0xff);
        __m256i low_sums[kRows];
        __m256i high_sums[kRows];
        each_row<kRows>([&](int row) __attribute__((always_inline)) {
            low_sums[row] = dots[row].low;
            high_sums[row] = dots[row].high;
        });
        const auto add_group = [&](__m256i low, __m256i high,
                                   const std::byte* pair) __attribute__((always_inline)) {
            each_row<kRows>([&](int row) __attribute__((always_inline)) {
                const __m256i both = _mm256_set1_epi32(four_codes(pair + row * x.stride));
                low_sums[row] = _mm256_add_epi32(low_sums[row], _mm256_madd_epi16(low, both));
                high_sums[row] = _mm256_add_epi32(high_sums[row], _mm256_madd_epi16(high, both));
                settle(low_sums[row]);
                settle(high_sums[row]);
            });
        };
        for (int64_t j = 0; j < kBlockColumns / 4; ++j) {
            const __m256i low = load_bytes(block + j * kLineBytes);
            const __m256i high = load_bytes(block + j * kLineBytes + 32);
            add_group(_mm256_and_si256(low, even_places), _mm256_and_si256(high, even_places),
                      words + j * 4);
            add_group(_mm256_srli_epi16(low, 8), _mm256_srli_epi16(high, 8),
                      words + kBlockColumns + j * 4);
        }
        each_row<kRows>([&](int row) __attribute__((always_inline)) {
            dots[row] = {low_sums[row], high_sums[row]};
        });
    }
};

// Half-bytes times bytes: even the sum of all 16 products of a block fits 16 bits (16 * 15 * 127).
template <int kRows>
struct Codes<Layout::kQ4, kRows> {
    Rows x;

    SOLITON_INLINE void multiply(const uint8_t* block, int64_t b, Ints (&dots)[kRows]) const {
        const std::byte* codes = x.at + b * kBlockColumns;
        const __m256i low_halves = _mm256_set1_epi8(15);
        __m256i low_words[kRows];
        __m256i high_words[kRows];
        each_row<kRows>([&](int row) __attribute__((always_inline)) {
            low_words[row] = _mm256_setzero_si256();
            high_words[row] = _mm256_setzero_si256();
        });
        const auto add_group = [&](int64_t j, __m256i low,
                                   __m256i high) __attribute__((always_inline)) {
            each_row<kRows>([&](int row) __attribute__((always_inline)) {
                const __m256i four = _mm256_set1_epi32(four_codes(codes + row * x.stride + j * 4));
                low_words[row] = _mm256_add_epi16(low_words[row], _mm256_maddubs_epi16(low, four));
                high_words[row] =
                    _mm256_add_epi16(high_words[row], _mm256_maddubs_epi16(high, four));
                settle(low_words[row]);
                settle(high_words[row]);
            });
        };
        for (int64_t j = 0; j < kBlockColumns / 4; j += 2) {
            const __m256i low = load_bytes(block + j / 2 * kLineBytes);
            const __m256i high = load_bytes(block + j / 2 * kLineBytes + 32);
            add_group(j, _mm256_and_si256(low, low_halves), _mm256_and_si256(high, low_halves));
            add_group(j + 1, _mm256_and_si256(_mm256_srli_epi16(low, 4), low_halves),
                      _mm256_and_si256(_mm256_srli_epi16(high, 4), low_halves));
        }
        const __m256i ones = _mm256_set1_epi16(1);
        each_row<kRows>([&](int row) __attribute__((always_inline)) {
            dots[row].low = _mm256_madd_epi16(low_words[row], ones);
            dots[row].high = _mm256_madd_epi16(high_words[row], ones);
        });
    }
};

}  // namespace
}  // namespace soliton::SOLITON_ISA
