// Products of rows of floats with panels of floats or of bfloat16. Compiled once per instruction
// set (see kernels.h); linear.cpp chooses the rows and panels.
#include "tiles.h"

namespace soliton::SOLITON_ISA {
namespace {

// Rows of a tile share the loaded weights, and panels of a tile the loaded rows. Its sums stay in
// registers: there are enough to hide an instruction's latency, and no more than there are
// registers. A tile of two panels loads less for each product, but reads two streams of memory.
#if defined(SOLITON_LANES_AVX512)
constexpr int kMostRows = 12;  // of a tile of one panel
constexpr int kPairRows = 6;   // of a tile of two; 0: there are none
#elif defined(SOLITON_LANES_AVX2) || defined(SOLITON_LANES_NEON)
constexpr int kMostRows = 6;
constexpr int kPairRows = 0;
#else
constexpr int kMostRows = 1;
constexpr int kPairRows = 0;
#endif

// Neighbouring panels, from the same column on, and where the sums of their products with the first
// row of a tile lie.
struct Panels {
    const uint8_t* weights;
    int64_t pitch;
    float* sums;
    int64_t sums_pitch;
};

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
template <Layout kLayout, int kRows, int kPanels, bool kPrefetch, bool kEven, bool kOdd>
SOLITON_INLINE void add_columns(const Panels& panels, Rows x, int64_t n_columns) {
    constexpr int64_t kPairBytes = 2 * piece_bytes(kLayout) / kBlockColumns;
    const auto sums = [&](int panel, int row, bool odd) {
        return panels.sums + panel * panels.sums_pitch + (2 * row + odd) * kLanes;
    };
    Floats even[kPanels][kRows];
    Floats odd[kPanels][kRows];
    for (int panel = 0; panel < kPanels; ++panel) {
        for (int row = 0; row < kRows; ++row) {
            even[panel][row] = load(sums(panel, row, false));
            odd[panel][row] = load(sums(panel, row, true));
        }
    }
    const auto add_column = [&](int64_t k, bool is_odd,
                                Floats(&to)[kPanels][kRows]) __attribute__((always_inline)) {
        Floats column[kPanels];
        for (int panel = 0; panel < kPanels; ++panel) {
            column[panel] = load_column<kLayout>(panels.weights + panel * panels.pitch, k, is_odd);
        }
        for (int row = 0; row < kRows; ++row) {
            const Floats value =
                broadcast(reinterpret_cast<const float*>(x.at + row * x.stride)[k]);
            for (int panel = 0; panel < kPanels; ++panel) {
                to[panel][row] = multiply_add(value, column[panel], to[panel][row]);
            }
        }
    };
    int64_t k = 0;
    for (; k + 1 < n_columns; k += 2) {
        if constexpr (kEven) {
            if constexpr (kPrefetch) {
                for (int panel = 0; panel < kPanels; ++panel) {
                    prefetch<kRows>(panels.weights + panel * panels.pitch + k / 2 * kPairBytes,
                                    kPairBytes);
                }
            }
            add_column(k, false, even);
        }
        if constexpr (kOdd) {
            add_column(k + 1, true, odd);
        }
    }
    if (kEven && k < n_columns) {
        add_column(k, false, even);
    }
    for (int panel = 0; panel < kPanels; ++panel) {
        for (int row = 0; row < kRows; ++row) {
            if constexpr (kEven) {
                store(sums(panel, row, false), even[panel][row]);
            }
            if constexpr (kOdd) {
                store(sums(panel, row, true), odd[panel][row]);
            }
        }
    }
}

// Not inlined, so that every tile has all the registers.
template <Layout kLayout, int kRows, int kPanels, bool kPrefetch>
[[gnu::noinline]] void add_tile(const Panels& panels, Rows x, int64_t n_columns) {
#if defined(SOLITON_LANES_AVX2) || defined(SOLITON_LANES_NEON)
    constexpr bool kInOneGo = kRows <= 3;  // a sum takes an eighth of the registers
#else
    constexpr bool kInOneGo = true;
#endif
    if constexpr (kInOneGo) {
        add_columns<kLayout, kRows, kPanels, kPrefetch, true, true>(panels, x, n_columns);
    } else {
        add_columns<kLayout, kRows, kPanels, kPrefetch, true, false>(panels, x, n_columns);
        add_columns<kLayout, kRows, kPanels, kPrefetch, false, true>(panels, x, n_columns);
    }
}

// Adds all rows times some panels of a chunk.
template <Layout kLayout, int kMost, int kPanels>
void add_panels(const Chunk& chunk, int64_t n_rows, const Panels& panels) {
    const int64_t begin = chunk.begin * kBlockColumns;
    const int64_t end = chunk.end * kBlockColumns;
    const int64_t n_columns = (end < chunk.n_in ? end : chunk.n_in) - begin;
    each_tile<kMost>(n_rows, [&]<int kRows>(int64_t row) {
        const Rows x = {chunk.x + row * chunk.row_bytes + begin * 4, chunk.row_bytes};
        Panels tile = panels;
        tile.sums += row * kSums<kLayout> * kLanes;
        if (row == 0) {  // for the others the weights are in the cache
            add_tile<kLayout, kRows, kPanels, true>(tile, x, n_columns);
        } else {
            add_tile<kLayout, kRows, kPanels, false>(tile, x, n_columns);
        }
    });
}

}  // namespace

template <Layout kLayout>
void add_chunk(const Chunk& chunk, int64_t n_rows, float* sums, int64_t panel_sums) {
    Panels panels = {
        .weights = chunk.panels + chunk.begin * chunk.piece_pitch,
        .pitch = chunk.panel_pitch,
        .sums = sums,
        .sums_pitch = panel_sums,
    };
    const auto go_on = [&](int64_t n) {
        panels.weights += n * panels.pitch;
        panels.sums += n * panels.sums_pitch;
    };
    int64_t left = chunk.n_panels;
    if constexpr (kPairRows > 0) {
        for (; n_rows > kMostRows && left >= kTilePanels; left -= kTilePanels) {
            add_panels<kLayout, kPairRows, kTilePanels>(chunk, n_rows, panels);
            go_on(kTilePanels);
        }
    }
    for (; left > 0; --left) {
        add_panels<kLayout, kMostRows, 1>(chunk, n_rows, panels);
        go_on(1);
    }
}

template void add_chunk<Layout::kF32>(const Chunk&, int64_t, float*, int64_t);
template void add_chunk<Layout::kBf16>(const Chunk&, int64_t, float*, int64_t);

}  // namespace soliton::SOLITON_ISA
