// The scales and minima of a piece of a panel, as floats: what Scaling in layout.h describes, for
// every instruction set.
#pragma once

#include "../../layout.h"
#include "lanes.h"

namespace soliton::SOLITON_ISA {
namespace {

// scale(block, part) and minimum(block, part) are those of a block of the piece, and of one of its
// scales_per_block.
template <Layout kLayout>
struct Scales;

// Those of a single block are read when they are needed.
template <Layout kLayout>
    requires(piece_blocks(kLayout) == 1)
struct Scales<kLayout> {
    const uint8_t* at;

    SOLITON_INLINE explicit Scales(const uint8_t* piece) : at(piece + scales_at(kLayout)) {}

    SOLITON_INLINE Floats scale(int64_t, int) const {
        if constexpr (scaling(kLayout) == Scaling::kExponent) {
            // Half of 2^(e - 127), of which e is the exponent's bits, unless e is 0.
            const Ints bits = larger(shift_left(widen_bytes(at), 23), broadcast(1 << 22));
            return multiply(as_floats(bits), broadcast(0.5f));
        } else {
            return load_float16(at);
        }
    }

    SOLITON_INLINE Floats minimum(int64_t, int) const { return load_float16(at + kPanelRows * 2); }
};

// Those of eight blocks are computed once.
template <Layout kLayout>
    requires(piece_blocks(kLayout) > 1)
struct Scales<kLayout> {
    static constexpr int kParts = scales_per_block(kLayout);
    static constexpr int kCount = 8 * kParts;
    Floats scales[kCount];
    Floats minima[has_minimum(kLayout) ? kCount : 1];

    SOLITON_INLINE explicit Scales(const uint8_t* piece) {
        constexpr int64_t kFactors = kPanelRows * (has_minimum(kLayout) ? 4 : 2);
        const Floats factor = load_float16(piece);
#pragma GCC unroll 16
        for (int i = 0; i < kCount; ++i) {
            scales[i] = multiply(factor, to_floats(scale_number(piece + kFactors, i)));
        }
        if constexpr (has_minimum(kLayout)) {
            const Floats minimum_factor = load_float16(piece + kPanelRows * 2);
#pragma GCC unroll 16
            for (int i = 0; i < kCount; ++i) {
                const Floats number = to_floats(minimum_number(piece + kFactors, i));
                minima[i] = multiply(minimum_factor, number);
            }
        }
    }

    SOLITON_INLINE Floats scale(int64_t block, int part) const {
        return scales[block * kParts + part];
    }
    SOLITON_INLINE Floats minimum(int64_t block, int part) const {
        return minima[block * kParts + part];
    }

  private:
    // Some bits of each word, the lowest of them at `shift`.
    SOLITON_INLINE static Ints field(Ints words, int shift, int bits) {
        return shift_right(shift_left(words, 32 - bits - shift), 32 - bits);
    }

    // Line i of words.
    SOLITON_INLINE static Ints line(const uint8_t* words, int i) {
        return load_ints(words + i * kPanelRows * 4);
    }

    // Number i of kSuperLine.
    SOLITON_INLINE static Ints six_bits(const uint8_t* words, int i) {
        if (i < 15) {
            return field(line(words, i / 5), i % 5 * 6, 6);
        }
        const Ints low = shift_right(line(words, 0), 30);
        const Ints middle = shift_left(shift_right(line(words, 1), 30), 2);
        return add(low, add(middle, shift_left(shift_right(line(words, 2), 30), 4)));
    }

    SOLITON_INLINE static Ints scale_number(const uint8_t* words, int i) {
        if constexpr (scaling(kLayout) == Scaling::kSuperLine) {
            return six_bits(words, 2 * i);
        } else if constexpr (scaling(kLayout) == Scaling::kSuperHalves) {
            return shift_right_signed(shift_left(line(words, i / 4), 24 - i % 4 * 8), 24);
        } else if constexpr (scaling(kLayout) == Scaling::kSuperHalfLines) {
            return field(line(words, i / 4), i % 4 * 8, 4);
        } else {
            const Ints rest = widen_words(words + kPanelRows * 4);
            Ints number = i < 5 ? field(line(words, 0), i * 6, 6) : field(rest, (i - 5) * 6, 6);
            if (i == 7) {
                number = add(shift_right(line(words, 0), 30), shift_left(field(rest, 12, 4), 2));
            }
            return add(number, broadcast(-32));
        }
    }

    SOLITON_INLINE static Ints minimum_number(const uint8_t* words, int i) {
        if constexpr (scaling(kLayout) == Scaling::kSuperLine) {
            return six_bits(words, 2 * i + 1);
        } else {
            return field(line(words, i / 4), i % 4 * 8 + 4, 4);
        }
    }
};

}  // namespace
}  // namespace soliton::SOLITON_ISA
