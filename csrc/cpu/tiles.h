// What the files of the matrix products share: a chunk of work, the sums that it adds to, and how
// rows are cut into tiles. Knows neither floats nor codes.
//
// Everything but the chunk is in an unnamed namespace: no copy is shared between instruction sets.
#pragma once

#include "isa/lanes.h"
#include "kernels.h"

namespace soliton::SOLITON_ISA {

// Blocks [begin, end), which are whole pieces, of panels at the same distance; rows of x from `x`
// on.
struct Chunk {
    const uint8_t* panels;
    int64_t n_panels;
    int64_t panel_pitch;  // bytes from one panel's piece 0 to the next panel's
    int64_t piece_pitch;  // bytes from one piece of a panel to the next
    bool is_woven;
    bool is_fetched;  // ahead, by the product of one row with woven panels
    const std::byte* x;
    int64_t row_bytes;
    int64_t n_in;
    int64_t begin;
    int64_t end;
};

// Adds rows of x times a chunk to the sums (n_rows, kSums, kLanes) of each panel, which are
// panel_sums apart. Defined in linear_floats.cpp and linear_codes.h.
template <Layout kLayout>
void add_chunk(const Chunk& chunk, int64_t n_rows, float* sums, int64_t panel_sums);

namespace {

// Sums per output: for floats one of the even and one of the odd columns.
template <Layout kLayout>
constexpr int64_t kSums = is_quantized(kLayout) ? 1 : 2;

// This many blocks of weights stay in the first-level cache, and those of the rows of x in the
// second.
template <Layout kLayout>
constexpr int64_t kChunkBlocks = kLayout == Layout::kF32 ? 8 : 16;

// Up to this many rows, reading the weights takes most of the time.
constexpr int64_t kFewRows = 16;
constexpr int64_t kLineBytes = 64;

// Part of some rows of x.
struct Rows {
    const std::byte* at;
    int64_t stride;  // bytes
};

// Weights are read once and in order, but the processor's own prefetcher falls behind. So a tile
// fetches ahead: with one row into the first-level cache, and with several, which need more time
// between two lines, further and into the second (bench/RESULTS.md).
template <int kRows>
SOLITON_INLINE void prefetch(const uint8_t* weights, int64_t n_bytes) {
    constexpr int64_t kAhead = kRows == 1 ? 8 * 1024 : 16 * 1024;
    constexpr int kLevel = kRows == 1 ? 3 : 2;  // as the builtin counts
    for (int64_t i = 0; i < n_bytes; i += kLineBytes) {
        __builtin_prefetch(weights + kAhead + i, 0, kLevel);
    }
}

// Calls `function` with each number below kRows. A recursion, because the compiler keeps sums in
// memory if a loop over them is not unrolled early.
template <int kRows, typename Function>
SOLITON_INLINE void each_row(const Function& function) {
    if constexpr (kRows > 0) {
        each_row<kRows - 1>(function);
        function(kRows - 1);
    }
}

// Calls `function` with `n` as its template argument, n at most kMost.
template <int kMost, typename Function>
SOLITON_INLINE void with_count(int64_t n, Function function) {
    if (n == kMost) {
        function.template operator()<kMost>();
    } else if constexpr (kMost > 1) {
        with_count<kMost - 1>(n, function);
    }
}

// Calls `function` with each tile's first row, and with its number of rows as the template
// argument. Makes as few tiles as possible, all of nearly the same size.
template <int kMost, typename Function>
SOLITON_INLINE void each_tile(int64_t n_rows, Function function) {
    for (int64_t row = 0; row < n_rows;) {
        const int64_t left = n_rows - row;
        const int64_t tiles = (left + kMost - 1) / kMost;
        const int64_t size = (left + tiles - 1) / tiles;
        with_count<kMost>(size, [&]<int kRows>() { function.template operator()<kRows>(row); });
        row += size;
    }
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
