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

// Those of eight blocks are factors times small numbers.
template <Layout kLayout>
    requires(piece_blocks(kLayout) > 1)
struct Scales<kLayout> {
    static constexpr Scaling kScaling = scaling(kLayout);
    static constexpr bool kHasSixBits =
        kScaling == Scaling::kSuperLine || kScaling == Scaling::kSuperScale;
    Floats factor;
    Floats minimum_factor;
    const uint8_t* numbers;
    // Numbers of 6 bits, a byte each; and what is written behind them.
    alignas(64) uint8_t bytes[kHasSixBits ? 256 : 1];

    SOLITON_INLINE explicit Scales(const uint8_t* piece)
        : factor(load_float16(piece)),
          minimum_factor(load_float16(piece + (has_minimum(kLayout) ? kPanelRows * 2 : 0))),
          numbers(piece + kPanelRows * (has_minimum(kLayout) ? 4 : 2)) {
        if constexpr (kHasSixBits) {
            split(numbers);
        }
    }

    SOLITON_INLINE Floats scale(int64_t block, int part) const {
        return multiply(factor, to_floats(scale_number(block, part)));
    }
    SOLITON_INLINE Floats minimum(int64_t block, int part) const {
        return multiply(minimum_factor, to_floats(minimum_number(block, part)));
    }

  private:
    // The numbers of three lines, or half lines.
    SOLITON_INLINE void split(const uint8_t* lines) {
        constexpr int64_t kPitch = kPanelRows * (kScaling == Scaling::kSuperLine ? 4 : 2);
        const Ints upper = broadcast(static_cast<int32_t>(0xc0c0c0c0));
        Ints last = broadcast(0);
        for (int i = 0; i < 3; ++i) {
            const Ints line = load_ints(lines + i * kPitch);
            store_ints(bytes + i * kPitch, bits_of(line, broadcast(0x3f3f3f3f)));
            last = add(last, shift_right(bits_of(line, upper), 2 + 2 * i));
        }
        store_ints(bytes + 3 * kPitch, last);
    }

    SOLITON_INLINE Ints scale_number(int64_t block, int part) const {
        if constexpr (kScaling == Scaling::kSuperLine) {
            return widen_bytes(bytes + 2 * block * kPanelRows);
        } else if constexpr (kScaling == Scaling::kSuperScale) {
            return add(widen_bytes(bytes + block * kPanelRows), broadcast(-32));
        } else if constexpr (kScaling == Scaling::kSuperHalves) {
            return widen_signed_bytes(numbers + (2 * block + part) * kPanelRows);
        } else {
            return bits_of(widen_bytes(numbers + (2 * block + part) * kPanelRows), broadcast(15));
        }
    }

    SOLITON_INLINE Ints minimum_number(int64_t block, int part) const {
        if constexpr (kScaling == Scaling::kSuperLine) {
            return widen_bytes(bytes + (2 * block + 1) * kPanelRows);
        } else {
            return shift_right(widen_bytes(numbers + (2 * block + part) * kPanelRows), 4);
        }
    }
};

}  // namespace
}  // namespace soliton::SOLITON_ISA
