// Rows of the embedding table as float, from panels of every layout. Compiled for the
// baseline: a row is a few kilobytes.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "layout.h"
#include "ops.h"
#include "pool.h"

namespace soliton {
namespace {

float from_bfloat16(uint16_t bits) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
}

// Finite values only, which scales and minima always are.
float from_float16(uint16_t bits) {
    // Moves exponent and fraction into place. The product corrects the exponent's bias, also for
    // subnormal numbers.
    const uint32_t wide = static_cast<uint32_t>(bits & 0x7fff) << 13;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    value *= 0x1p112f;
    return bits & 0x8000 ? -value : value;
}

// Numbers in a panel are not aligned.
template <typename T>
T read(const uint8_t* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

// What the code of a row and some columns is multiplied with, and what is added to the product.
struct Line {
    float scale;
    float minimum;
};

// Number i of a row, of 4 * n numbers of 6 bits in three times n bytes for each row.
int six_bits(const uint8_t* numbers, int64_t n, int64_t lane, int64_t i) {
    const auto byte = [&](int64_t at) { return numbers[at * kPanelRows + lane]; };
    if (i < 3 * n) {
        return byte(i) & 63;
    }
    i -= 3 * n;
    return byte(i) >> 6 << 4 | byte(n + i) >> 6 << 2 | byte(2 * n + i) >> 6;
}

// 2^(exponent - 128).
float from_exponent(uint8_t exponent) {
    const uint32_t bits = exponent == 0 ? 1u << 22 : static_cast<uint32_t>(exponent) << 23;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value * 0.5f;
}

// Of a row of block k of a piece, from column 16 * half of the block on. layout.h describes where
// it lies.
Line read_line(const uint8_t* piece, Layout layout, int64_t lane, int64_t k, int64_t half) {
    const uint8_t* at = piece + scales_at(layout);
    const auto float16 = [&](int64_t line) {
        return from_float16(read<uint16_t>(at + (line * kPanelRows + lane) * 2));
    };
    const uint8_t* numbers = at + kPanelRows * (has_minimum(layout) ? 4 : 2);
    const auto product = [&](int64_t line, int number) {
        return float16(line) * static_cast<float>(number);
    };
    const auto byte = [&] { return numbers[(2 * k + half) * kPanelRows + lane]; };
    switch (scaling(layout)) {
        case Scaling::kNone:
            break;
        case Scaling::kScale:
            return {float16(0), 0.0f};
        case Scaling::kLine:
            return {float16(0), float16(1)};
        case Scaling::kExponent:
            return {from_exponent(at[lane]), 0.0f};
        case Scaling::kSuperLine:
            return {product(0, six_bits(numbers, 4, lane, 2 * k)),
                    product(1, six_bits(numbers, 4, lane, 2 * k + 1))};
        case Scaling::kSuperScale:
            return {product(0, six_bits(numbers, 2, lane, k) - 32), 0.0f};
        case Scaling::kSuperHalves:
            return {product(0, static_cast<int8_t>(byte())), 0.0f};
        case Scaling::kSuperHalfLines:
            return {product(0, byte() & 15), product(1, byte() >> 4)};
    }
    return {};
}

// One row of block k of a piece: out (kBlockColumns,).
void read_block(const uint8_t* piece, int64_t k, int64_t lane, Layout layout, float* out) {
    const uint8_t* block = piece + codes_at(layout, k);
    Line line = {};
    for (int64_t i = 0; i < kBlockColumns; ++i) {
        if (layout == Layout::kF32) {
            out[i] = read<float>(block + (i * kPanelRows + lane) * 4);
        } else if (layout == Layout::kBf16) {
            out[i] = from_bfloat16(
                read<uint16_t>(block + ((i / 2 * kPanelRows + lane) * 2 + i % 2) * 2));
        } else {
            if (i % 16 == 0) {
                line = read_line(piece, layout, lane, k, i / 16);
            }
            const int stored = stored_code(layout, block, i / 4, lane * 4 + i % 4);
            out[i] = line.scale * static_cast<float>(code_value(layout, stored));
            if (has_minimum(layout)) {
                // Scale times code has at most 22 bits, so only the sum is rounded.
                out[i] += line.minimum;
            }
        }
    }
}

// Columns [begin, end) of a row of the table: at most a block, and begin is a multiple of
// kBlockColumns.
void read_columns(const Matrix& table, int64_t row, int64_t begin, int64_t end, float* out) {
    const PanelPlace place = panel_place(table.layout, table.n_in, panels_for(table.n_out),
                                         table.is_woven, row / kPanelRows);
    const int64_t block = begin / kBlockColumns;
    const int64_t blocks = piece_blocks(table.layout);
    const uint8_t* piece = static_cast<const uint8_t*>(table.panels) + place.begin +
                           block / blocks * place.piece_pitch;
    float values[kBlockColumns];
    read_block(piece, block % blocks, row % kPanelRows, table.layout, values);
    std::copy_n(values, end - begin, out);
}

// What is left to do with a row of the table.
void add_position(const EmbedArgs& args, int64_t position, float* row) {
    const int64_t dim = args.table.n_in;
    for (int64_t i = 0; i < dim && args.scale != 1.0f; ++i) {
        row[i] *= args.scale;
    }
    const float* added = args.positions + position * dim;
    for (int64_t i = 0; i < dim && args.positions != nullptr; ++i) {
        row[i] += added[i];
    }
}

}  // namespace

void embed(const EmbedArgs& args, const StepState& state, Worker& worker) {
    const int64_t dim = args.table.n_in;
    worker.share(state.n_rows, [&](int64_t row) {
        for (int64_t begin = 0; begin < dim; begin += kBlockColumns) {
            const int64_t end = std::min(begin + kBlockColumns, dim);
            read_columns(args.table, state.token_ids[row], begin, end,
                         args.out + row * dim + begin);
        }
        add_position(args, state.pos + row, args.out + row * dim);
    });
}

}  // namespace soliton
