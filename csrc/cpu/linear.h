// What the kernels of matrix products and those who call them agree on: rows of x as the kernels
// read them, and their work. Owns no code that is shared between instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../layout.h"
#include "../ops.h"

namespace soliton {

// A row of x for quantised matrices: codes (padded n_in,) as int8, then one of these per block of
// 32, then, where the instruction set multiplies them, the codes as words. x = scale * code, codes
// -127..127. A block with NaN or infinity has codes 0 and that as its scale, so that every sum with
// it is NaN.
struct CodeBlock {
    float scale;
    float scaled_sum;  // scale * sum of the codes
    int32_t offset;    // -128 * sum of the codes: what codes + 128 of weights make too much
};

// The words of a block: the codes in even places, then those in odd ones.
inline constexpr int64_t kBlockWordBytes = kBlockColumns * 2;

// From the start of a row to its words.
[[gnu::always_inline]] constexpr inline int64_t words_at(int64_t n_in) {
    return blocks_for(n_in) * (kBlockColumns + int64_t{sizeof(CodeBlock)});
}

// From one row to the next. An odd number of cache lines, so that the rows of a tile do not fall on
// the same few places of the cache.
[[gnu::always_inline]] constexpr inline int64_t code_row_bytes(int64_t n_in) {
    const int64_t n_bytes = words_at(n_in) + blocks_for(n_in) * kBlockWordBytes;
    return ((n_bytes + 63) / 64 | 1) * 64;
}

[[gnu::always_inline]] constexpr inline int64_t float_row_bytes(int64_t n_in) {
    return ((n_in * 4 + 63) / 64 | 1) * 64;
}

// Some rows of x times some units of a matrix. A unit is what one row of outputs needs at once: a
// panel, or with kSiluGate a panel of gates and the panel of ups after it.
struct MultiplyArgs {
    Matrix matrix;
    const std::byte* x;  // rows of float, or of codes where the layout is quantised
    int64_t row_bytes;   // from one row of x to the next
    int64_t n_rows;
    const float* bias;  // (n_out,) or null
    float* out;         // (n_rows, n_out); with kSiluGate (n_rows, n_out / 2)
    Epilogue epilogue;
    int64_t begin_unit;
    int64_t end_unit;
};

enum class SourceType : int32_t { kF32, kF16, kBf16 };

// Rows of weights into panels begin_panel.. before end_panel of a matrix.
struct PackArgs {
    const int64_t* rows;  // address of each row (n_in,) of the source type, 16 per panel; 0: zeros
    SourceType source;
    int64_t n_in;
    Layout layout;
    void* panels;  // of the whole matrix
    int64_t begin_panel;
    int64_t end_panel;
};

// Where a weight is NaN or infinite: its row among PackArgs::rows and its column; row -1: nowhere.
struct WeightIndex {
    int64_t row;
    int64_t column;
};

}  // namespace soliton
