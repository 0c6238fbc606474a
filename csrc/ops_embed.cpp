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

// One row of a block of a panel: out (kBlockColumns,). layout.h describes the block.
void read_block(const uint8_t* block, int64_t lane, Layout layout, float* out) {
    for (int64_t k = 0; k < kBlockColumns; ++k) {
        switch (layout) {
            case Layout::kF32:
                out[k] = read<float>(block + (k * kPanelRows + lane) * 4);
                break;
            case Layout::kBf16:
                out[k] = from_bfloat16(
                    read<uint16_t>(block + ((k / 2 * kPanelRows + lane) * 2 + k % 2) * 2));
                break;
            case Layout::kQ8:
            case Layout::kQ6:
            case Layout::kQ5:
            case Layout::kQ4: {
                const uint8_t* scales = block + code_bytes(layout);
                const int stored = stored_code(layout, block, k / 4, lane * 4 + k % 4);
                out[k] = from_float16(read<uint16_t>(scales + lane * 2)) *
                         static_cast<float>(layout == Layout::kQ8 ? stored - 128 : stored);
                if (has_minimum(layout)) {
                    // Scale times code has at most 17 bits, so only the sum is rounded.
                    const uint8_t* minima = scales + kPanelRows * 2;
                    out[k] += from_float16(read<uint16_t>(minima + lane * 2));
                }
                break;
            }
        }
    }
}

// Columns [begin, end) of a row of the table: at most a block, and begin is a multiple of
// kBlockColumns.
void read_columns(const Matrix& table, int64_t row, int64_t begin, int64_t end, float* out) {
    const PanelPlace place = panel_place(table.layout, table.n_in, panels_for(table.n_out),
                                         table.is_woven, row / kPanelRows);
    const uint8_t* block = static_cast<const uint8_t*>(table.panels) + place.begin +
                           begin / kBlockColumns * place.block_pitch;
    float values[kBlockColumns];
    read_block(block, row % kPanelRows, table.layout, values);
    std::copy_n(values, end - begin, out);
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
    });
}

}  // namespace soliton
