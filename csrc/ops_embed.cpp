// Rows of the embedding table as float, from every layout that a table can have. Compiled for the
// baseline: a row is a few kilobytes.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ops.h"
#include "pool.h"

namespace soliton {
namespace {

// A row is read in pieces of this many columns: the block of every panel layout.
constexpr int64_t kBlock = 32;
constexpr int64_t kPanelRows = 16;

float from_bfloat16(uint16_t bits) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
}

// Finite values only: scales and minima are nothing else.
float from_float16(uint16_t bits) {
    // Exponent and fraction moved into place; the product mends the bias of the exponent, for
    // subnormal numbers too.
    const uint32_t wide = static_cast<uint32_t>(bits & 0x7fff) << 13;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    value *= 0x1p112f;
    return bits & 0x8000 ? -value : value;
}

// Numbers in a panel have no alignment of their own.
template <typename T>
T read(const uint8_t* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

int64_t block_bytes(Layout layout) {
    switch (layout) {
        case Layout::kF32:
            return kBlock * kPanelRows * 4;
        case Layout::kBf16:
            return kBlock * kPanelRows * 2;
        case Layout::kQ8:
            return kBlock * kPanelRows + kPanelRows * 2;
        case Layout::kQ4:
            return kBlock * kPanelRows / 2 + kPanelRows * 4;
    }
    return 0;
}

// One block of one row of a panel: out (kBlock,). layout.h says how it lies.
void read_block(const uint8_t* block, int64_t lane, Layout layout, float* out) {
    for (int64_t k = 0; k < kBlock; ++k) {
        switch (layout) {
            case Layout::kF32:
                out[k] = read<float>(block + (k * kPanelRows + lane) * 4);
                break;
            case Layout::kBf16:
                out[k] = from_bfloat16(
                    read<uint16_t>(block + ((k / 2 * kPanelRows + lane) * 2 + k % 2) * 2));
                break;
            case Layout::kQ8: {
                const uint8_t* scales = block + kBlock * kPanelRows;
                const int code = block[(k / 4 * kPanelRows + lane) * 4 + k % 4] - 128;
                out[k] = from_float16(read<uint16_t>(scales + lane * 2)) * static_cast<float>(code);
                break;
            }
            case Layout::kQ4: {
                const uint8_t* scales = block + kBlock * kPanelRows / 2;
                const uint8_t* minima = scales + kPanelRows * 2;
                const uint8_t pair = block[(k / 8 * kPanelRows + lane) * 4 + k % 4];
                const int code = k / 4 % 2 ? pair >> 4 : pair & 15;
                // Scale times code has 15 bits, so only the sum is rounded.
                out[k] =
                    from_float16(read<uint16_t>(scales + lane * 2)) * static_cast<float>(code) +
                    from_float16(read<uint16_t>(minima + lane * 2));
                break;
            }
        }
    }
}

// Columns begin.. before end of a row of the table; at most kBlock, begin a multiple of it.
void read_columns(const EmbedArgs& args, int64_t row, int64_t begin, int64_t end, float* out) {
    switch (args.kind) {
        case TableKind::kF32Rows:
            std::copy_n(static_cast<const float*>(args.table) + row * args.dim + begin, end - begin,
                        out);
            break;
        case TableKind::kBf16Rows:
            std::transform(static_cast<const uint16_t*>(args.table) + row * args.dim + begin,
                           static_cast<const uint16_t*>(args.table) + row * args.dim + end, out,
                           from_bfloat16);
            break;
        case TableKind::kPanels: {
            const int64_t n_blocks = (args.matrix.n_in + kBlock - 1) / kBlock;
            const int64_t index = row / kPanelRows * n_blocks + begin / kBlock;
            const uint8_t* block = static_cast<const uint8_t*>(args.matrix.panels) +
                                   index * block_bytes(args.matrix.layout);
            float values[kBlock];
            read_block(block, row % kPanelRows, args.matrix.layout, values);
            std::copy_n(values, end - begin, out);
            break;
        }
    }
}

}  // namespace

void embed(const EmbedArgs& args, const StepState& state, Worker& worker) {
    const int64_t per_row = (args.dim + kBlock - 1) / kBlock;
    const int64_t pieces = state.n_rows * per_row;
    const int64_t last = pieces * (worker.index + 1) / worker.count;
    for (int64_t i = pieces * worker.index / worker.count; i < last; ++i) {
        const int64_t begin = i % per_row * kBlock;
        const int64_t end = std::min(begin + kBlock, args.dim);
        read_columns(args, state.token_ids[i / per_row], begin, end,
                     args.out + i / per_row * args.dim + begin);
    }
}

}  // namespace soliton
