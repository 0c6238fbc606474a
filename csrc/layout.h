// How the weights of a matrix lie in memory. Owns the numbers; cpu/pack.cpp and
// cpu/pack_blocks.cpp write what is described here, and kernels read it.
//
// W (n_out, n_in) is cut into panels of 16 rows, and a panel into blocks of 32 columns. So a vector
// holds the same element of 16 rows, and one row of x serves them all. Rows and columns beyond the
// matrix are zeros. The blocks of a panel lie in pieces: of eight blocks, whose scales come first,
// if a GGUF type has super-blocks of 256 columns (n_in is a multiple of that), and otherwise of
// one. Pieces follow each other, then panels. Codes have a second order, in which four panels are
// woven: piece 0 of each, then piece 1 of each; the last ones are fewer if the panels are no
// multiple of four.
//
// Blocks of floats are, for rows 0..15:
//
//   kF32   for each column the 16 floats
//   kBf16  for each pair of columns the 16 pairs of bfloat16
//
// Every other layout is a way to store codes, and a way to store scales. The eight groups of a
// block are 4 columns each; a line has 4 bytes for each row, which belong to the columns of a
// group. Codes of
//
//   8 bits  fill a line for each group
//   6 bits  three lines for each four groups. Their lower six bits are the codes of three groups,
//           their upper two bits those of the fourth, the highest bits in the first line
//   5 bits  five lines. Their lower five bits are the codes of groups 0, 1, 3, 4 and 6. Group 2 has
//           the upper three bits of line 0, then the upper two of line 1; group 5 those of lines 2
//           and 3; group 7 the upper three bits of line 4, then bit 5 of line 1 and that of line 3
//   4 bits  a line for each two groups, the first in the low halves, the second in the high ones
//   2 bits  a line for each four groups, the first in the lowest bits
//
// code_value says which number a code stands for; Scaling says what it is multiplied with.
//
// A matrix of gate and up rows alternates: panel 2i has gate rows 16i.., panel 2i + 1 up rows
// from 16i on. If they are in different layouts, they are two matrices.
#pragma once

#include <cstdint>

#include "ops.h"

namespace soliton {

// Panels are cached on disk. Increase this number whenever the same weights give other bytes,
// because the layout or the packing changed, or whenever the kernels read another order fastest;
// cached panels are then packed again.
inline constexpr int64_t kLayoutVersion = 5;

inline constexpr int64_t kPanelRows = 16;
inline constexpr int64_t kBlockColumns = 32;
// One row is multiplied by four panels of codes at once, whose sums do not wait for each other.
// Woven, they are one long stream of memory, which may be fetched ahead, and otherwise four
// streams: neighbours, or if panels are short panels far apart, so that each stream goes on
// (ops_linear.cpp). Which of these a processor reads fastest, engine/device/cpu/weave.py measures.
inline constexpr int64_t kPanelsAtOnce = 4;
// Many rows are multiplied by this many panels at once, where the registers suffice: a number of x
// is then loaded once for all of them.
inline constexpr int64_t kTilePanels = 2;

// always_inline: the files of all instruction sets use these, and must not share one compiled copy.

// The bits of a code, in a quantised layout.
[[gnu::always_inline]] constexpr inline int code_bits(Layout layout) {
    switch (layout) {
        case Layout::kQ6:
        case Layout::kQ6_K:
            return 6;
        case Layout::kQ5:
        case Layout::kQ5_0:
        case Layout::kQ5_K:
            return 5;
        case Layout::kQ4:
        case Layout::kQ4_0:
        case Layout::kQ4_K:
        case Layout::kIq4Nl:
        case Layout::kIq4Xs:
        case Layout::kMxfp4:
            return 4;
        case Layout::kQ2_K:
            return 2;
        default:
            return 8;
    }
}

// How a layout stores the scales of 16 rows, behind the codes of a piece of one block, or before
// those of eight. A weight is scale * value of its code, plus a minimum where there are minima.
enum class Scaling {
    kNone,
    // float16 scales.
    kScale,
    // float16 scales, then float16 minima.
    kLine,
    // A byte e per row: the scale is 2^(e - 128).
    kExponent,
    // float16 factors of the scales, then those of the minima; then numbers of 6 bits for the eight
    // blocks, a byte for each row: first those of block 0's scales, then of its minima, then those
    // of block 1. As in four groups of 6-bit codes, three lines hold four numbers per row each, and
    // in their upper bits the last four. scale = factor * number, minimum likewise.
    kSuperLine,
    // float16 factors, then the same of two numbers for each of three half lines, and the last two
    // in their upper bits. scale = factor * (number - 32).
    kSuperScale,
    // float16 factors, then for each 16 columns an int8 per row: scale = factor * number.
    kSuperHalves,
    // float16 factors of the scales, then those of the minima; then for each 16 columns a byte per
    // row, whose lower half is for the scale and the other for the minimum.
    kSuperHalfLines,
};

[[gnu::always_inline]] constexpr inline Scaling scaling(Layout layout) {
    switch (layout) {
        case Layout::kQ8:
        case Layout::kQ4_0:
        case Layout::kQ5_0:
        case Layout::kIq4Nl:
            return Scaling::kScale;
        case Layout::kQ6:
        case Layout::kQ5:
        case Layout::kQ4:
            return Scaling::kLine;
        case Layout::kMxfp4:
            return Scaling::kExponent;
        case Layout::kQ4_K:
        case Layout::kQ5_K:
            return Scaling::kSuperLine;
        case Layout::kIq4Xs:
            return Scaling::kSuperScale;
        case Layout::kQ6_K:
            return Scaling::kSuperHalves;
        case Layout::kQ2_K:
            return Scaling::kSuperHalfLines;
        case Layout::kF32:
        case Layout::kBf16:
            return Scaling::kNone;
    }
    return Scaling::kNone;
}

[[gnu::always_inline]] constexpr inline bool has_minimum(Layout layout) {
    const Scaling kind = scaling(layout);
    return kind == Scaling::kLine || kind == Scaling::kSuperLine ||
           kind == Scaling::kSuperHalfLines;
}

// The scales that a row has in a block, each for as many columns.
[[gnu::always_inline]] constexpr inline int scales_per_block(Layout layout) {
    const Scaling kind = scaling(layout);
    return kind == Scaling::kSuperHalves || kind == Scaling::kSuperHalfLines ? 2 : 1;
}

// Blocks of a piece.
[[gnu::always_inline]] constexpr inline int64_t piece_blocks(Layout layout) {
    return scaling(layout) >= Scaling::kSuperLine ? 8 : 1;
}

// Bytes of the scales of a piece.
[[gnu::always_inline]] constexpr inline int64_t scale_bytes(Layout layout) {
    switch (scaling(layout)) {
        case Scaling::kNone:
            return 0;
        case Scaling::kScale:
            return kPanelRows * 2;
        case Scaling::kLine:
            return kPanelRows * 4;
        case Scaling::kExponent:
            return kPanelRows;
        case Scaling::kSuperLine:
            return kPanelRows * (4 + 12);
        case Scaling::kSuperScale:
            return kPanelRows * (2 + 6);
        case Scaling::kSuperHalves:
            return kPanelRows * (2 + 16);
        case Scaling::kSuperHalfLines:
            return kPanelRows * (4 + 16);
    }
    return 0;
}

// Bytes of the codes, or floats, of a block.
[[gnu::always_inline]] constexpr inline int64_t code_bytes(Layout layout) {
    const int bits = layout == Layout::kF32 ? 32 : layout == Layout::kBf16 ? 16 : code_bits(layout);
    return kBlockColumns * kPanelRows * bits / 8;
}

[[gnu::always_inline]] constexpr inline int64_t piece_bytes(Layout layout) {
    return piece_blocks(layout) * code_bytes(layout) + scale_bytes(layout);
}

// Where the codes of a block lie in its piece, and where the scales do.
[[gnu::always_inline]] constexpr inline int64_t codes_at(Layout layout, int64_t block) {
    return piece_blocks(layout) == 1 ? 0 : scale_bytes(layout) + block * code_bytes(layout);
}
[[gnu::always_inline]] constexpr inline int64_t scales_at(Layout layout) {
    return piece_blocks(layout) == 1 ? code_bytes(layout) : 0;
}

// What the 4-bit codes of some layouts stand for. Source: the GGUF types of these names.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr int8_t kMxfp4Values[16] = {0, 1,  2,  3,  4,  6,  8,  12,  // twice the values
                                            0, -1, -2, -3, -4, -6, -8, -12};

[[gnu::always_inline]] constexpr inline bool has_table(Layout layout) {
    return layout == Layout::kIq4Nl || layout == Layout::kIq4Xs || layout == Layout::kMxfp4;
}

// What a code without a table is larger than the number that it stands for.
[[gnu::always_inline]] constexpr inline int code_excess(Layout layout) {
    switch (layout) {
        case Layout::kQ8:
            return 128;
        case Layout::kQ6_K:
            return 32;
        case Layout::kQ5_0:
            return 16;
        case Layout::kQ4_0:
            return 8;
        default:
            return 0;
    }
}

// The number that a stored code stands for.
[[gnu::always_inline]] constexpr inline int code_value(Layout layout, int stored) {
    if (has_table(layout)) {
        return layout == Layout::kMxfp4 ? kMxfp4Values[stored] : kIq4Values[stored];
    }
    return stored - code_excess(layout);
}

// The code at place `at` of the 64 in group j, as a block of a quantised layout holds it.
[[gnu::always_inline]] constexpr inline int stored_code(Layout layout, const uint8_t* block,
                                                        int64_t j, int64_t at) {
    constexpr int64_t kLine = kPanelRows * 4;
    const uint8_t* line = block + at;
    const int bits = code_bits(layout);
    if (bits == 8) {
        return line[j * kLine];
    }
    if (bits == 4 || bits == 2) {
        const int64_t groups = 8 / bits;  // of a line
        return line[j / groups * kLine] >> j % groups * bits & ((1 << bits) - 1);
    }
    if (bits == 6) {
        line += j / 4 * 3 * kLine;
        if (j % 4 < 3) {
            return line[j % 4 * kLine] & 63;
        }
        return line[0] >> 6 << 4 | line[kLine] >> 6 << 2 | line[2 * kLine] >> 6;
    }
    switch (j) {
        case 2:
            return line[0] >> 5 << 2 | line[kLine] >> 6;
        case 5:
            return line[2 * kLine] >> 5 << 2 | line[3 * kLine] >> 6;
        case 7:
            return line[4 * kLine] >> 5 << 2 | (line[kLine] & 32) >> 4 |
                   (line[3 * kLine] & 32) >> 5;
        default:
            return line[(j - j / 3) * kLine] & 31;
    }
}

[[gnu::always_inline]] constexpr inline int64_t panels_for(int64_t n_out) {
    return (n_out + kPanelRows - 1) / kPanelRows;
}

[[gnu::always_inline]] constexpr inline int64_t blocks_for(int64_t n_in) {
    return (n_in + kBlockColumns - 1) / kBlockColumns;
}

[[gnu::always_inline]] constexpr inline int64_t panel_bytes(Layout layout, int64_t n_in) {
    const int64_t blocks = piece_blocks(layout);
    return (blocks_for(n_in) + blocks - 1) / blocks * piece_bytes(layout);
}

[[gnu::always_inline]] constexpr inline bool is_quantized(Layout layout) {
    return layout != Layout::kF32 && layout != Layout::kBf16;
}

// Where the pieces of a panel lie.
struct PanelPlace {
    int64_t begin;        // of piece 0, in bytes from the begin of the matrix
    int64_t pitch;        // bytes to piece 0 of the next panel; if woven, of the same four
    int64_t piece_pitch;  // bytes from one piece to the next
};

[[gnu::always_inline]] constexpr inline PanelPlace panel_place(Layout layout, int64_t n_in,
                                                               int64_t n_panels, bool is_woven,
                                                               int64_t panel) {
    const int64_t bytes = panel_bytes(layout, n_in);
    const int64_t piece = piece_bytes(layout);
    if (!is_woven) {
        return {panel * bytes, bytes, piece};
    }
    const int64_t first = panel - panel % kPanelsAtOnce;
    const int64_t left = n_panels - first;
    const int64_t count = left < kPanelsAtOnce ? left : kPanelsAtOnce;
    return {first * bytes + (panel - first) * piece, piece, count * piece};
}

}  // namespace soliton
