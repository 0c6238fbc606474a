// Weights in the blocks of GGUF types: moved into panels as they are, or decoded into floats.
// Compiled once per instruction set (see kernels.h), with the same result in all of them.
#include "pack_blocks.h"

#include "pack_codes.h"
#include "pack_gguf.h"
#include "pack_scales.h"

namespace soliton::SOLITON_ISA {
namespace {

// The largest exponent with which all weights are finite: 12 * 2^(252 - 128) is.
constexpr uint8_t kLargestExponent = 252;

bool is_finite(uint16_t half) {
    return (half & 0x7c00) != 0x7c00;
}

template <typename Type>
bool are_finite(const RowScales& scales) {
    return scaling(Type::kLayout) == Scaling::kExponent
               ? scales.numbers[0] <= kLargestExponent
               : is_finite(scales.factor) && is_finite(scales.minimum);
}

// ---- Decoding. ----

// What a code is multiplied with, and what is added.
struct RowLine {
    float scale;
    float minimum;
};

float exponent_scale(uint8_t exponent) {
    if (exponent > kLargestExponent) {
        return __builtin_nanf("");
    }
    return from_bits(exponent == 0 ? 1u << 22 : static_cast<uint32_t>(exponent) << 23) * 0.5f;
}

// Of columns 16i.. of a block.
template <typename Type>
RowLine line_of(const RowScales& scales, int64_t i) {
    constexpr Scaling kScaling = scaling(Type::kLayout);
    const float factor = to_float(Float16{scales.factor});
    const float minimum = to_float(Float16{scales.minimum});
    const auto number = [&](int64_t at) { return static_cast<float>(scales.numbers[at]); };
    if constexpr (kScaling == Scaling::kExponent) {
        return {exponent_scale(scales.numbers[0]), 0.0f};
    } else if constexpr (kScaling == Scaling::kSuperLine) {
        return {factor * number(i / 2 * 2), minimum * number(i / 2 * 2 + 1)};
    } else if constexpr (kScaling == Scaling::kSuperScale) {
        return {factor * (number(i / 2) - 32.0f), 0.0f};
    } else if constexpr (kScaling == Scaling::kSuperHalves) {
        return {factor * static_cast<float>(static_cast<int8_t>(scales.numbers[i])), 0.0f};
    } else if constexpr (kScaling == Scaling::kSuperHalfLines) {
        return {factor * static_cast<float>(scales.numbers[i] & 15),
                minimum * static_cast<float>(scales.numbers[i] >> 4)};
    } else {
        return {factor, minimum};
    }
}

template <typename Type>
void decode(const uint8_t* block, float* out) {
    RowScales scales = {};
    Type::read_scales(block, scales);
    for (int64_t k = 0; k < Type::kColumns / kBlockColumns; ++k) {
        uint8_t codes[kBlockColumns];
        Type::read_codes(block, k, codes);
        for (int64_t half = 0; half < 2; ++half) {
            const RowLine line = line_of<Type>(scales, 2 * k + half);
            for (int64_t i = 16 * half; i < 16 * half + 16; ++i) {
                const int value = code_value(Type::kLayout, codes[i]);
                const float product = line.scale * static_cast<float>(value);
                out[k * kBlockColumns + i] =
                    has_minimum(Type::kLayout) ? product + line.minimum : product;
            }
        }
    }
}

// ---- Moving. ----

// Writes the codes of columns 32k.. of the rows' blocks, zeros where an address is 0.
template <typename Type>
void move_codes(const int64_t* addresses, int64_t k, uint8_t* out) {
    uint32_t groups[kGroups][kPanelRows];
    for (int64_t row = 0; row < kPanelRows; ++row) {
        uint8_t codes[kBlockColumns] = {};
        if (addresses[row] != 0) {
            Type::read_codes(reinterpret_cast<const uint8_t*>(addresses[row]), k, codes);
        }
        for (int64_t j = 0; j < kGroups; ++j) {
            __builtin_memcpy(&groups[j][row], codes + 4 * j, 4);
        }
    }
    write_codes<Type::kLayout>(groups, out);
}

// Writes a piece. Returns the row of the first scale that is not finite, or -1.
template <typename Type>
int64_t move_piece(const int64_t* addresses, uint8_t* out) {
    constexpr Layout kLayout = Type::kLayout;
    static_assert(piece_blocks(kLayout) * kBlockColumns == Type::kColumns);
    PanelScales scales = {};
    for (int64_t row = 0; row < kPanelRows; ++row) {
        if (addresses[row] != 0) {
            Type::read_scales(reinterpret_cast<const uint8_t*>(addresses[row]), scales[row]);
            if (!are_finite<Type>(scales[row])) {
                return row;
            }
        }
    }
    write_scales<kLayout>(scales, out + scales_at(kLayout));
    for (int64_t k = 0; k < piece_blocks(kLayout); ++k) {
        move_codes<Type>(addresses, k, out + codes_at(kLayout, k));
    }
    return -1;
}

template <typename Type>
WeightIndex move_all(const PackArgs& args) {
    for (int64_t panel = args.begin_panel; panel < args.end_panel; ++panel) {
        const PanelPlace place =
            panel_place(args.layout, args.n_in, args.n_panels, args.is_woven, panel);
        uint8_t* out = static_cast<uint8_t*>(args.panels) + place.begin;
        int64_t addresses[kPanelRows];
        __builtin_memcpy(addresses, args.rows + panel * kPanelRows, sizeof addresses);
        for (int64_t begin = 0; begin < args.n_in; begin += Type::kColumns) {
            const int64_t bad_row = move_piece<Type>(addresses, out);
            if (bad_row >= 0) {
                return {panel * kPanelRows + bad_row, begin};
            }
            for (int64_t& address : addresses) {
                address += address == 0 ? 0 : Type::kBytes;
            }
            out += place.piece_pitch;
        }
    }
    return {-1, -1};
}

}  // namespace

BlockDecoder block_decoder(SourceType source) {
    return with_file_type(source, []<typename Type>() -> BlockDecoder {
        return {Type::kColumns, Type::kBytes, &decode<Type>};
    });
}

bool holds_blocks(Layout layout, SourceType source) {
    return with_file_type(source, [&]<typename Type>() { return Type::kLayout == layout; });
}

WeightIndex move_blocks(const PackArgs& args) {
    return with_file_type(args.source, [&]<typename Type>() { return move_all<Type>(args); });
}

}  // namespace soliton::SOLITON_ISA
