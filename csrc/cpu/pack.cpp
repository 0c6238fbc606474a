// Weights as a checkpoint stores them, row by row, into the panels that layout.h describes.
// Compiled once per instruction set (see kernels.h), with the same result in all of them.
#include "kernels.h"
#include "pack_blocks.h"
#include "pack_codes.h"
#include "pack_line.h"
#include "pack_numbers.h"

namespace soliton::SOLITON_ISA {
namespace {

// Sixteen rows of floats.
template <typename T>
class FloatRows {
  public:
    FloatRows(const PackArgs& args, int64_t first_row) : rows_(args.rows + first_row) {}

    // The columns of a row from `begin` on; null: zeros.
    const T* columns(int64_t row, int64_t begin) const {
        return rows_[row] == 0 ? nullptr : reinterpret_cast<const T*>(rows_[row]) + begin;
    }

    void move_to(int64_t) {}

  private:
    const int64_t* rows_;
};

// Sixteen rows in blocks of a file, of which one of every row is decoded.
class BlockRows {
  public:
    BlockRows(const PackArgs& args, int64_t first_row)
        : rows_(args.rows + first_row), decoder_(block_decoder(args.source)) {}

    const float* columns(int64_t row, int64_t begin) const {
        return rows_[row] == 0 ? nullptr : values_[row] + begin % decoder_.columns;
    }

    // To the columns from `begin` on, which does not decrease.
    void move_to(int64_t begin) {
        if (begin % decoder_.columns != 0) {
            return;
        }
        const int64_t at = begin / decoder_.columns * decoder_.n_bytes;
        for (int64_t row = 0; row < kPanelRows; ++row) {
            if (rows_[row] != 0) {
                decoder_.decode(reinterpret_cast<const uint8_t*>(rows_[row]) + at, values_[row]);
            }
        }
    }

  private:
    const int64_t* rows_;
    BlockDecoder decoder_;
    float values_[kPanelRows][kMostFileColumns];
};

using Four [[gnu::vector_size(16)]] = float;

Four four_at(const float* at) {
    Four four;
    __builtin_memcpy(&four, at, sizeof four);
    return four;
}

// Turns the rows of a block into its columns, in squares of four by four.
void turn(const float (&rows)[kPanelRows][kBlockColumns], Lanes (&columns)[kBlockColumns]) {
    constexpr int64_t kSide = 4;
    for (int64_t row = 0; row < kPanelRows; row += kSide) {
        for (int64_t k = 0; k < kBlockColumns; k += kSide) {
            const Four a = four_at(&rows[row][k]);
            const Four b = four_at(&rows[row + 1][k]);
            const Four c = four_at(&rows[row + 2][k]);
            const Four d = four_at(&rows[row + 3][k]);
            const Four first_ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
            const Four first_cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
            const Four last_ab = __builtin_shufflevector(a, b, 2, 6, 3, 7);
            const Four last_cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
            const Four turned[kSide] = {
                __builtin_shufflevector(first_ab, first_cd, 0, 1, 4, 5),
                __builtin_shufflevector(first_ab, first_cd, 2, 3, 6, 7),
                __builtin_shufflevector(last_ab, last_cd, 0, 1, 4, 5),
                __builtin_shufflevector(last_ab, last_cd, 2, 3, 6, 7),
            };
            for (int64_t i = 0; i < kSide; ++i) {
                __builtin_memcpy(&columns[k + i].at[row], &turned[i], sizeof turned[i]);
            }
        }
    }
}

// The columns of a row, of which `n` are there, with zeros beyond them.
template <typename T>
void load_row(const T* columns, int64_t n, float (&row)[kBlockColumns]) {
    if (n == kBlockColumns) {
#pragma omp simd
        for (int64_t k = 0; k < kBlockColumns; ++k) {
            row[k] = to_float(columns[k]);
        }
        return;
    }
    for (int64_t k = 0; k < kBlockColumns; ++k) {
        row[k] = k < n ? to_float(columns[k]) : 0.0f;
    }
}

// Loads a block of columns of 16 rows, with zeros beyond the matrix. Returns whether all are
// finite.
template <typename Source>
bool load_block(const PackArgs& args, const Source& source, int64_t begin, Block& block) {
    const int64_t left = args.n_in - begin;
    const int64_t n = left < kBlockColumns ? left : kBlockColumns;
    alignas(64) float rows[kPanelRows][kBlockColumns];
    for (int64_t row = 0; row < kPanelRows; ++row) {
        const auto* columns = source.columns(row, begin);
        load_row(columns, columns == nullptr ? 0 : n, rows[row]);
    }
    turn(rows, block.columns);
    for (int64_t k = 0; k < kBlockColumns; ++k) {
        block.importance[k] = args.importance == nullptr ? 1.0f
                              : k < n                    ? args.importance[begin + k]
                                                         : 0.0f;
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
    constexpr int32_t kFirst = __builtin_bit_cast(int32_t, kRounder) - 128;
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
            const int32_t code = rounded_bits<-127, 127>(value) - kFirst;
            groups[k / 4][row] |= static_cast<uint32_t>(code) << k % 4 * 8;
        }
    }
    __builtin_memcpy(out, groups, sizeof groups);
    __builtin_memcpy(out + sizeof groups, scales.at, sizeof scales.at);
}

// kQ6, kQ5 or kQ4.
template <Layout kLayout>
void write_line(const Block& block, uint8_t* out) {
    Line line = best_line<kLayout>(block);
    const Halves scales = to_float16(line.scale);
    const Halves minima = to_float16(line.minimum);
    const Lanes per_step = inverse(line.scale);
    uint32_t groups[kGroups][kPanelRows] = {};
    for (int64_t k = 0; k < kBlockColumns; ++k) {
        const int shift = static_cast<int>(k % 4 * 8);
        const Lanes& column = block.columns[k];
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float above = column.at[row] - line.minimum.at[row];
            const float code = nearest_code<kLayout>(above * per_step.at[row]);
            groups[k / 4][row] |= static_cast<uint32_t>(static_cast<int32_t>(code)) << shift;
        }
    }
    write_codes<kLayout>(groups, out);
    out += scales_at(kLayout);
    __builtin_memcpy(out, scales.at, sizeof scales.at);
    __builtin_memcpy(out + sizeof scales.at, minima.at, sizeof minima.at);
}

template <typename Source>
WeightIndex pack_from(const PackArgs& args) {
    Block block;
    for (int64_t panel = args.begin_panel; panel < args.end_panel; ++panel) {
        const PanelPlace place =
            panel_place(args.layout, args.n_in, args.n_panels, args.is_woven, panel);
        uint8_t* out = static_cast<uint8_t*>(args.panels) + place.begin;
        Source source(args, panel * kPanelRows);
        for (int64_t begin = 0; begin < args.n_in; begin += kBlockColumns) {
            source.move_to(begin);
            if (!load_block(args, source, begin, block)) {
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
                case Layout::kQ6:
                    write_line<Layout::kQ6>(block, out);
                    break;
                case Layout::kQ5:
                    write_line<Layout::kQ5>(block, out);
                    break;
                case Layout::kQ4:
                    write_line<Layout::kQ4>(block, out);
                    break;
                default:  // holds the blocks of one type only
                    break;
            }
            out += place.piece_pitch;
        }
    }
    return {-1, -1};
}

}  // namespace

WeightIndex pack(const PackArgs& args) {
    switch (args.source) {
        case SourceType::kF32:
            return pack_from<FloatRows<float>>(args);
        case SourceType::kF16:
            return pack_from<FloatRows<Float16>>(args);
        case SourceType::kBf16:
            return pack_from<FloatRows<Bfloat16>>(args);
        default:
            return holds_blocks(args.layout, args.source) ? move_blocks(args)
                                                          : pack_from<BlockRows>(args);
    }
}

}  // namespace soliton::SOLITON_ISA
