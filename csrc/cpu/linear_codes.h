// Products of rows of codes with panels of codes of 2 to 8 bits. Two files compile them, each for
// some layouts, because a single one takes minutes. linear.cpp chooses the rows and panels.
#pragma once

#include "isa/codes.h"
#include "isa/scales.h"
#if defined(SOLITON_LANES_AVX512) || defined(SOLITON_LANES_AVX2)
#define SOLITON_WIDE_CODES
#include "isa/wide_codes.h"
#endif

namespace soliton::SOLITON_ISA {
namespace {

// What a tile reads of x, from a row on: codes or words.
template <Layout kLayout>
SOLITON_INLINE Rows values_of(const Chunk& chunk, int64_t row) {
    const int64_t at = kReadsWords<kLayout> ? words_at(chunk.n_in) + chunk.begin * kBlockWordBytes
                                            : chunk.begin * kBlockColumns;
    return {chunk.x + row * chunk.row_bytes + at, chunk.row_bytes};
}

// Their CodeBlocks.
SOLITON_INLINE Rows scales_of(const Chunk& chunk, int64_t row) {
    const int64_t at =
        blocks_for(chunk.n_in) * kBlockColumns + chunk.begin * int64_t{sizeof(CodeBlock)};
    return {chunk.x + row * chunk.row_bytes + at, chunk.row_bytes};
}

// Panels at the same distance, and where their sums are.
struct Panels {
    const uint8_t* at;
    int64_t pitch;        // bytes from one panel to the next
    int64_t piece_pitch;  // bytes from one piece of a panel to the next
    int64_t count;
    bool are_neighbours;  // they, and as many after them, follow each other
    bool is_fetched;      // ahead, by the tile
    float* sums;
    int64_t sums_pitch;
};

// Adds each row's codes times a chunk of blocks to the sums of every row and panel. `scales` are
// the CodeBlocks of the codes. The sums stay in memory, because there are not enough registers.
template <Layout kLayout, int kRows>
[[gnu::noinline]] void add_tile(Panels panels, Rows x, Rows scales, int64_t n_blocks,
                                bool prefetches) {
    constexpr int64_t kBlocks = piece_blocks(kLayout);
    constexpr int64_t kBytes = piece_bytes(kLayout) / kBlocks;
    const Codes<kLayout, kRows> codes = {x};
    for (int64_t first = 0; first < n_blocks; first += kBlocks) {
        for (int64_t i = 0; i < panels.count; ++i) {
            const uint8_t* piece =
                panels.at + i * panels.pitch + first / kBlocks * panels.piece_pitch;
            const Scales<kLayout> weights(piece);
            float* sums = panels.sums + i * panels.sums_pitch;
            for (int64_t k = 0; k < kBlocks; ++k) {
                const uint8_t* block = piece + codes_at(kLayout, k);
                const auto scale_of = [&](int row) -> const CodeBlock& {
                    return reinterpret_cast<const CodeBlock*>(scales.at +
                                                              row * scales.stride)[first + k];
                };
                if (prefetches) {
                    prefetch<kRows>(block, kBytes);
                }
                each_part<kLayout>([&]<int kPart>() __attribute__((always_inline)) {
                    Ints dots[kRows];
                    each_row<kRows>([&](int row) __attribute__((always_inline)) {
                        dots[row] = broadcast(first_sum<kLayout, kPart>(scale_of(row)));
                    });
                    codes.template multiply<kPart>(block, first + k, dots);
                    const Floats scale = weights.scale(k, kPart);
                    Floats minimum = scale;
                    if constexpr (has_minimum(kLayout)) {
                        minimum = weights.minimum(k, kPart);
                    }
                    each_row<kRows>([&](int row) __attribute__((always_inline)) {
                        const CodeBlock& code = scale_of(row);
                        Floats total = load(sums + row * kLanes);
                        total = multiply_add(to_floats(dots[row]),
                                             multiply(scale, broadcast(code.scale)), total);
                        if constexpr (has_minimum(kLayout)) {
                            const float sum = scaled_sum<kLayout, kPart>(code);
                            total = multiply_add(minimum, broadcast(sum), total);
                        }
                        store(sums + row * kLanes, total);
                    });
                });
            }
        }
    }
}

// Panels of few bits take so many instructions that a core sees too little of what comes next. So
// each block of a stream fetches what lies a few lines ahead of it. Panels that follow each other
// are short streams, and a processor notices only after some blocks that they are read in sequence:
// so at the end of some panels, the first blocks of as many panels after them are fetched instead.
// 8 bits gain nothing by either.
template <Layout kLayout>
constexpr bool kFetchesAhead = kLayout != Layout::kQ8;
constexpr int64_t kStreamAhead = 512;  // bytes
template <Layout kLayout>
constexpr int64_t kBlocksAhead = piece_blocks(kLayout) == 1 ? 4 : piece_blocks(kLayout);
// Bytes of a piece that are fetched with each of its blocks.
template <Layout kLayout>
constexpr int64_t kPieceShare = piece_bytes(kLayout) / piece_blocks(kLayout);

SOLITON_INLINE void fetch(const uint8_t* at, int64_t n_bytes) {
    for (int64_t k = 0; k < n_bytes; k += kLineBytes) {
        __builtin_prefetch(at + k);
    }
}

// Adds the products of one row with block k of a piece of a panel to its sums; `block` counts from
// the first that Codes and CodeBlocks have.
template <Layout kLayout>
SOLITON_INLINE Floats add_block(const uint8_t* piece, const Scales<kLayout>& weights, int64_t k,
                                const Codes<kLayout, 1>& codes, const CodeBlock* scales,
                                int64_t block, Floats total) {
    const CodeBlock& code = scales[block];
    each_part<kLayout>([&]<int kPart>() __attribute__((always_inline)) {
        Ints dots[1] = {broadcast(first_sum<kLayout, kPart>(code))};
        codes.template multiply<kPart>(piece + codes_at(kLayout, k), block, dots);
        total = multiply_add(to_floats(dots[0]),
                             multiply(weights.scale(k, kPart), broadcast(code.scale)), total);
        if constexpr (has_minimum(kLayout)) {
            const float sum = scaled_sum<kLayout, kPart>(code);
            total = multiply_add(weights.minimum(k, kPart), broadcast(sum), total);
        }
    });
    return total;
}

// Adds the products of one row with a piece of a panel to its sums. Fetches ahead block by block: a
// piece of eight blocks has up to 53 lines, more than a core can wait for at a time.
template <Layout kLayout>
SOLITON_INLINE Floats add_piece(const uint8_t* piece, Rows x, const CodeBlock* scales,
                                int64_t first, Floats total, bool is_fetched) {
    const Codes<kLayout, 1> codes = {x};
    const Scales<kLayout> weights(piece);
    for (int64_t k = 0; k < piece_blocks(kLayout); ++k) {
        if (is_fetched) {
            prefetch<1>(piece + k * kPieceShare<kLayout>, kPieceShare<kLayout>);
        }
        total = add_block<kLayout>(piece, weights, k, codes, scales, first + k, total);
    }
    return total;
}

// One row times up to kPanelsAtOnce panels. The same instructions load all of them, by which a
// processor recognises woven panels as one stream of memory.
template <Layout kLayout>
[[gnu::noinline]] void add_stream(Panels panels, Rows x, Rows scales, int64_t n_blocks) {
    constexpr int64_t kBlocks = piece_blocks(kLayout);
    const auto* blocks = reinterpret_cast<const CodeBlock*>(scales.at);
    Floats totals[kPanelsAtOnce];
    for (int64_t i = 0; i < panels.count; ++i) {
        totals[i] = load(panels.sums + i * panels.sums_pitch);
    }
    for (int64_t first = 0; first < n_blocks; first += kBlocks) {
        const uint8_t* piece = panels.at + first / kBlocks * panels.piece_pitch;
#pragma GCC unroll 1
        for (int64_t i = 0; i < panels.count; ++i) {
            totals[i] = add_piece<kLayout>(piece, x, blocks, first, totals[i], panels.is_fetched);
            piece += panels.pitch;
        }
    }
    for (int64_t i = 0; i < panels.count; ++i) {
        store(panels.sums + i * panels.sums_pitch, totals[i]);
    }
}

// One row times kPanelsAtOnce panels that are as many streams. Each panel has its own instructions,
// by which a processor tells the streams apart, and its sum stays in a register. They take turns
// block by block: with whole pieces of eight, only one stream would be read at a time.
template <Layout kLayout>
[[gnu::noinline]] void add_streams(Panels panels, Rows x, Rows scales, int64_t n_blocks) {
    constexpr int64_t kBlocks = piece_blocks(kLayout);
    constexpr int64_t kShare = kPieceShare<kLayout>;
    const auto* blocks = reinterpret_cast<const CodeBlock*>(scales.at);
    const Codes<kLayout, 1> codes = {x};
    Floats totals[kPanelsAtOnce];
    each_row<kPanelsAtOnce>([&](int i) __attribute__((always_inline)) {
        totals[i] = load(panels.sums + i * panels.sums_pitch);
    });
    for (int64_t first = 0; first < n_blocks; first += kBlocks) {
        const int64_t next =
            panels.are_neighbours ? first - (n_blocks - kBlocksAhead<kLayout>) : -1;
        const uint8_t* pieces[kPanelsAtOnce];
        each_row<kPanelsAtOnce>([&](int i) __attribute__((always_inline)) {
            pieces[i] = panels.at + i * panels.pitch + first / kBlocks * panels.piece_pitch;
        });
        const Scales<kLayout> weights[kPanelsAtOnce] = {
            Scales<kLayout>(pieces[0]), Scales<kLayout>(pieces[1]), Scales<kLayout>(pieces[2]),
            Scales<kLayout>(pieces[3])};
        for (int64_t k = 0; k < kBlocks; ++k) {
            each_row<kPanelsAtOnce>([&](int i) __attribute__((always_inline)) {
                if constexpr (kFetchesAhead<kLayout>) {
                    fetch(next < 0 ? pieces[i] + k * kShare + kStreamAhead
                                   : panels.at + (kPanelsAtOnce + i) * panels.pitch +
                                         (next + k) * kShare,
                          kShare);
                }
                totals[i] = add_block<kLayout>(pieces[i], weights[i], k, codes, blocks, first + k,
                                               totals[i]);
            });
        }
    }
    each_row<kPanelsAtOnce>([&](int i) __attribute__((always_inline)) {
        store(panels.sums + i * panels.sums_pitch, totals[i]);
    });
}

#if defined(SOLITON_WIDE_CODES)
// Many rows times the first kPanels panels of a chunk.
template <Layout kLayout, int kPanels>
void add_wide_panels(const Chunk& chunk, int64_t n_rows, float* sums, int64_t panel_sums) {
    WideBlock<kLayout> blocks[kPanels * kWidePitch<kLayout>];
    const int64_t n_blocks = chunk.end - chunk.begin;
    constexpr int64_t kBlocks = piece_blocks(kLayout);
    for (int64_t i = 0; i < kPanels; ++i) {
        const uint8_t* panel = chunk.panels + i * chunk.panel_pitch;
        for (int64_t b = 0; b < n_blocks; b += kBlocks) {
            const uint8_t* piece = panel + (chunk.begin + b) / kBlocks * chunk.piece_pitch;
            prefetch<kWideRows<kPanels>>(piece, piece_bytes(kLayout));
            unpack(piece, blocks + i * kWidePitch<kLayout> + b);
        }
    }
    each_tile<kWideRows<kPanels>>(n_rows, [&]<int kRows>(int64_t row) {
        add_wide_tile<kLayout, kPanels, kRows>(blocks, values_of<kLayout>(chunk, row),
                                               scales_of(chunk, row), n_blocks, sums + row * kLanes,
                                               panel_sums);
    });
}

template <Layout kLayout>
void add_wide_chunk(Chunk chunk, int64_t n_rows, float* sums, int64_t panel_sums) {
    while (chunk.n_panels > 0) {
        const int64_t n = chunk.n_panels < kWidePanels ? 1 : kWidePanels;
        if (n == kWidePanels) {
            add_wide_panels<kLayout, kWidePanels>(chunk, n_rows, sums, panel_sums);
        } else {
            add_wide_panels<kLayout, 1>(chunk, n_rows, sums, panel_sums);
        }
        chunk.n_panels -= n;
        chunk.panels += n * chunk.panel_pitch;
        sums += n * panel_sums;
    }
}
#endif

}  // namespace

template <Layout kLayout>
void add_chunk(const Chunk& chunk, int64_t n_rows, float* sums, int64_t panel_sums) {
#if defined(SOLITON_WIDE_CODES)
    if (n_rows > kFewWideRows<kLayout>) {
        add_wide_chunk<kLayout>(chunk, n_rows, sums, panel_sums);
        return;
    }
#endif
    const int64_t n_blocks = chunk.end - chunk.begin;
    const auto panels_of = [&](int64_t row) -> Panels {
        return {
            .at = chunk.panels + chunk.begin / piece_blocks(kLayout) * chunk.piece_pitch,
            .pitch = chunk.panel_pitch,
            .piece_pitch = chunk.piece_pitch,
            .count = chunk.n_panels,
            .are_neighbours = chunk.panel_pitch == panel_bytes(kLayout, chunk.n_in),
            .is_fetched = chunk.is_fetched,
            .sums = sums + row * kLanes,
            .sums_pitch = panel_sums,
        };
    };
    if (n_rows == 1) {
        const bool is_one_stream = chunk.is_woven || chunk.n_panels < kPanelsAtOnce;
        const auto add = is_one_stream ? add_stream<kLayout> : add_streams<kLayout>;
        add(panels_of(0), values_of<kLayout>(chunk, 0), scales_of(chunk, 0), n_blocks);
        return;
    }
    each_tile<kMostRows<kLayout>>(n_rows, [&]<int kRows>(int64_t row) {
        const Rows values = values_of<kLayout>(chunk, row);
        const Rows scales = scales_of(chunk, row);
        const bool prefetches = row == 0;  // for the others the weights are in the cache
        add_tile<kLayout, kRows>(panels_of(row), values, scales, n_blocks, prefetches);
    });
}

}  // namespace soliton::SOLITON_ISA
