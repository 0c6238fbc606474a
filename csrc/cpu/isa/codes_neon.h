// Products of codes in NEON, with and without dot products: Codes, as codes.h describes it.
#pragma once

#include "codes.h"

namespace soliton::SOLITON_ISA {
namespace {

// The largest number of rows of a tile, by layout.
#if defined(__ARM_FEATURE_DOTPROD)
template <Layout>
constexpr int kMostRows = 4;
#else
template <Layout>
constexpr int kMostRows = 2;
#endif
// Whether the words of x are read instead of its codes.
template <Layout>
constexpr bool kReadsWords = false;
// Whether codes of kQ8 are multiplied as stored, 128 too large.
constexpr bool kHasExcess = false;

// 16 times 4 signed codes of weights.
using CodeGroup = Quarters<int8x16_t>;

// Group j of a block.
template <Layout kLayout>
SOLITON_INLINE CodeGroup load_group(const uint8_t* block, int64_t j, bool odd) {
    if constexpr (kLayout == Layout::kQ8) {
        // Flipping the highest bit of code + 128 gives the code.
        return each_quarter(
            [](uint8x16_t a) { return vreinterpretq_s8_u8(veorq_u8(a, vdupq_n_u8(0x80))); },
            load_line(block + j * kLineBytes));
    } else {
        return each_quarter(
            [=](uint8x16_t both) {
                return vreinterpretq_s8_u8(odd ? vshrq_n_u8(both, 4)
                                               : vandq_u8(both, vdupq_n_u8(15)));
            },
            load_line(block + j / 2 * kLineBytes));
    }
}

SOLITON_INLINE int8x16_t broadcast_codes(const std::byte* at) {
    return vreinterpretq_s8_s32(vdupq_n_s32(four_codes(at)));
}

#if defined(__ARM_FEATURE_DOTPROD)

template <Layout kLayout, int kRows>
struct Codes {
    Rows x;

    SOLITON_INLINE void multiply(const uint8_t* block, int64_t b, Ints (&dots)[kRows]) const {
        const std::byte* codes = x.at + b * kBlockColumns;
        const auto add_group = [&](int64_t j, bool odd) {
            const CodeGroup weights = load_group<kLayout>(block, j, odd);
            for (int row = 0; row < kRows; ++row) {
                const int8x16_t four = broadcast_codes(codes + row * x.stride + j * 4);
                dots[row] = each_quarter(
                    [=](int32x4_t dot, int8x16_t weight) { return vdotq_s32(dot, weight, four); },
                    dots[row], weights);
            }
        };
        // If unrolled, the compiler would move all loads before the products and run out of
        // registers.
#pragma GCC unroll 1
        for (int64_t j = 0; j < kBlockColumns / 4; j += 2) {
            add_group(j, false);
            add_group(j + 1, true);
        }
    }
};

#else

// For the first or the last two lanes of each quarter: the parts that their sums consist of, four
// words per lane or, as Ints, two numbers.
using Words = Quarters<int16x8_t>;

template <bool kLast>
SOLITON_INLINE Words multiply_add(CodeGroup weights, int8x16_t four, Words words) {
    return each_quarter(
        [=](int8x16_t weight, int16x8_t sums) {
            return kLast ? vmlal_high_s8(sums, weight, four)
                         : vmlal_s8(sums, vget_low_s8(weight), vget_low_s8(four));
        },
        weights, words);
}

SOLITON_INLINE Ints add_neighbours(Words words, Ints pairs) {
    return each_quarter([](int16x8_t word, int32x4_t pair) { return vpadalq_s16(pair, word); },
                        words, pairs);
}

// Products of bytes are added as words, as many as fit: 2 for kQ8 (2 * 127 * 127), and for kQ4 the
// 8 of a block that belong together (8 * 15 * 127).
template <Layout kLayout, int kRows>
struct Codes {
    static constexpr int64_t kGroups = kLayout == Layout::kQ8 ? 2 : 8;
    Rows x;

    SOLITON_INLINE void multiply(const uint8_t* block, int64_t b, Ints (&dots)[kRows]) const {
        const std::byte* codes = x.at + b * kBlockColumns;
        Ints first_pairs[kRows] = {};
        Ints last_pairs[kRows] = {};
        for (int64_t begin = 0; begin < kBlockColumns / 4; begin += kGroups) {
            Words first[kRows] = {};
            Words last[kRows] = {};
            for (int64_t j = begin; j < begin + kGroups; ++j) {
                const CodeGroup weights = load_group<kLayout>(block, j, j % 2);
                for (int row = 0; row < kRows; ++row) {
                    const int8x16_t four = broadcast_codes(codes + row * x.stride + j * 4);
                    first[row] = multiply_add<false>(weights, four, first[row]);
                    last[row] = multiply_add<true>(weights, four, last[row]);
                }
            }
            for (int row = 0; row < kRows; ++row) {
                first_pairs[row] = add_neighbours(first[row], first_pairs[row]);
                last_pairs[row] = add_neighbours(last[row], last_pairs[row]);
            }
        }
        for (int row = 0; row < kRows; ++row) {
            const Ints sums = each_quarter(
                [](int32x4_t first, int32x4_t last) { return vpaddq_s32(first, last); },
                first_pairs[row], last_pairs[row]);
            dots[row] = add(dots[row], sums);
        }
    }
};

#endif

}  // namespace
}  // namespace soliton::SOLITON_ISA
