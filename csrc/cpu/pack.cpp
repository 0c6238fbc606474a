// Weights as a checkpoint stores them, row by row, into the panels that layout.h describes.
// Compiled once per instruction set (see kernels.h), with the same result in all of them.
#include "kernels.h"

namespace soliton::SOLITON_ISA {
namespace {

constexpr float kLargestFloat16 = 65504.0f;
// Shares of a row's range that may be cut off at either end, for 4-bit codes.
constexpr float kCuts[] = {0.0f, 0.03f, 0.06f};

// One number for each row of a panel. Loops over them become vector code.
struct alignas(64) Lanes {
    float at[kPanelRows];
};

// One block of a panel, column by column.
struct Block {
    Lanes columns[kBlockColumns];
};

float from_bits(uint32_t bits) {
    return __builtin_bit_cast(float, bits);
}

float to_float(float value) {
    return value;
}

// The stored 16-bit types, as two types for overloading.
struct Float16 {
    uint16_t bits;
};
struct Bfloat16 {
    uint16_t bits;
};

float to_float(Float16 half) {
    // Moves exponent and fraction into place. The product corrects the exponent's bias, also for
    // subnormal numbers. The largest exponent means infinity or NaN; both become NaN.
    const uint32_t magnitude = static_cast<uint32_t>(half.bits & 0x7fff) << 13;
    const float value = from_bits(magnitude) * 0x1p112f;
    const float finite_or_nan = magnitude >= 0x7c00u << 13 ? __builtin_nanf("") : value;
    return half.bits & 0x8000 ? -finite_or_nan : finite_or_nan;
}

float to_float(Bfloat16 half) {
    return from_bits(static_cast<uint32_t>(half.bits) << 16);
}

// The nearest float16, ties to even; larger values become the largest finite float16.
uint16_t to_float16(float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
    const float magnitude = __builtin_fabsf(value);
    if (magnitude >= kLargestFloat16) {
        return sign | 0x7bff;
    }
    if (magnitude < 0x1p-14f) {
        // Subnormal: adding 1/2 rounds it, because the last place of 1/2 is that of the result.
        return sign | static_cast<uint16_t>(__builtin_bit_cast(uint32_t, magnitude + 0.5f));
    }
    const uint32_t rebiased = (bits & 0x7fffffff) - (112u << 23);
    return sign | static_cast<uint16_t>((rebiased + 0xfff + (rebiased >> 13 & 1)) >> 13);
}

uint16_t to_bfloat16(float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// The nearest integer, ties to even, clamped to [low, high].
int32_t to_code(float value, float low, float high) {
    const float above = value < low ? low : value;
    const float inside = above > high ? high : above;
    return __builtin_bit_cast(int32_t, inside + 0x1.8p23f) - 0x4b400000;
}

// Loads a block of columns of 16 rows, with zeros beyond the matrix. Returns whether all are
// finite.
template <typename T>
bool load_block(const PackArgs& args, int64_t first_row, int64_t begin, Block& block) {
    const int64_t left = args.n_in - begin;
    const int64_t n = left < kBlockColumns ? left : kBlockColumns;
    for (int64_t row = 0; row < kPanelRows; ++row) {
        const int64_t address = args.rows[first_row + row];
        const T* source = reinterpret_cast<const T*>(address) + begin;
        const int64_t n_there = address == 0 ? 0 : n;
        for (int64_t k = 0; k < n_there; ++k) {
            block.columns[k].at[row] = to_float(source[k]);
        }
        for (int64_t k = n_there; k < kBlockColumns; ++k) {
            block.columns[k].at[row] = 0.0f;
        }
    }
    uint32_t largest = 0;
    for (const Lanes& column : block.columns) {
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const uint32_t magnitude = __builtin_bit_cast(uint32_t, column.at[row]) & 0x7fffffff;
            largest = magnitude > largest ? magnitude : largest;
        }
    }
    return largest < 0x7f800000;
}

WeightIndex first_bad(const Block& block, int64_t first_row, int64_t begin) {
    for (int64_t row = 0; row < kPanelRows; ++row) {
        for (int64_t k = 0; k < kBlockColumns; ++k) {
            if (!(__builtin_fabsf(block.columns[k].at[row]) < __builtin_inff())) {
                return {first_row + row, begin + k};
            }
        }
    }
    return {-1, -1};
}

void write_f32(const Block& block, uint8_t* out) {
    __builtin_memcpy(out, block.columns, sizeof block.columns);
}

void write_bf16(const Block& block, uint8_t* out) {
    uint32_t pairs[kBlockColumns / 2][kPanelRows];
    for (int64_t pair = 0; pair < kBlockColumns / 2; ++pair) {
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const uint32_t first = to_bfloat16(block.columns[2 * pair].at[row]);
            const uint32_t second = to_bfloat16(block.columns[2 * pair + 1].at[row]);
            pairs[pair][row] = first | second << 16;
        }
    }
    __builtin_memcpy(out, pairs, sizeof pairs);
}

// Scales or minima as they are stored. to_float16 sets `wide` to the stored values.
struct Halves {
    uint16_t at[kPanelRows];
};

Halves to_float16(Lanes& wide) {
    Halves halves;
    for (int64_t row = 0; row < kPanelRows; ++row) {
        halves.at[row] = to_float16(wide.at[row]);
        wide.at[row] = to_float(Float16{halves.at[row]});
    }
    return halves;
}

// The divisors of the weights: infinity for scale 0, so that all codes are zero.
Lanes divisors(const Lanes& scale) {
    Lanes result;
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        result.at[row] = scale.at[row] > 0.0f ? scale.at[row] : __builtin_inff();
    }
    return result;
}

void write_q8(const Block& block, uint8_t* out) {
    Lanes scale = {};
    for (const Lanes& column : block.columns) {
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float magnitude = __builtin_fabsf(column.at[row]);
            scale.at[row] = magnitude > scale.at[row] ? magnitude : scale.at[row];
        }
    }
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        scale.at[row] /= 127.0f;
    }
    const Halves scales = to_float16(scale);
    const Lanes divisor = divisors(scale);
    uint32_t groups[kBlockColumns / 4][kPanelRows] = {};
    for (int64_t k = 0; k < kBlockColumns; ++k) {
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float value = block.columns[k].at[row] / divisor.at[row];
            const int32_t code = to_code(value, -127.0f, 127.0f) + 128;
            groups[k / 4][row] |= static_cast<uint32_t>(code) << k % 4 * 8;
        }
    }
    __builtin_memcpy(out, groups, sizeof groups);
    __builtin_memcpy(out + sizeof groups, scales.at, sizeof scales.at);
}

// A row's weights are scale * code + minimum, with codes 0..15.
struct Line {
    Lanes scale;
    Lanes minimum;
};

// The factors for differences from the minimum: 0 for scale 0, so that all codes are zero.
Lanes inverse(const Lanes& scale) {
    Lanes result;
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        const float quotient = 1.0f / scale.at[row];
        result.at[row] = scale.at[row] > 0.0f ? quotient : 0.0f;
    }
    return result;
}

float nearest_code(float value) {
    const float above = value < 0.0f ? 0.0f : value;
    const float inside = above > 15.0f ? 15.0f : above;
    return inside + 0x1.8p23f - 0x1.8p23f;
}

void round_to_float16(Lanes& wide) {
    to_float16(wide);
}

// The least-squares line for the codes that `line` gives the weights; `line` itself if these codes
// are all the same.
Line fitted(const Block& block, const Line& line) {
    const Lanes per_step = inverse(line.scale);
    Lanes codes = {};
    Lanes squares = {};
    Lanes values = {};
    Lanes products = {};
    for (const Lanes& column : block.columns) {
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float value = column.at[row] - line.minimum.at[row];
            const float code = nearest_code(value * per_step.at[row]);
            codes.at[row] += code;
            squares.at[row] += code * code;
            values.at[row] += value;
            products.at[row] += code * value;
        }
    }
    Line result;
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        constexpr float n = kBlockColumns;
        const float spread = n * squares.at[row] - codes.at[row] * codes.at[row];
        const float slope = (n * products.at[row] - codes.at[row] * values.at[row]) / spread;
        const float offset = (values.at[row] - slope * codes.at[row]) / n;
        const float minimum = line.minimum.at[row] + offset;
        result.scale.at[row] = spread > 0.0f ? slope : line.scale.at[row];
        result.minimum.at[row] = spread > 0.0f ? minimum : line.minimum.at[row];
    }
    return result;
}

// Each row's squared error with the nearest codes.
Lanes squared_error(const Block& block, const Line& line) {
    const Lanes per_step = inverse(line.scale);
    Lanes sum = {};
    for (const Lanes& column : block.columns) {
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float minimum = line.minimum.at[row];
            const float code = nearest_code((column.at[row] - minimum) * per_step.at[row]);
            const float error = line.scale.at[row] * code + minimum - column.at[row];
            sum.at[row] += error * error;
        }
    }
    return sum;
}

void find_range(const Block& block, Lanes& low, Lanes& high) {
    low = high = block.columns[0];
    for (const Lanes& column : block.columns) {
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float value = column.at[row];
            low.at[row] = value < low.at[row] ? value : low.at[row];
            high.at[row] = value > high.at[row] ? value : high.at[row];
        }
    }
}

// The line over the range, shortened by the share `low_cut` at its low end and `high_cut` at its
// high end.
Line line_over(const Lanes& low, const Lanes& high, float low_cut, float high_cut) {
    Line line;
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        const float span = high.at[row] - low.at[row];
        line.minimum.at[row] = low.at[row] + span * low_cut;
        line.scale.at[row] = (span - span * low_cut - span * high_cut) / 15.0f;
    }
    return line;
}

// The line over the whole range covers every weight, but most weights lie in its middle. There,
// smaller steps reduce the error by more than clipping the weights at the ends adds. The best range
// differs from block to block, so this tries several, each with its line fitted to its codes.
Line best_line(const Block& block) {
    Lanes low;
    Lanes high;
    find_range(block, low, high);
    Line best = line_over(low, high, 0.0f, 0.0f);
    round_to_float16(best.scale);
    round_to_float16(best.minimum);
    Lanes least = squared_error(block, best);
    for (const float low_cut : kCuts) {
        for (const float high_cut : kCuts) {
            Line line = fitted(block, line_over(low, high, low_cut, high_cut));
            round_to_float16(line.scale);
            round_to_float16(line.minimum);
            const Lanes error = squared_error(block, line);
#pragma omp simd
            for (int64_t row = 0; row < kPanelRows; ++row) {
                const bool better = error.at[row] < least.at[row];
                least.at[row] = better ? error.at[row] : least.at[row];
                best.scale.at[row] = better ? line.scale.at[row] : best.scale.at[row];
                best.minimum.at[row] = better ? line.minimum.at[row] : best.minimum.at[row];
            }
        }
    }
    return best;
}

void write_q4(const Block& block, uint8_t* out) {
    Line line = best_line(block);
    const Halves scales = to_float16(line.scale);
    const Halves minima = to_float16(line.minimum);
    const Lanes per_step = inverse(line.scale);
    uint32_t groups[kBlockColumns / 8][kPanelRows] = {};
    for (int64_t k = 0; k < kBlockColumns; ++k) {
        const int shift = static_cast<int>(k % 4 * 8 + k / 4 % 2 * 4);
        const Lanes& column = block.columns[k];
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float above = column.at[row] - line.minimum.at[row];
            const float code = nearest_code(above * per_step.at[row]);
            groups[k / 8][row] |= static_cast<uint32_t>(static_cast<int32_t>(code)) << shift;
        }
    }
    __builtin_memcpy(out, groups, sizeof groups);
    __builtin_memcpy(out + sizeof groups, scales.at, sizeof scales.at);
    __builtin_memcpy(out + sizeof groups + sizeof scales.at, minima.at, sizeof minima.at);
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
