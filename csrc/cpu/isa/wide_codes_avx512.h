// Codes unpacked once for many rows, in AVX-512: as wide_codes.h describes them.
#pragma once

#include "wide_codes.h"

namespace soliton::SOLITON_ISA {
namespace {

// A tile of two panels loads a number of x once for both; its products and its sums are most of the
// registers.
constexpr int64_t kWidePanels = kTilePanels;
template <int kPanels>
constexpr int kWideRows = 12 / kPanels;

// Few bits take longer to unpack.
template <Layout kLayout>
constexpr int64_t kFewWideRows = kLayout == Layout::kQ8 ? kFewRows : 20;

template <Layout kLayout>
SOLITON_INLINE void unpack_codes(const uint8_t* block, WideBlock<kLayout>& wide) {
#pragma GCC unroll 8
    for (int64_t j = 0; j < 8; ++j) {
        _mm512_store_si512(wide.groups[j], load_group<kLayout>(block, j));
    }
}

// Calls `function` with each panel and row of a tile.
template <int kPanels, int kRows, typename Function>
SOLITON_INLINE void each_sum(const Function& function) {
    each_row<kPanels>([&](int panel) __attribute__((always_inline)) {
        each_row<kRows>([&](int row) __attribute__((always_inline)) { function(panel, row); });
    });
}

template <Layout kLayout, int kPanels, int kRows>
[[gnu::noinline]] void add_wide_tile(const WideBlock<kLayout>* blocks, Rows x, Rows scales,
                                     int64_t n_blocks, float* sums, int64_t panel_sums) {
    Floats totals[kPanels][kRows];
    each_sum<kPanels, kRows>([&](int panel, int row) __attribute__((always_inline)) {
        totals[panel][row] = load(sums + panel * panel_sums + row * kLanes);
    });
    for (int64_t b = 0; b < n_blocks; ++b) {
        const auto block_of = [&](int panel) -> const WideBlock<kLayout>& {
            return blocks[panel * kWidePitch<kLayout> + b];
        };
        const auto scale_of = [&](int row) -> const CodeBlock& {
            return reinterpret_cast<const CodeBlock*>(scales.at + row * scales.stride)[b];
        };
        const std::byte* codes = x.at + b * kBlockColumns;
        each_part<kLayout>([&]<int kPart>() __attribute__((always_inline)) {
            Ints dots[kPanels][kRows];
            each_sum<kPanels, kRows>([&](int panel, int row) __attribute__((always_inline)) {
                dots[panel][row] = broadcast(first_sum<kLayout, kPart>(scale_of(row)));
            });
            constexpr int64_t kBegin = kPart * kPartGroups<kLayout>;
#pragma GCC unroll 8
            for (int64_t j = kBegin; j < kBegin + kPartGroups<kLayout>; ++j) {
                __m512i weights[kPanels];
                each_row<kPanels>([&](int panel) __attribute__((always_inline)) {
                    weights[panel] = _mm512_load_si512(block_of(panel).groups[j]);
                });
                each_row<kRows>([&](int row) __attribute__((always_inline)) {
                    const __m512i four =
                        _mm512_set1_epi32(four_codes(codes + row * x.stride + j * 4));
                    each_row<kPanels>([&](int panel) __attribute__((always_inline)) {
                        __m512i& dot = dots[panel][row].all;
                        dot = _mm512_dpbusd_epi32(dot, weights[panel], four);
                    });
                });
            }
            each_sum<kPanels, kRows>([&](int panel, int row) __attribute__((always_inline)) {
                const CodeBlock& code = scale_of(row);
                const Floats scale =
                    multiply(load(block_of(panel).scales[kPart]), broadcast(code.scale));
                Floats& total = totals[panel][row];
                total = multiply_add(to_floats(dots[panel][row]), scale, total);
                if constexpr (has_minimum(kLayout)) {
                    const Floats sum = broadcast(scaled_sum<kLayout, kPart>(code));
                    total = multiply_add(load(block_of(panel).minima[kPart]), sum, total);
                }
            });
        });
    }
    each_sum<kPanels, kRows>([&](int panel, int row) __attribute__((always_inline)) {
        store(sums + panel * panel_sums + row * kLanes, totals[panel][row]);
    });
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
