// Weights as a checkpoint stores them, row by row, into the panels that layout.h describes.
// Compiled once per instruction set (see kernels.h), with the same result in all of them.
#include "kernels.h"

namespace soliton::SOLITON_ISA {
namespace {

constexpr float kLargestFloat16 = 65504.0f;

// One block of a panel, row by row.
struct Block {
    alignas(64) float values[kPanelRows][kBlockColumns];
};
struct Codes {
    alignas(64) uint8_t values[kPanelRows][kBlockColumns];
};

float from_bits(uint32_t bits) {
    return __builtin_bit_cast(float, bits);
}

float to_float(float value) {
    return value;
}

// Stored 16-bit types, told apart by what reads them.
struct Float16 {
    uint16_t bits;
};
struct Bfloat16 {
    uint16_t bits;
};

float to_float(Float16 half) {
    // Exponent and fraction moved into place; the product mends the bias of the exponent, for
    // subnormal numbers too. The largest exponent means infinity or NaN: NaN serves for both.
    const uint32_t magnitude = static_cast<uint32_t>(half.bits & 0x7fff) << 13;
    const float value = from_bits(magnitude) * 0x1p112f;
    const float finite_or_nan = magnitude >= 0x7c00u << 13 ? __builtin_nanf("") : value;
    return half.bits & 0x8000 ? -finite_or_nan : finite_or_nan;
}

float to_float(Bfloat16 half) {
    return from_bits(static_cast<uint32_t>(half.bits) << 16);
}

// The nearest float16, ties to even; the largest finite one for what is larger.
uint16_t to_float16(float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
    const float magnitude = __builtin_fabsf(value);
    if (magnitude >= kLargestFloat16) {
        return sign | 0x7bff;
    }
    if (magnitude < 0x1p-14f) {
        // Subnormal: added to 1/2, whose last place is that of the result, it is rounded.
        return sign | static_cast<uint16_t>(__builtin_bit_cast(uint32_t, magnitude + 0.5f));
    }
    const uint32_t rebiased = (bits & 0x7fffffff) - (112u << 23);
    return sign | static_cast<uint16_t>((rebiased + 0xfff + (rebiased >> 13 & 1)) >> 13);
}

uint16_t to_bfloat16(float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// To the nearest integer, ties to even, within bounds.
int32_t to_code(float value, float low, float high) {
    const float above = value < low ? low : value;
    const float inside = above > high ? high : above;
    return __builtin_bit_cast(int32_t, inside + 0x1.8p23f) - 0x4b400000;
}

// Columns begin.. of 16 rows, zeros where there are none. Whether all are finite.
template <typename T>
bool load_block(const PackArgs& args, int64_t first_row, int64_t begin, Block& block) {
    const int64_t left = args.n_in - begin;
    const int64_t n = left < kBlockColumns ? left : kBlockColumns;
    uint32_t largest = 0;
    for (int64_t row = 0; row < kPanelRows; ++row) {
        float* values = block.values[row];
        const int64_t address = args.rows[first_row + row];
        if (address == 0 || n < kBlockColumns) {
            __builtin_memset(values, 0, sizeof block.values[row]);
        }
        if (address == 0) {
            continue;
        }
        const T* source = reinterpret_cast<const T*>(address) + begin;
        if (n == kBlockColumns) {
            for (int64_t k = 0; k < kBlockColumns; ++k) {
                values[k] = to_float(source[k]);
            }
        } else {
            for (int64_t k = 0; k < n; ++k) {
                values[k] = to_float(source[k]);
            }
        }
        for (int64_t k = 0; k < kBlockColumns; ++k) {
            const uint32_t magnitude = __builtin_bit_cast(uint32_t, values[k]) & 0x7fffffff;
            largest = magnitude > largest ? magnitude : largest;
        }
    }
    return largest < 0x7f800000;
}

WeightIndex first_bad(const Block& block, int64_t first_row, int64_t begin) {
    for (int64_t row = 0; row < kPanelRows; ++row) {
        for (int64_t k = 0; k < kBlockColumns; ++k) {
            if (!(__builtin_fabsf(block.values[row][k]) < __builtin_inff())) {
                return {first_row + row, begin + k};
            }
        }
    }
    return {-1, -1};
}

void write_f32(const Block& block, uint8_t* out) {
    float turned[kBlockColumns][kPanelRows];
    for (int64_t k = 0; k < kBlockColumns; ++k) {
        for (int64_t row = 0; row < kPanelRows; ++row) {
            turned[k][row] = block.values[row][k];
        }
    }
    __builtin_memcpy(out, turned, sizeof turned);
}

void write_bf16(const Block& block, uint8_t* out) {
    uint16_t turned[kBlockColumns / 2][kPanelRows][2];
    for (int64_t pair = 0; pair < kBlockColumns / 2; ++pair) {
        for (int64_t row = 0; row < kPanelRows; ++row) {
            turned[pair][row][0] = to_bfloat16(block.values[row][2 * pair]);
            turned[pair][row][1] = to_bfloat16(block.values[row][2 * pair + 1]);
        }
    }
    __builtin_memcpy(out, turned, sizeof turned);
}

void write_q8(const Block& block, uint8_t* out) {
    Codes codes;
    uint16_t scales[kPanelRows];
    for (int64_t row = 0; row < kPanelRows; ++row) {
        const float* values = block.values[row];
        float largest = 0.0f;
        for (int64_t k = 0; k < kBlockColumns; ++k) {
            const float magnitude = __builtin_fabsf(values[k]);
            largest = magnitude > largest ? magnitude : largest;
        }
        scales[row] = to_float16(largest / 127.0f);
        const float scale = to_float(Float16{scales[row]});
        const float divisor = scale > 0.0f ? scale : __builtin_inff();
        for (int64_t k = 0; k < kBlockColumns; ++k) {
            const int32_t code = to_code(values[k] / divisor, -127.0f, 127.0f);
            codes.values[row][k] = static_cast<uint8_t>(code + 128);
        }
    }
    for (int64_t group = 0; group < kBlockColumns / 4; ++group) {
        for (int64_t row = 0; row < kPanelRows; ++row) {
            __builtin_memcpy(out, codes.values[row] + group * 4, 4);
            out += 4;
        }
    }
    __builtin_memcpy(out, scales, sizeof scales);
}

void write_q4(const Block& block, uint8_t* out) {
    Codes codes;
    uint16_t scales[kPanelRows];
    uint16_t minima[kPanelRows];
    for (int64_t row = 0; row < kPanelRows; ++row) {
        const float* values = block.values[row];
        float smallest = values[0];
        float largest = values[0];
        for (int64_t k = 1; k < kBlockColumns; ++k) {
            smallest = values[k] < smallest ? values[k] : smallest;
            largest = values[k] > largest ? values[k] : largest;
        }
        minima[row] = to_float16(smallest);
        const float minimum = to_float(Float16{minima[row]});
        scales[row] = to_float16((largest - minimum) / 15.0f);
        const float scale = to_float(Float16{scales[row]});
        const float divisor = scale > 0.0f ? scale : __builtin_inff();
        for (int64_t k = 0; k < kBlockColumns; ++k) {
            const int32_t code = to_code((values[k] - minimum) / divisor, 0.0f, 15.0f);
            codes.values[row][k] = static_cast<uint8_t>(code);
        }
    }
    for (int64_t group = 0; group < kBlockColumns / 4; group += 2) {
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const uint8_t* low = codes.values[row] + group * 4;
            for (int64_t k = 0; k < 4; ++k) {
                *out++ = static_cast<uint8_t>(low[k] | low[k + 4] << 4);
            }
        }
    }
    __builtin_memcpy(out, scales, sizeof scales);
    __builtin_memcpy(out + sizeof scales, minima, sizeof minima);
}

template <typename T>
WeightIndex pack_from(const PackArgs& args) {
    const int64_t bytes = block_bytes(args.layout);
    uint8_t* out =
        static_cast<uint8_t*>(args.panels) + args.begin_panel * panel_bytes(args.layout, args.n_in);
    Block block;
    for (int64_t panel = args.begin_panel; panel < args.end_panel; ++panel) {
        for (int64_t begin = 0; begin < args.n_in; begin += kBlockColumns) {
            if (!load_block<T>(args, panel * kPanelRows, begin, block)) {
                return first_bad(block, panel * kPanelRows, begin);
            }
            switch (args.layout) {
                case Layout::kF32:
                    write_f32(block, out);
                    break;
                case Layout::kBf16:
                    write_bf16(block, out);
                    break;
                case Layout::kQ8:
                    write_q8(block, out);
                    break;
                case Layout::kQ4:
                    write_q4(block, out);
                    break;
            }
            out += bytes;
        }
    }
    return {-1, -1};
}

}  // namespace

WeightIndex pack(const PackArgs& args) {
    switch (args.source) {
        case SourceType::kF32:
            return pack_from<float>(args);
        case SourceType::kF16:
            return pack_from<Float16>(args);
        case SourceType::kBf16:
            return pack_from<Bfloat16>(args);
    }
    return {-1, -1};
}

}  // namespace soliton::SOLITON_ISA
