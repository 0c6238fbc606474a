// How the weights of a matrix lie in device memory. Owns the numbers; engine/device/cuda/weights.py
// writes this layout, and kernels read it.
//
//   kBf16  row by row; a row has padded_columns(n_in) bfloat16, zeros after n_in.
//   kQ8    and the others: in panels of 16 rows, and a panel in blocks of 64 columns; blocks follow
//   each
//          other, then panels. Rows and columns beyond the matrix are zeros. So a warp multiplies
//          one block at a time, and a lane's part of it is contiguous.
//
// In a block, lane l of a warp owns columns 16 (l % 4) + 0..15 of rows l / 4 and l / 4 + 8.
//
// A block is
//
//   kQ8    for each half of these columns (8 of them), for each lane, 16 bytes: the 8 codes + 128
//          of its first row, then of its second, as uint8; then 16 scales as float16, by row.
//          weight = scale * code, codes -127..127
//   kQ4    for each lane 16 bytes: 8 of its first row, then of its second; byte i has the code of
//          column i in its low half and that of column i + 8 in its high half, codes 0..15; then 16
//          pairs of scale and minimum as float16, by row. weight = scale * code + minimum
//   kMxfp4 codes as kQ4 has them, each a number of 4 bits: sign, two bits of exponent, one of the
//          fraction (0, 0.5, 1, 1.5, 2, 3, 4, 6); then for each row two bytes: the scales of its
//          columns 0..31 and 32..63. weight = 2^(scale - 127) * code
//
// A scale, and a minimum, belong to a group of 64 weights of a row, with kMxfp4 of 32.
#pragma once

#include <cstdint>

#include "ops.h"

namespace soliton::cuda {

inline constexpr int64_t kPanelRows = 16;
inline constexpr int64_t kBlockColumns = 64;

__host__ __device__ constexpr int64_t panels_for(int64_t n_out) {
    return (n_out + kPanelRows - 1) / kPanelRows;
}

__host__ __device__ constexpr int64_t blocks_for(int64_t n_in) {
    return (n_in + kBlockColumns - 1) / kBlockColumns;
}

// The columns of a kBf16 row as stored.
__host__ __device__ constexpr int64_t padded_columns(int64_t n_in) {
    return blocks_for(n_in) * kBlockColumns;
}

__host__ __device__ constexpr int64_t block_bytes(Layout layout) {
    switch (layout) {
        case Layout::kBf16:
            return kPanelRows * kBlockColumns * 2;
        case Layout::kQ8:
            return kPanelRows * kBlockColumns + kPanelRows * 2;
        case Layout::kQ4:
            return kPanelRows * kBlockColumns / 2 + kPanelRows * 4;
        case Layout::kMxfp4:
            return kPanelRows * kBlockColumns / 2 + kPanelRows * 2;
    }
    return 0;
}

}  // namespace soliton::cuda
