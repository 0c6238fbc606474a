// Rows of x times panels of weights, in one pass over the weights for any number of rows. Compiled
// once per instruction set (see kernels.h); ops_linear.cpp divides the work among threads.
//
// An output is a chain of fused multiply-adds in ascending order. For a quantised matrix the chain
// is over blocks, inside of which integers are added exactly. For floats there are two chains, over
// even and over odd columns, added at the end. So an output depends neither on which rows share a
// tile nor on the instruction set.
//
// The weights of a chunk of blocks stay in the first-level cache for many rows, and that part of
// the rows stays in the second-level cache for several panels. Sums are kept in memory from one
// chunk to the next.
#include "functions.h"
#include "tiles.h"

namespace soliton::SOLITON_ISA {
namespace {

// Rows whose sums are kept at once, so that rows of x are fetched once for all of them.
constexpr int64_t kRowsAtOnce = 128;

// What becomes of gate and up.
SOLITON_INLINE Floats gated(Floats gate, Floats up, Epilogue epilogue) {
    if (epilogue == Epilogue::kSiluGate) {
        return multiply(silu(gate), up);
    }
    if (epilogue == Epilogue::kClampedGate) {
        return clamped_gate(gate, up);
    }
    return multiply(gelu(gate, epilogue == Epilogue::kGeluGate), up);
}

// An output without a gate.
SOLITON_INLINE Floats finished(Floats y, const MultiplyArgs& args) {
    y = multiply(y, broadcast(args.scale));
    return args.epilogue == Epilogue::kNone ? y
                                            : shaped(y, args.epilogue, args.softcap, args.xielu);
}

// The outputs of a panel's first n rows.
template <Layout kLayout>
SOLITON_INLINE Floats add_bias(const float* sums, const float* bias, int64_t n) {
    Floats y = load(sums);
    if constexpr (kSums<kLayout> == 2) {
        y = add(y, load(sums + kLanes));
    }
    return bias == nullptr ? y : add(y, load_first(bias, n));
}

// Some rows of x, and the panels of some units: kPanelsAtOnce from a multiple of that on, or fewer.
struct Group {
    int64_t begin_row;
    int64_t n_rows;
    int64_t begin_unit;
    int64_t n_units;
};

// The other threads have read what stood in these outputs of a row, and a store waits until their
// caches have let go of it. So the cache lines are asked for while the product is computed.
SOLITON_INLINE void claim(const MultiplyArgs& args, int64_t unit, int64_t n_units) {
    for (int64_t i = 0; i < n_units; ++i) {
        __builtin_prefetch(args.out + (unit + i) * kPanelRows, 1);
    }
}

// Writes the products of the group to sums (its panels, its rows, kSums, kLanes).
template <Layout kLayout>
void multiply_group(const MultiplyArgs& args, const Group& group, int64_t n_parts, float* sums) {
    const int64_t panel_sums = group.n_rows * kSums<kLayout> * kLanes;
    const int64_t n_in = args.matrix.n_in;
    const int64_t n_blocks = blocks_for(n_in);
    const int64_t n_panels = panels_for(args.matrix.n_out / n_parts) * n_parts;
    const PanelPlace place =
        panel_place(kLayout, n_in, n_panels, args.matrix.is_woven, group.begin_unit * n_parts);
    Chunk chunk = {
        .panels = static_cast<const uint8_t*>(args.matrix.panels) + place.begin,
        .n_panels = group.n_units * n_parts,
        .panel_pitch = place.pitch,
        .piece_pitch = place.piece_pitch,
        .is_woven = args.matrix.is_woven,
        .is_fetched = args.matrix.is_fetched,
        .x = args.x + group.begin_row * args.row_bytes,
        .row_bytes = args.row_bytes,
        .n_in = n_in,
        .begin = 0,
        .end = 0,
    };
    __builtin_memset(sums, 0, chunk.n_panels * panel_sums * sizeof(float));
    while (chunk.end < n_blocks) {
        const int64_t left = n_blocks - chunk.end;
        chunk.begin = chunk.end;
        // A single row needs no chunks: its sums stay in registers.
        const int64_t n =
            group.n_rows == 1 || left < kChunkBlocks<kLayout> ? left : kChunkBlocks<kLayout>;
        chunk.end += n;
        add_chunk<kLayout>(chunk, group.n_rows, sums, panel_sums);
    }
}

// The outputs of a unit, from the sums of its panels.
template <Layout kLayout>
void finish_unit(const MultiplyArgs& args, const Group& group, int64_t unit, int64_t width,
                 const float* sums) {
    constexpr int64_t kSumsPerRow = kSums<kLayout> * kLanes;
    const int64_t column = unit * kPanelRows;
    const int64_t n = width - column < kPanelRows ? width - column : kPanelRows;
    const float* bias = args.bias == nullptr ? nullptr : args.bias + column;
    const float* up_bias = args.bias == nullptr ? nullptr : bias + width;
    const float* up_sums = sums + group.n_rows * kSumsPerRow;
    for (int64_t row = 0; row < group.n_rows; ++row) {
        float* out = args.out + (group.begin_row + row) * args.out_pitch + column;
        Floats y = add_bias<kLayout>(sums + row * kSumsPerRow, bias, n);
        if (args.finish == Finish::kGateAndUp) {
            const Floats up = add_bias<kLayout>(up_sums + row * kSumsPerRow, up_bias, n);
            y = gated(y, up, args.epilogue);
        } else if (args.finish == Finish::kUp) {
            const Floats gate = n == kPanelRows ? load(out) : load_first(out, n);
            y = gated(gate, y, args.epilogue);
        } else {
            y = finished(y, args);
        }
        n == kPanelRows ? store(out, y) : store_first(out, y, n);
    }
}

// One row times units that are far apart: as many streams of memory, each of which goes on from one
// unit to the next.
template <Layout kLayout>
void multiply_streams(const MultiplyArgs& args) {
    const int64_t n_parts = args.finish == Finish::kGateAndUp ? 2 : 1;
    const int64_t width = args.matrix.n_out / n_parts;
    const int64_t n_bytes = panel_bytes(kLayout, args.matrix.n_in);
    alignas(64) float sums[2 * kPanelsAtOnce * kLanes];
    for (int64_t unit = args.begin_unit; unit < args.end_unit; ++unit) {
        const int64_t n_left = 1 + (args.last_unit - 1 - unit) / args.stream_pitch;
        const int64_t n_units = n_left < kPanelsAtOnce ? n_left : kPanelsAtOnce;
        __builtin_memset(sums, 0, sizeof sums);
        for (int64_t i = 0; i < n_units; ++i) {
            claim(args, unit + i * args.stream_pitch, 1);
        }
        for (int64_t part = 0; part < n_parts; ++part) {
            const Chunk chunk = {
                .panels = static_cast<const uint8_t*>(args.matrix.panels) +
                          (unit * n_parts + part) * n_bytes,
                .n_panels = n_units,
                .panel_pitch = args.stream_pitch * n_parts * n_bytes,
                .piece_pitch = piece_bytes(kLayout),
                .is_woven = false,
                .is_fetched = false,
                .x = args.x,
                .row_bytes = args.row_bytes,
                .n_in = args.matrix.n_in,
                .begin = 0,
                .end = blocks_for(args.matrix.n_in),
            };
            add_chunk<kLayout>(chunk, 1, sums + part * kLanes, n_parts * kLanes);
        }
        const Group group = {.begin_row = 0, .n_rows = 1, .begin_unit = unit, .n_units = n_units};
        for (int64_t i = 0; i < n_units; ++i) {
            finish_unit<kLayout>(args, group, unit + i * args.stream_pitch, width,
                                 sums + i * n_parts * kLanes);
        }
    }
}

template <Layout kLayout>
void multiply_units(const MultiplyArgs& args) {
    if constexpr (is_quantized(kLayout)) {
        if (args.stream_pitch != 0) {
            multiply_streams<kLayout>(args);
            return;
        }
    }
    constexpr int64_t kPanelSums = kRowsAtOnce * kSums<kLayout> * kLanes;
    const int64_t n_parts = args.finish == Finish::kGateAndUp ? 2 : 1;
    const int64_t width = args.matrix.n_out / n_parts;  // outputs in a row
    // With few rows, reading the weights takes most of the time, so panels apart are read one after
    // the other. Woven ones are read together, and so are those of codes for a single row, whose
    // sums would otherwise wait for each other.
    const bool side_by_side = args.n_rows > kFewRows || args.matrix.is_woven ||
                              (is_quantized(kLayout) && args.n_rows == 1);
    const int64_t units_at_once = side_by_side ? kPanelsAtOnce / n_parts : 1;
    alignas(64) float sums[kPanelsAtOnce * kPanelSums];
    Group group;
    for (group.begin_row = 0; group.begin_row < args.n_rows; group.begin_row += kRowsAtOnce) {
        const int64_t rows_left = args.n_rows - group.begin_row;
        group.n_rows = rows_left < kRowsAtOnce ? rows_left : kRowsAtOnce;
        for (group.begin_unit = args.begin_unit; group.begin_unit < args.end_unit;
             group.begin_unit += group.n_units) {
            const int64_t units_left = args.end_unit - group.begin_unit;
            const int64_t in_bundle = units_at_once - group.begin_unit % units_at_once;
            group.n_units = units_left < in_bundle ? units_left : in_bundle;
            if (args.n_rows == 1) {
                claim(args, group.begin_unit, group.n_units);
            }
            multiply_group<kLayout>(args, group, n_parts, sums);
            for (int64_t i = 0; i < group.n_units; ++i) {
                finish_unit<kLayout>(args, group, group.begin_unit + i, width,
                                     sums + i * n_parts * group.n_rows * kSums<kLayout> * kLanes);
            }
        }
    }
}

}  // namespace

void multiply_units(const MultiplyArgs& args) {
    switch (args.matrix.layout) {
        case Layout::kF32:
            return multiply_units<Layout::kF32>(args);
        case Layout::kBf16:
            return multiply_units<Layout::kBf16>(args);
        case Layout::kQ8:
            return multiply_units<Layout::kQ8>(args);
        case Layout::kQ6:
            return multiply_units<Layout::kQ6>(args);
        case Layout::kQ5:
            return multiply_units<Layout::kQ5>(args);
        case Layout::kQ4:
            return multiply_units<Layout::kQ4>(args);
        case Layout::kQ4_0:
            return multiply_units<Layout::kQ4_0>(args);
        case Layout::kQ5_0:
            return multiply_units<Layout::kQ5_0>(args);
        case Layout::kQ2_K:
            return multiply_units<Layout::kQ2_K>(args);
        case Layout::kQ4_K:
            return multiply_units<Layout::kQ4_K>(args);
        case Layout::kQ5_K:
            return multiply_units<Layout::kQ5_K>(args);
        case Layout::kQ6_K:
            return multiply_units<Layout::kQ6_K>(args);
        case Layout::kIq4Nl:
            return multiply_units<Layout::kIq4Nl>(args);
        case Layout::kIq4Xs:
            return multiply_units<Layout::kIq4Xs>(args);
        case Layout::kMxfp4:
            return multiply_units<Layout::kMxfp4>(args);
    }
}

}  // namespace soliton::SOLITON_ISA
