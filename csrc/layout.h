// How the weights of a matrix lie in memory. Owns the numbers; cpu/pack.cpp writes what is
// described here, and kernels read it.
//
// W (n_out, n_in) is cut into panels of 16 rows, and a panel into blocks of 32 columns. So a vector
// holds the same element of 16 rows, and one row of x serves them all. Rows and columns beyond the
// matrix are zeros. Blocks follow each other, then panels. Codes have a second order, in which four
// panels are woven: block 0 of each, then block 1 of each; the last ones are fewer if the panels
// are no multiple of four. A block is, for rows 0..15:
//
//   kF32   for each column the 16 floats
//   kBf16  for each pair of columns the 16 pairs of bfloat16
//   kQ8    for each group of 4 columns the 16 times 4 codes + 128 as uint8; then 16 scales as
//          float16. weight = scale * code, codes -127..127
//   kQ6    for each four groups three lines of 16 times 4 bytes. Their lower six bits are the codes
//          of three groups, their upper two bits those of the fourth, the highest bits in the first
//          line. Codes 0..63, scales and minima as for kQ4
//   kQ5    five lines of 16 times 4 bytes. Their lower five bits are the codes of groups 0, 1, 3, 4
//          and 6. Group 2 has the upper three bits of line 0, then the upper two of line 1; group 5
//          those of lines 2 and 3; group 7 the upper three bits of line 4, then bit 5 of line 1 and
//          that of line 3. Codes 0..31, scales and minima as for kQ4
//   kQ4    for each two groups of 4 columns 16 times 4 bytes, the first group in the low halves,
//          the second in the high ones, codes 0..15; then 16 scales and 16 minima as float16.
//          weight = scale * code + minimum
//
// A matrix of gate and up rows alternates: panel 2i has gate rows 16i.., panel 2i + 1 up rows
// from 16i on.
#pragma once

#include <cstdint>

#include "ops.h"

namespace soliton {

// Panels are cached on disk. Increase this number whenever the same weights give other bytes,
// because the layout or the packing changed; cached panels are then packed again.
inline constexpr int64_t kLayoutVersion = 3;

inline constexpr int64_t kPanelRows = 16;
inline constexpr int64_t kBlockColumns = 32;
// One row is multiplied by four panels of codes at once, whose sums do not wait for each other.
// Woven, they are one long stream of memory, and otherwise four short ones; which of these a
// processor prefetches better, engine/device/cpu/weave.py measures.
inline constexpr int64_t kPanelsAtOnce = 4;

// always_inline: the files of all instruction sets use these, and must not share one compiled copy.

// The bits of a code, in a quantised layout.
[[gnu::always_inline]] constexpr inline int code_bits(Layout layout) {
    return layout == Layout::kQ8 ? 8 : layout == Layout::kQ6 ? 6 : layout == Layout::kQ5 ? 5 : 4;
}

// Whether blocks have a minimum for each row.
[[gnu::always_inline]] constexpr inline bool has_minimum(Layout layout) {
    return layout == Layout::kQ6 || layout == Layout::kQ5 || layout == Layout::kQ4;
}

// Bytes of the codes of a block; the scales follow.
[[gnu::always_inline]] constexpr inline int64_t code_bytes(Layout layout) {
    return kBlockColumns * kPanelRows * code_bits(layout) / 8;
}

// The code at place `at` of the 64 in group j, as a block of a quantised layout holds it.
[[gnu::always_inline]] constexpr inline int stored_code(Layout layout, const uint8_t* block,
                                                        int64_t j, int64_t at) {
    constexpr int64_t kLine = kPanelRows * 4;
    const uint8_t* line = block + at;
    if (layout == Layout::kQ8) {
        return line[j * kLine];
    }
    if (layout == Layout::kQ4) {
        return j % 2 == 0 ? line[j / 2 * kLine] & 15 : line[j / 2 * kLine] >> 4;
    }
    if (layout == Layout::kQ6) {
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

[[gnu::always_inline]] constexpr inline int64_t block_bytes(Layout layout) {
    switch (layout) {
        case Layout::kF32:
            return kBlockColumns * kPanelRows * 4;
        case Layout::kBf16:
            return kBlockColumns * kPanelRows * 2;
        case Layout::kQ8:
            return code_bytes(layout) + kPanelRows * 2;
        case Layout::kQ6:
        case Layout::kQ5:
        case Layout::kQ4:
            return code_bytes(layout) + kPanelRows * 4;
    }
    return 0;
}

[[gnu::always_inline]] constexpr inline int64_t panels_for(int64_t n_out) {
    return (n_out + kPanelRows - 1) / kPanelRows;
}

[[gnu::always_inline]] constexpr inline int64_t blocks_for(int64_t n_in) {
    return (n_in + kBlockColumns - 1) / kBlockColumns;
}

[[gnu::always_inline]] constexpr inline int64_t panel_bytes(Layout layout, int64_t n_in) {
    return blocks_for(n_in) * block_bytes(layout);
}

[[gnu::always_inline]] constexpr inline bool is_quantized(Layout layout) {
    return layout != Layout::kF32 && layout != Layout::kBf16;
}

// Where the blocks of a panel lie.
struct PanelPlace {
    int64_t begin;        // of block 0, in bytes from the begin of the matrix
    int64_t pitch;        // bytes to block 0 of the next panel; if woven, of the same four
    int64_t block_pitch;  // bytes from one block to the next
};

[[gnu::always_inline]] constexpr inline PanelPlace panel_place(Layout layout, int64_t n_in,
                                                               int64_t n_panels, bool is_woven,
                                                               int64_t panel) {
    const int64_t bytes = panel_bytes(layout, n_in);
    if (!is_woven) {
        return {panel * bytes, bytes, block_bytes(layout)};
    }
    const int64_t first = panel - panel % kPanelsAtOnce;
    const int64_t left = n_panels - first;
    const int64_t count = left < kPanelsAtOnce ? left : kPanelsAtOnce;
    return {first * bytes + (panel - first) * block_bytes(layout), block_bytes(layout),
            count * block_bytes(layout)};
}

}  // namespace soliton
