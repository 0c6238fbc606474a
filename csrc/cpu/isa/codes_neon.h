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
// Numbers of 8 bits are multiplied as they are.
template <Layout kLayout>
constexpr int kExcess = kByteBits<kLayout> == 8 ? 0 : kUnsignedExcess<kLayout>;
template <Layout kLayout>
constexpr ByteTable kTable = byte_table(kLayout, kExcess<kLayout>);

// 16 times 4 signed codes of weights.
using CodeGroup = Quarters<int8x16_t>;

// The codes of group j, or what a table has for them, signed.
template <Layout kLayout>
SOLITON_INLINE CodeGroup load_group(const uint8_t* block, int64_t j) {
    using Bytes = Quarters<uint8x16_t>;
    const auto line = [=](int64_t i) { return load_line(block + i * kLineBytes); };
    const auto as_signed = [](uint8x16_t codes) { return vreinterpretq_s8_u8(codes); };
    const auto lowest = [=](const Bytes& bytes) {
        const uint8x16_t mask = vdupq_n_u8((1 << code_bits(kLayout)) - 1);
        return each_quarter([=](uint8x16_t a) { return as_signed(vandq_u8(a, mask)); }, bytes);
    };
    // vsriq_n_u8(a, b, n) has the upper n bits of a, and after them the upper bits of b.
    constexpr int kBits = code_bits(kLayout);
    if constexpr (kBits == 8) {
        // Flipping the highest bit of code + 128 gives the code.
        const uint8x16_t highest = vdupq_n_u8(0x80);
        return each_quarter([=](uint8x16_t a) { return as_signed(veorq_u8(a, highest)); }, line(j));
    } else if constexpr (kBits == 6) {
        const int64_t first = j / 4 * 3;
        if (j % 4 < 3) {
            return lowest(line(first + j % 4));
        }
        return each_quarter(
            [=](uint8x16_t a, uint8x16_t b, uint8x16_t c) {
                return as_signed(vshrq_n_u8(vsriq_n_u8(vsriq_n_u8(a, b, 2), c, 4), 2));
            },
            line(first), line(first + 1), line(first + 2));
    } else if constexpr (kBits == 5) {
        const int64_t i = j - j / 3;
        if (j % 3 < 2 && j < 7) {
            return lowest(line(i));
        }
        const Bytes lower = j < 7 ? line(i - 1)
                                  : each_quarter(
                                        [](uint8x16_t b, uint8x16_t d) {
                                            const uint8x16_t last = vshlq_n_u8(d, 2);
                                            return vsriq_n_u8(vshlq_n_u8(b, 2), last, 1);
                                        },
                                        line(1), line(3));
        return each_quarter(
            [=](uint8x16_t a, uint8x16_t b) {
                return as_signed(vshrq_n_u8(vsriq_n_u8(a, b, 3), 3));
            },
            line(j < 7 ? i - 2 : 4), lower);
    } else if constexpr (kBits == 2) {
        const int8x16_t right = vdupq_n_s8(static_cast<int8_t>(-2 * (j % 4)));
        return lowest(each_quarter([=](uint8x16_t a) { return vshlq_u8(a, right); }, line(j / 4)));
    } else {
        const CodeGroup codes =
            j % 2 == 0 ? lowest(line(j / 2))
                       : each_quarter([=](uint8x16_t a) { return as_signed(vshrq_n_u8(a, 4)); },
                                      line(j / 2));
        if constexpr (!has_table(kLayout)) {
            return codes;
        } else {
            const uint8x16_t table = vld1q_u8(kTable<kLayout>.at);
            return each_quarter(
                [=](int8x16_t a) { return as_signed(vqtbl1q_u8(table, vreinterpretq_u8_s8(a))); },
                codes);
        }
    }
}

// The groups whose codes share lines, with 8 bits two as well.
template <Layout kLayout>
constexpr int64_t kTogether = code_bits(kLayout) == 5                              ? 8
                              : code_bits(kLayout) == 6 || code_bits(kLayout) == 2 ? 4
                                                                                   : 2;

// Keeps the compiler from moving the loads of all groups before the first products, which runs out
// of registers.
SOLITON_INLINE void hold_loads() {
    asm volatile("" ::: "memory");
}

SOLITON_INLINE int8x16_t broadcast_codes(const std::byte* at) {
    return vreinterpretq_s8_s32(vdupq_n_s32(four_codes(at)));
}

#if defined(__ARM_FEATURE_DOTPROD)

template <Layout kLayout, int kRows>
struct Codes {
    Rows x;

    template <int kPart>
    SOLITON_INLINE void multiply(const uint8_t* block, int64_t b, Ints (&dots)[kRows]) const {
        const std::byte* codes = x.at + b * kBlockColumns;
#pragma GCC unroll 1  // for the same reason
        for (int64_t begin = kPart * kPartGroups<kLayout>;
             begin < (kPart + 1) * kPartGroups<kLayout>; begin += kTogether<kLayout>) {
            const uint8_t* lines = block + begin * code_bytes(kLayout) / 8;
#pragma GCC unroll 8
            for (int64_t j = 0; j < kTogether<kLayout>; ++j) {
                hold_loads();
                const CodeGroup weights = load_group<kLayout>(lines, j);
                for (int row = 0; row < kRows; ++row) {
                    const int8x16_t four =
                        broadcast_codes(codes + row * x.stride + (begin + j) * 4);
                    dots[row] =
                        each_quarter([=](int32x4_t dot,
                                         int8x16_t weight) { return vdotq_s32(dot, weight, four); },
                                     dots[row], weights);
                }
            }
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

// Products of bytes are added as words, as many as fit: 2 with 8 bits (2 * 128 * 127), 4 with 6
// (4 * 63 * 127) or if a part has no more, and otherwise the 8 of a block (8 * 31 * 127).
template <Layout kLayout, int kRows>
struct Codes {
    static constexpr int kBits = kByteBits<kLayout>;
    static constexpr int64_t kGroups = kBits == 8                                ? 2
                                       : kBits == 6 || kPartGroups<kLayout> == 4 ? 4
                                                                                 : 8;
    Rows x;

    template <int kPart>
    SOLITON_INLINE void multiply(const uint8_t* block, int64_t b, Ints (&dots)[kRows]) const {
        const std::byte* codes = x.at + b * kBlockColumns;
        Ints first_pairs[kRows] = {};
        Ints last_pairs[kRows] = {};
        for (int64_t begin = kPart * kPartGroups<kLayout>;
             begin < (kPart + 1) * kPartGroups<kLayout>; begin += kGroups) {
            Words first[kRows] = {};
            Words last[kRows] = {};
#pragma GCC unroll 1
            for (int64_t i = begin; i < begin + kGroups; i += kTogether<kLayout>) {
                const uint8_t* lines = block + i * code_bytes(kLayout) / 8;
#pragma GCC unroll 8
                for (int64_t j = 0; j < kTogether<kLayout>; ++j) {
                    hold_loads();
                    const CodeGroup weights = load_group<kLayout>(lines, j);
                    for (int row = 0; row < kRows; ++row) {
                        const int8x16_t four =
                            broadcast_codes(codes + row * x.stride + (i + j) * 4);
                        first[row] = multiply_add<false>(weights, four, first[row]);
                        last[row] = multiply_add<true>(weights, four, last[row]);
                    }
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
