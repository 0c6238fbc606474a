// What the kernels of matrix products and their callers share: how rows of x are stored, and the
// work of a call. Owns no code that is shared between instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../layout.h"
#include "../ops.h"

namespace soliton {

// A row of x for quantised matrices: codes (padded n_in,) as int8, then one CodeBlock per block of
// 32, then the codes as words if the instruction set multiplies words. x = scale * code, codes
// -127..127. A block with NaN or infinity has codes 0 and that value as its scale, so that every
// sum with it is NaN.
struct CodeBlock {
    float scale;
    float scaled_sum;  // scale * sum of the codes
    int32_t offset;    // -128 * sum of the codes; corrects for weights stored as code + 128
    int32_t half_sum;  // of the codes of the first 16 columns
};

// The words of a block: the codes at even places, then those at odd places.
inline constexpr int64_t kBlockWordBytes = kBlockColumns * 2;

// The offset of the words in a row.
[[gnu::always_inline]] constexpr inline int64_t words_at(int64_t n_in) {
    return blocks_for(n_in) * (kBlockColumns + int64_t{sizeof(CodeBlock)});
}

// The distance from one row to the next: an odd number of cache lines, so that the rows of a tile
// do not map to the same few cache sets.
[[gnu::always_inline]] constexpr inline int64_t code_row_bytes(int64_t n_in) {
    const int64_t n_bytes = words_at(n_in) + blocks_for(n_in) * kBlockWordBytes;
    return ((n_bytes + 63) / 64 | 1) * 64;
}

[[gnu::always_inline]] constexpr inline int64_t float_row_bytes(int64_t n_in) {
    return ((n_in * 4 + 63) / 64 | 1) * 64;
}

// What becomes of a product.
enum class Finish : int32_t {
    kStore,
    kGateAndUp,  // panels of gate rows and of up rows take turns
    kUp,         // panels of up rows; out has the gates already
};

// Some rows of x times some units of a matrix. A unit is what 16 outputs of a row need: a panel, or
// with kGateAndUp a panel of gate rows and the panel of up rows after it.
struct MultiplyArgs {
    Matrix matrix;
    const std::byte* x;  // rows of float, or of codes if the layout is quantised
    int64_t row_bytes;   // from one row of x to the next
    int64_t n_rows;
    const float* bias;  // (n_out,) or null
    float* out;         // (n_rows, n_out) of wider rows; with kGateAndUp (n_rows, n_out / 2)
    int64_t out_pitch;  // floats from one row of out to the next
    Finish finish;
    Epilogue epilogue;
    float scale;
    float softcap;
    Xielu xielu;
    int64_t begin_unit;
    int64_t end_unit;
    // With a pitch other than 0 also the units 1, 2, ... kPanelsAtOnce - 1 pitches behind each of
    // these, if they are before last_unit. Only for one row of x and codes that are not woven.
    int64_t stream_pitch;
    int64_t last_unit;
};

// How rows are stored: as floats, or in the blocks of a GGUF type.
enum class SourceType : int32_t {
    kF32,
    kF16,
    kBf16,
    kQ4_0,
    kQ4_1,
    kQ5_0,
    kQ5_1,
    kQ8_0,
    kQ2_K,
    kQ3_K,
    kQ4_K,
    kQ5_K,
    kQ6_K,
    kIq4Nl,
    kIq4Xs,
    kMxfp4,
};

// Packs rows of weights into panels [begin_panel, end_panel) of a matrix.
struct PackArgs {
    const int64_t* rows;  // address of each row (n_in,) of the source type, 16 per panel; 0: zeros
    SourceType source;
    int64_t n_in;   // a multiple of the columns of the source's blocks
    Layout layout;  // one of those before kQ4_0, or the one that holds the source as it is
    bool is_woven;
    void* panels;  // of the whole matrix
    int64_t n_panels;
    int64_t begin_panel;
    int64_t end_panel;
    const float* importance;  // of each column (n_in,), unless for kQ8; null: all the same
};

// The place of a NaN or infinite weight: its row in PackArgs::rows and its column. Row -1 means
// that there is none.
struct WeightIndex {
    int64_t row;
    int64_t column;
};

}  // namespace soliton
