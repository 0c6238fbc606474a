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
constexpr bool kReadsWords = code_bits(kLayout) == 8;
// Whether signed numbers are multiplied: those of a table that need all 8 bits.
template <Layout kLayout>
constexpr bool kHasSigns = has_table(kLayout) && kByteBits<kLayout> == 8;
template <Layout kLayout>
constexpr int kExcess = kHasSigns<kLayout> ? 0 : kUnsignedExcess<kLayout>;
template <Layout kLayout>
constexpr ByteTable kTable = byte_table(kLayout, kExcess<kLayout>);

SOLITON_INLINE __m256i load_bytes(const void* at) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(at));
}

// Forces the compiler to compute the sums here. Otherwise it starts so many products before the
// first sum that they do not fit the registers.
SOLITON_INLINE void settle(__m256i& sums) {
    asm volatile("" : "+x"(sums));
}

// The codes of group j, as stored, of 8 rows; the numbers of the table, if there is one.
// `half` is that of the group's line: 0 or 32.
template <Layout kLayout>
SOLITON_INLINE __m256i load_group(const uint8_t* block, int64_t j, int64_t half) {
    const auto line = [&](int64_t i) __attribute__((always_inline)) {
        return load_bytes(block + i * kLineBytes + half);
    };
    const auto masked = [](__m256i bytes, int mask) __attribute__((always_inline)) {
        return _mm256_and_si256(bytes, _mm256_set1_epi8(static_cast<char>(mask)));
    };
    // The bits of b, shifted to the right, after those of a.
    const auto joined = [](__m256i a, __m256i b, int shift) __attribute__((always_inline)) {
        return _mm256_or_si256(a, _mm256_srli_epi16(b, shift));
    };
    constexpr int kBits = code_bits(kLayout);
    if constexpr (kBits == 8) {
        return line(j);
    } else if constexpr (kBits == 6) {
        const int64_t first = j / 4 * 3;
        if (j % 4 < 3) {
            return masked(line(first + j % 4), 63);
        }
        const __m256i four = joined(masked(line(first), 0xc0), masked(line(first + 1), 0xc0), 2);
        return _mm256_srli_epi16(joined(four, masked(line(first + 2), 0xc0), 4), 2);
    } else if constexpr (kBits == 5) {
        if (j == 7) {
            const __m256i two = joined(masked(line(1), 0x20), masked(line(3), 0x20), 1);
            return _mm256_srli_epi16(joined(masked(line(4), 0xe0), two, 1), 3);
        }
        const int64_t i = j - j / 3;
        if (j % 3 < 2) {
            return masked(line(i), 31);
        }
        return _mm256_srli_epi16(joined(masked(line(i - 2), 0xe0), masked(line(i - 1), 0xc0), 3),
                                 3);
    } else if constexpr (kBits == 2) {
        return masked(_mm256_srli_epi16(line(j / 4), static_cast<int>(j % 4 * 2)), 3);
    } else {
        const __m256i codes =
            masked(j % 2 == 0 ? line(j / 2) : _mm256_srli_epi16(line(j / 2), 4), 15);
        if constexpr (!has_table(kLayout)) {
            return codes;
        } else {
            const __m128i* table = reinterpret_cast<const __m128i*>(&kTable<kLayout>);
            return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_load_si128(table)), codes);
        }
    }
}

// The groups of a part whose sums of products fit 16 bits: with 4 bits all of a block (16 * 15 *
// 127), with 5 half of them (8 * 31 * 127), with 6 two (4 * 63 * 127), with a sign and 7 one (2 *
// 127 * 127).
template <Layout kLayout>
constexpr int64_t kGroupsInWords = kHasSigns<kLayout>                                     ? 1
                                   : kByteBits<kLayout> == 6                              ? 2
                                   : kByteBits<kLayout> == 5 || kPartGroups<kLayout> == 4 ? 4
                                                                                          : 8;

// The sums of two products each, of bytes of weights and codes of x. The instruction takes unsigned
// bytes and signed ones: signed weights lend their codes the absolute values and take the signs.
template <Layout kLayout>
SOLITON_INLINE __m256i sums_of_two(__m256i weights, __m256i codes) {
    if constexpr (kHasSigns<kLayout>) {
        return _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(weights, codes));
    } else {
        return _mm256_maddubs_epi16(weights, codes);
    }
}

// Products of which some fit 16 bits when they are added.
template <Layout kLayout, int kRows>
struct Codes {
    Rows x;

    template <int kPart>
    SOLITON_INLINE void multiply(const uint8_t* block, int64_t b, Ints (&dots)[kRows]) const {
        const std::byte* codes = x.at + b * kBlockColumns;
        __m256i low_words[kRows];
        __m256i high_words[kRows];
        const auto add_group = [&](int64_t j, __m256i low,
                                   __m256i high) __attribute__((always_inline)) {
            each_row<kRows>([&](int row) __attribute__((always_inline)) {
                const __m256i four = _mm256_set1_epi32(four_codes(codes + row * x.stride + j * 4));
                low_words[row] = _mm256_add_epi16(low_words[row], sums_of_two<kLayout>(low, four));
                high_words[row] =
                    _mm256_add_epi16(high_words[row], sums_of_two<kLayout>(high, four));
                settle(low_words[row]);
                settle(high_words[row]);
            });
        };
        const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
        for (int64_t begin = kPart * kPartGroups<kLayout>;
             begin < (kPart + 1) * kPartGroups<kLayout>; begin += kGroupsInWords<kLayout>) {
            each_row<kRows>([&](int row) __attribute__((always_inline)) {
                low_words[row] = _mm256_setzero_si256();
                high_words[row] = _mm256_setzero_si256();
            });
#pragma GCC unroll 8
            for (int64_t j = begin; j < begin + kGroupsInWords<kLayout>; ++j) {
                add_group(j, load_group<kLayout>(block, j, 0), load_group<kLayout>(block, j, 32));
            }
            each_row<kRows>([&](int row) __attribute__((always_inline)) {
                dots[row].low =
                    _mm256_add_epi32(dots[row].low, _mm256_madd_epi16(low_words[row], ones));
                dots[row].high =
                    _mm256_add_epi32(dots[row].high, _mm256_madd_epi16(high_words[row], ones));
                if constexpr (kHasSigns<kLayout>) {  // there are as many sums as products
                    settle(dots[row].low);
                    settle(dots[row].high);
                }
            });
        }
    }
};

// Products of bytes of 8 bits do not fit 16 bits when two are added, as the instruction does. So
// bytes become words, those at even places and those at odd places.
template <Layout kLayout, int kRows>
    requires(kReadsWords<kLayout>)
struct Codes<kLayout, kRows> {
    Rows x;

    template <int kPart>
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
            const __m256i low = load_group<kLayout>(block, j, 0);
            const __m256i high = load_group<kLayout>(block, j, 32);
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

}  // namespace
}  // namespace soliton::SOLITON_ISA
