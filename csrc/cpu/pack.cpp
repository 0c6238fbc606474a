// Weights as a checkpoint stores them, row by row, into the panels that layout.h describes.
// Compiled once per instruction set (see kernels.h), with the same result in all of them.
#include "kernels.h"
#include "pack_blocks.h"
#include "pack_numbers.h"
#include "pack_pieces.h"

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

template <typename Source>
WeightIndex pack_from(const PackArgs& args) {
    const int64_t n_blocks = piece_blocks(args.layout);
    Block blocks[kSuperBlocks];
    for (int64_t panel = args.begin_panel; panel < args.end_panel; ++panel) {
        const PanelPlace place =
            panel_place(args.layout, args.n_in, args.n_panels, args.is_woven, panel);
        uint8_t* out = static_cast<uint8_t*>(args.panels) + place.begin;
        Source source(args, panel * kPanelRows);
        for (int64_t begin = 0; begin < args.n_in; begin += n_blocks * kBlockColumns) {
            for (int64_t k = 0; k < n_blocks; ++k) {
                const int64_t column = begin + k * kBlockColumns;
                source.move_to(column);
                if (!load_block(args, source, column, blocks[k])) {
                    return first_bad(blocks[k], panel * kPanelRows, column);
                }
            }
            if (n_blocks == 1) {
                write_block(args.layout, blocks[0], out);
            } else {
                write_blocks(args.layout, blocks, out);
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
