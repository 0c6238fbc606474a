// Codes unpacked once for many rows: the unpacked blocks, and the products of rows with them.
//
// Each instruction set that gains by it defines unpack_codes(block, wide); kWidePanels and
// kWideRows<kPanels>, the panels and the most rows of a tile; kFewWideRows<kLayout>, up to which
// unpacking takes more time than it saves; and add_wide_tile<kLayout, kPanels, kRows>(blocks, x,
// scales, n_blocks, sums, panel_sums), which adds kRows rows times the blocks of kPanels panels to
// the sums of each panel, panel_sums apart.
#pragma once

#include "codes.h"
#include "scales.h"

namespace soliton::SOLITON_ISA {
namespace {

// A block of a panel in the form whose products are fastest: a byte per code, or where words are
// multiplied pairs of words without excess (codes at even places, then at odd places).
template <Layout kLayout>
struct WideBlock {
    static constexpr int kParts = scales_per_block(kLayout);
    static constexpr int64_t kGroups = kReadsWords<kLayout> ? 16 : 8;
    alignas(64) uint8_t groups[kGroups][kLineBytes];
    float scales[kParts][kPanelRows];
    float minima[kParts][kPanelRows];  // if there are minima
};

// The blocks of a panel follow each other, and those of the next panel are so many blocks away.
template <Layout kLayout>
constexpr int64_t kWidePitch = kChunkBlocks<kLayout>;

}  // namespace
}  // namespace soliton::SOLITON_ISA

#if defined(SOLITON_LANES_AVX512)
#include "wide_codes_avx512.h"
#elif defined(SOLITON_LANES_AVX2)
#include "wide_codes_avx2.h"
#endif

namespace soliton::SOLITON_ISA {
namespace {

// The blocks of a piece.
template <Layout kLayout>
SOLITON_INLINE void unpack(const uint8_t* piece, WideBlock<kLayout>* blocks) {
    const Scales<kLayout> scales(piece);
    for (int64_t k = 0; k < piece_blocks(kLayout); ++k) {
        unpack_codes(piece + codes_at(kLayout, k), blocks[k]);
        for (int part = 0; part < WideBlock<kLayout>::kParts; ++part) {
            store(blocks[k].scales[part], scales.scale(k, part));
            if constexpr (has_minimum(kLayout)) {
                store(blocks[k].minima[part], scales.minimum(k, part));
            }
        }
    }
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
