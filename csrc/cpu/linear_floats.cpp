// Products of rows of floats with panels of floats or of bfloat16. Compiled once per instruction
// set (see kernels.h); linear.cpp chooses the rows and panels.
#include "tiles.h"

namespace soliton::SOLITON_ISA {
namespace {

// Rows of a tile share the loaded weights, and their sums stay in registers. There are enough sums
// to hide an instruction's latency, and no more than there are registers.
#if defined(SOLITON_LANES_AVX512)
constexpr int kMostRows = 12;
#elif defined(SOLITON_LANES_AVX2) || defined(SOLITON_LANES_NEON)
constexpr int kMostRows = 6;
#else
constexpr int kMostRows = 1;
#endif

// Column k of a panel.
template <Layout kLayout>
SOLITON_INLINE Floats load_column(const uint8_t* weights, int64_t k, bool odd) {
    if constexpr (kLayout == Layout::kF32) {
        return load(reinterpret_cast<const float*>(weights) + k * kLanes);
    } else {
        return load_bfloat16(weights + (k & ~int64_t{1}) * kLanes * 2, odd);
    }
}

// Adds the even columns, the odd columns, or both in one loop.
template <Layout kLayout, int kRows, bool kPrefetch, bool kEven, bool kOdd>
SOLITON_INLINE void add_columns(const uint8_t* weights, Rows x, int64_t n_columns, float* sums) {
    constexpr int64_t kPairBytes = 2 * piece_bytes(kLayout) / kBlockColumns;
    Floats even[kRows];
    Floats odd[kRows];
    for (int row = 0; row < kRows; ++row) {
        even[row] = load(sums + (2 * row) * kLanes);
        odd[row] = load(sums + (2 * row + 1) * kLanes);
    }
    const auto value = [&](int row, int64_t k) {
        return broadcast(reinterpret_cast<const float*>(x.at + row * x.stride)[k]);
    };
    int64_t k = 0;
    for (; k + 1 < n_columns; k += 2) {
        if constexpr (kEven) {
            if constexpr (kPrefetch) {
                prefetch<kRows>(weights + k / 2 * kPairBytes, kPairBytes);
            }
            const Floats column = load_column<kLayout>(weights, k, false);
            for (int row = 0; row < kRows; ++row) {
                even[row] = multiply_add(value(row, k), column, even[row]);
            }
        }
        if constexpr (kOdd) {
            const Floats column = load_column<kLayout>(weights, k + 1, true);
            for (int row = 0; row < kRows; ++row) {
                odd[row] = multiply_add(value(row, k + 1), column, odd[row]);
            }
        }
    }
    if (kEven && k < n_columns) {
        const Floats column = load_column<kLayout>(weights, k, false);
        for (int row = 0; row < kRows; ++row) {
            even[row] = multiply_add(value(row, k), column, even[row]);
        }
    }
    for (int row = 0; row < kRows; ++row) {
        if constexpr (kEven) {
            store(sums + (2 * row) * kLanes, even[row]);
        }
        if constexpr (kOdd) {
            store(sums + (2 * row + 1) * kLanes, odd[row]);
        }
    }
}

// Not inlined, so that every tile has all the registers.
template <Layout kLayout, int kRows, bool kPrefetch>
[[gnu::noinline]] void add_tile(const uint8_t* weights, Rows x, int64_t n_columns, float* sums) {
#if defined(SOLITON_LANES_AVX2) || defined(SOLITON_LANES_NEON)
    constexpr bool kInOneGo = kRows <= 3;  // a sum takes an eighth of the registers
#else
    constexpr bool kInOneGo = true;
#endif
    if constexpr (kInOneGo) {
        add_columns<kLayout, kRows, kPrefetch, true, true>(weights, x, n_columns, sums);
    } else {
        add_columns<kLayout, kRows, kPrefetch, true, false>(weights, x, n_columns, sums);
        add_columns<kLayout, kRows, kPrefetch, false, true>(weights, x, n_columns, sums);
    }
}

}  // namespace

template <Layout kLayout>
void add_chunk(const Chunk& chunk, int64_t n_rows, float* sums, int64_t panel_sums) {
    const int64_t begin = chunk.begin * kBlockColumns;
    const int64_t end = chunk.end * kBlockColumns;
    const int64_t n_columns = (end < chunk.n_in ? end : chunk.n_in) - begin;
    for (int64_t i = 0; i < chunk.n_panels; ++i) {
        const uint8_t* weights =
            chunk.panels + i * chunk.panel_pitch + chunk.begin * chunk.piece_pitch;
        each_tile<kMostRows>(n_rows, [&]<int kRows>(int64_t row) {
            const Rows x = {chunk.x + row * chunk.row_bytes + begin * 4, chunk.row_bytes};
            float* tile_sums = sums + i * panel_sums + row * kSums<kLayout> * kLanes;
            if (row == 0) {  // for the others the weights are in the cache
                add_tile<kLayout, kRows, true>(weights, x, n_columns, tile_sums);
            } else {
                add_tile<kLayout, kRows, false>(weights, x, n_columns, tile_sums);
            }
        });
    }
}

template void add_chunk<Layout::kF32>(const Chunk&, int64_t, float*, int64_t);
template void add_chunk<Layout::kBf16>(const Chunk&, int64_t, float*, int64_t);

}  // namespace soliton::SOLITON_ISA
