// Rows of x times panels of weights: one pass over the weights, however many rows there are.
// Compiled once per instruction set (see kernels.h); ops_linear.cpp says who multiplies what.
//
// An output is one chain of fused multiply-adds, ascending: over blocks where the matrix is
// quantised (inside a block integers are added, exactly), over even and over odd columns, added at
// the end, where it is not. So it depends neither on which rows share a tile nor on the instruction
// set.
//
// The weights of a chunk of blocks stay in the first-level cache while many rows pass by, and the
// rows' part of it in the second while several panels do; sums are kept in memory from one chunk to
// the next.
#include "kernels.h"
#include "lanes.h"

namespace soliton::SOLITON_ISA {
namespace {

// Columns of weights that stay in the first-level cache, and of as many rows of x in the second.
template <Layout kLayout>
constexpr int64_t kChunkBlocks = kLayout == Layout::kF32 ? 8 : 16;
// Rows and panels whose sums are kept at once, so that rows of x are fetched once for all of them.
constexpr int64_t kRowsAtOnce = 128;
constexpr int64_t kPanelsAtOnce = 4;
constexpr int64_t kFewRows = 16;
// Weights are read once and in order. The processor foresees that, but stops at every page.
constexpr int64_t kPrefetchBytes = 2048;
constexpr int64_t kLineBytes = 64;

// Rows of a tile, by layout: they share what was loaded and unpacked of the weights, and their sums
// stay in registers. Enough sums to hide the time an instruction takes, no more than registers.
#if defined(SOLITON_LANES_AVX512)
constexpr int kTileRows[] = {12, 12, 12, 12};
#elif defined(SOLITON_LANES_AVX2)
constexpr int kTileRows[] = {6, 6, 4, 3};
#elif defined(SOLITON_LANES_NEON) && defined(__ARM_FEATURE_DOTPROD)
constexpr int kTileRows[] = {6, 6, 4, 4};
#elif defined(SOLITON_LANES_NEON)
constexpr int kTileRows[] = {6, 6, 2, 2};
#else
constexpr int kTileRows[] = {1, 1, 1, 1};
#endif
template <Layout kLayout>
constexpr int kMostRows = kTileRows[static_cast<int>(kLayout)];

// Sums that one output has: of even and of odd columns where it is a sum of floats.
template <Layout kLayout>
constexpr int kSums = is_quantized(kLayout) ? 1 : 2;

// Whether the words of x are read, not its codes.
#if defined(SOLITON_LANES_AVX2)
template <Layout kLayout>
constexpr bool kReadsWords = kLayout == Layout::kQ8;
#else
template <Layout>
constexpr bool kReadsWords = false;
#endif

// Part of some rows of x.
struct Rows {
    const std::byte* at;
    int64_t stride;  // bytes
};

SOLITON_INLINE void prefetch(const uint8_t* weights, int64_t n_lines) {
    for (int64_t i = 0; i < n_lines; ++i) {
        __builtin_prefetch(weights + kPrefetchBytes + i * kLineBytes);
    }
}

// --- Floats ---

// Column k of a panel.
template <Layout kLayout>
SOLITON_INLINE Floats load_column(const uint8_t* weights, int64_t k, bool odd) {
    if constexpr (kLayout == Layout::kF32) {
        return load(reinterpret_cast<const float*>(weights) + k * kLanes);
    } else {
        return load_bfloat16(weights + (k & ~int64_t{1}) * kLanes * 2, odd);
    }
}

// Adds the even columns, or the odd ones, or both in one go.
template <Layout kLayout, int kRows, bool kPrefetch, bool kEven, bool kOdd>
SOLITON_INLINE void add_columns(const uint8_t* weights, Rows x, int64_t n_columns, float* sums) {
    constexpr int64_t kPairLines = 2 * block_bytes(kLayout) / kBlockColumns / kLineBytes;
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
                prefetch(weights + k / 2 * kPairLines * kLineBytes, kPairLines);
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

// Not inlined, so that every tile has the registers for itself.
template <Layout kLayout, int kRows, bool kPrefetch>
[[gnu::noinline]] void add_float_tile(const uint8_t* weights, Rows x, int64_t n_columns,
                                      float* sums) {
#if defined(SOLITON_LANES_AVX2) || defined(SOLITON_LANES_NEON)
    constexpr bool kInOneGo = kRows <= 3;  // an eighth of all registers for each of even and odd
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

// --- Codes ---

// Four codes of x, or two words, for the 16 rows of a group.
SOLITON_INLINE int32_t four_codes(const std::byte* at) {
    int32_t codes;
    __builtin_memcpy(&codes, at, sizeof codes);
    return codes;
}

// Whether codes of kQ8 are multiplied as they lie, 128 too large.
#if defined(SOLITON_LANES_NEON)
constexpr bool kHasExcess = false;
#else
constexpr bool kHasExcess = true;
#endif

// Codes of x, or words where kReadsWords; and the products of one block of them with one of a
// panel, less what codes + 128 make too much of it.
#if defined(SOLITON_LANES_AVX512)

template <Layout kLayout, int kRows>
struct Codes {
    Rows x;

    SOLITON_INLINE void multiply(const uint8_t* block, int64_t b, Ints (&dots)[kRows]) const {
        const std::byte* codes = x.at + b * kBlockColumns;
        const auto add_group = [&](int64_t j, __m512i weights) {
            for (int row = 0; row < kRows; ++row) {
                const __m512i four = _mm512_set1_epi32(four_codes(codes + row * x.stride + j * 4));
                dots[row].all = _mm512_dpbusd_epi32(dots[row].all, weights, four);
            }
        };
        if constexpr (kLayout == Layout::kQ8) {
            for (int64_t j = 0; j < kBlockColumns / 4; ++j) {
                add_group(j, _mm512_loadu_si512(block + j * kLineBytes));
            }
        } else {
            const __m512i low_halves = _mm512_set1_epi8(15);
            for (int64_t j = 0; j < kBlockColumns / 4; j += 2) {
                const __m512i both = _mm512_loadu_si512(block + j / 2 * kLineBytes);
                add_group(j, _mm512_and_si512(both, low_halves));
                add_group(j + 1, _mm512_and_si512(_mm512_srli_epi16(both, 4), low_halves));
            }
        }
    }
};

#elif defined(SOLITON_LANES_AVX2)

SOLITON_INLINE __m256i load_bytes(const void* at) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(at));
}

SOLITON_INLINE void store_bytes(void* at, __m256i bytes) {
    _mm256_store_si256(static_cast<__m256i*>(at), bytes);
}

// Sums are done here. Left to itself, the compiler begins so many products before the first sum
// that they do not fit the registers.
SOLITON_INLINE void settle(__m256i& sums) {
    asm volatile("" : "+x"(sums));
}

// sums + pairs of words of weights times a pair of x.
SOLITON_INLINE __m256i add_products(__m256i weights, const std::byte* pair, __m256i sums) {
    const __m256i products = _mm256_madd_epi16(weights, _mm256_set1_epi32(four_codes(pair)));
    return _mm256_add_epi32(sums, products);
}

template <Layout kLayout, int kRows>
struct Codes;

// Products of bytes would not fit the 16 bits in which they are added in pairs. So bytes become
// words: those in even places and those in odd ones.
template <int kRows>
struct Codes<Layout::kQ8, kRows> {
    Rows x;

    SOLITON_INLINE void multiply(const uint8_t* block, int64_t b, Ints (&dots)[kRows]) const {
        const std::byte* words = x.at + b * kBlockWordBytes;
        const __m256i even_places = _mm256_set1_epi16(0xff);
        __m256i low_sums[kRows];
        __m256i high_sums[kRows];
        for (int row = 0; row < kRows; ++row) {
            low_sums[row] = dots[row].low;
            high_sums[row] = dots[row].high;
        }
        const auto add_group = [&](int64_t j, const uint8_t* codes, __m256i(&sums)[kRows]) {
            const __m256i both = load_bytes(codes);
            const __m256i even = _mm256_and_si256(both, even_places);
            const __m256i odd = _mm256_srli_epi16(both, 8);
            for (int row = 0; row < kRows; ++row) {
                const std::byte* pair = words + row * x.stride + j * 4;
                sums[row] = add_products(even, pair, sums[row]);
                sums[row] = add_products(odd, pair + kBlockColumns, sums[row]);
                settle(sums[row]);
            }
        };
        for (int64_t j = 0; j < kBlockColumns / 4; ++j) {
            add_group(j, block + j * kLineBytes, low_sums);
            add_group(j, block + j * kLineBytes + 32, high_sums);
        }
        for (int row = 0; row < kRows; ++row) {
            dots[row] = {low_sums[row], high_sums[row]};
        }
    }
};

// Halves of bytes times bytes: even all of a block, 16 products, fit 16 bits (16 * 15 * 127).
template <int kRows>
struct Codes<Layout::kQ4, kRows> {
    Rows x;

    SOLITON_INLINE void multiply(const uint8_t* block, int64_t b, Ints (&dots)[kRows]) const {
        const std::byte* codes = x.at + b * kBlockColumns;
        const __m256i low_halves = _mm256_set1_epi8(15);
        __m256i low_words[kRows] = {};
        __m256i high_words[kRows] = {};
        const auto add_group = [&](int64_t j, __m256i low, __m256i high) {
            for (int row = 0; row < kRows; ++row) {
                const __m256i four = _mm256_set1_epi32(four_codes(codes + row * x.stride + j * 4));
                low_words[row] = _mm256_add_epi16(low_words[row], _mm256_maddubs_epi16(low, four));
                high_words[row] =
                    _mm256_add_epi16(high_words[row], _mm256_maddubs_epi16(high, four));
                settle(low_words[row]);
                settle(high_words[row]);
            }
        };
        for (int64_t j = 0; j < kBlockColumns / 4; j += 2) {
            const __m256i low = load_bytes(block + j / 2 * kLineBytes);
            const __m256i high = load_bytes(block + j / 2 * kLineBytes + 32);
            add_group(j, _mm256_and_si256(low, low_halves), _mm256_and_si256(high, low_halves));
            add_group(j + 1, _mm256_and_si256(_mm256_srli_epi16(low, 4), low_halves),
                      _mm256_and_si256(_mm256_srli_epi16(high, 4), low_halves));
        }
        const __m256i ones = _mm256_set1_epi16(1);
        for (int row = 0; row < kRows; ++row) {
            dots[row].low = _mm256_madd_epi16(low_words[row], ones);
            dots[row].high = _mm256_madd_epi16(high_words[row], ones);
        }
    }
};

#elif defined(SOLITON_LANES_NEON)

// 16 times 4 codes of weights, with their sign.
using CodeGroup = Quarters<int8x16_t>;

// Group j of a block.
template <Layout kLayout>
SOLITON_INLINE CodeGroup load_group(const uint8_t* block, int64_t j, bool odd) {
    if constexpr (kLayout == Layout::kQ8) {
        // With its highest bit turned, code + 128 is the code.
        return each_quarter(
            [](uint8x16_t a) { return vreinterpretq_s8_u8(veorq_u8(a, vdupq_n_u8(0x80))); },
            load_line(block + j * kLineBytes));
    } else {
        return each_quarter(
            [=](uint8x16_t both) {
                return vreinterpretq_s8_u8(odd ? vshrq_n_u8(both, 4)
                                               : vandq_u8(both, vdupq_n_u8(15)));
            },
            load_line(block + j / 2 * kLineBytes));
    }
}

SOLITON_INLINE int8x16_t broadcast_codes(const std::byte* at) {
    return vreinterpretq_s8_s32(vdupq_n_s32(four_codes(at)));
}

#if defined(__ARM_FEATURE_DOTPROD)

template <Layout kLayout, int kRows>
struct Codes {
    Rows x;

    SOLITON_INLINE void multiply(const uint8_t* block, int64_t b, Ints (&dots)[kRows]) const {
        const std::byte* codes = x.at + b * kBlockColumns;
        const auto add_group = [&](int64_t j, bool odd) {
            const CodeGroup weights = load_group<kLayout>(block, j, odd);
            for (int row = 0; row < kRows; ++row) {
                const int8x16_t four = broadcast_codes(codes + row * x.stride + j * 4);
                dots[row] = each_quarter(
                    [=](int32x4_t dot, int8x16_t weight) { return vdotq_s32(dot, weight, four); },
                    dots[row], weights);
            }
        };
        // Unrolled, loads would come before products, and need more registers than there are.
#pragma GCC unroll 1
        for (int64_t j = 0; j < kBlockColumns / 4; j += 2) {
            add_group(j, false);
            add_group(j + 1, true);
        }
    }
};

#else

// For the first two lanes of each quarter, or for the last two: what they are the sums of, four
// words for a lane or, as Ints, two numbers.
using Words = Quarters<int16x8_t>;

template <bool kLast>
SOLITON_INLINE Words multiply_add(CodeGroup weights, int8x16_t four, Words words) {
    return each_quarter(
        [=](int8x16_t weight, int16x8_t sums) {
            return kLast ? vmlal_high_s8(sums, weight, four)
                         : vmlal_s8(sums, vget_low_s8(weight), vget_low_s8(four));
        },
        weights, words);
}

SOLITON_INLINE Ints add_neighbours(Words words, Ints pairs) {
    return each_quarter([](int16x8_t word, int32x4_t pair) { return vpadalq_s16(pair, word); },
                        words, pairs);
}

// Products of bytes are added as words, as many as fit: 2 of kQ8 (2 * 127 * 127), and of kQ4 the 8
// of a block that belong together (8 * 15 * 127).
template <Layout kLayout, int kRows>
struct Codes {
    static constexpr int64_t kGroups = kLayout == Layout::kQ8 ? 2 : 8;
    Rows x;

    SOLITON_INLINE void multiply(const uint8_t* block, int64_t b, Ints (&dots)[kRows]) const {
        const std::byte* codes = x.at + b * kBlockColumns;
        Ints first_pairs[kRows] = {};
        Ints last_pairs[kRows] = {};
        for (int64_t begin = 0; begin < kBlockColumns / 4; begin += kGroups) {
            Words first[kRows] = {};
            Words last[kRows] = {};
            for (int64_t j = begin; j < begin + kGroups; ++j) {
                const CodeGroup weights = load_group<kLayout>(block, j, j % 2);
                for (int row = 0; row < kRows; ++row) {
                    const int8x16_t four = broadcast_codes(codes + row * x.stride + j * 4);
                    first[row] = multiply_add<false>(weights, four, first[row]);
                    last[row] = multiply_add<true>(weights, four, last[row]);
                }
            }
            for (int row = 0; row < kRows; ++row) {
                first_pairs[row] = add_neighbours(first[row], first_pairs[row]);
                last_pairs[row] = add_neighbours(last[row], last_pairs[row]);
            }
        }
        for (int row = 0; row < kRows; ++row) {
            const Ints sums = each_quarter(
                [](int32x4_t first, int32x4_t last) { return vpaddq_s32(first, last); },
                first_pairs[row], last_pairs[row]);
            dots[row] = add(dots[row], sums);
        }
    }
};

#endif

#else

template <Layout kLayout, int kRows>
struct Codes {
    Rows x;

    SOLITON_INLINE void multiply(const uint8_t* block, int64_t b, Ints (&dots)[kRows]) const {
        for (int64_t j = 0; j < kBlockColumns / 4; ++j) {
            uint8_t weights[4 * kLanes];
            for (int64_t i = 0; i < 4 * kLanes; ++i) {
                if constexpr (kLayout == Layout::kQ8) {
                    weights[i] = block[j * kLineBytes + i];
                } else {
                    const uint8_t both = block[j / 2 * kLineBytes + i];
                    weights[i] = j % 2 ? both >> 4 : both & 15;
                }
            }
            for (int row = 0; row < kRows; ++row) {
                const int8_t* codes = reinterpret_cast<const int8_t*>(x.at + row * x.stride +
                                                                      b * kBlockColumns + j * 4);
                for (int i = 0; i < kLanes; ++i) {
                    dots[row].at[i] += weights[4 * i] * codes[0] + weights[4 * i + 1] * codes[1] +
                                       weights[4 * i + 2] * codes[2] +
                                       weights[4 * i + 3] * codes[3];
                }
            }
        }
    }
};

#endif

// sums of every row += its codes times a chunk of blocks. `scales`: the CodeBlocks of the codes.
template <Layout kLayout, int kRows, bool kPrefetch>
[[gnu::noinline]] void add_code_tile(const uint8_t* block, Rows x, Rows scales, int64_t n_blocks,
                                     float* sums) {
    constexpr int64_t kBytes = block_bytes(kLayout);
    constexpr int64_t kCodeBytes =
        kLayout == Layout::kQ8 ? kBlockColumns * kPanelRows : kBlockColumns * kPanelRows / 2;
    const Codes<kLayout, kRows> codes = {x};
    Floats totals[kRows];
    for (int row = 0; row < kRows; ++row) {
        totals[row] = load(sums + row * kLanes);
    }
    for (int64_t b = 0; b < n_blocks; ++b, block += kBytes) {
        if constexpr (kPrefetch) {
            prefetch(block, (kBytes + kLineBytes - 1) / kLineBytes);
        }
        const auto scale_of = [&](int row) -> const CodeBlock& {
            return reinterpret_cast<const CodeBlock*>(scales.at + row * scales.stride)[b];
        };
        Ints dots[kRows];
        for (int row = 0; row < kRows; ++row) {
            dots[row] = broadcast(kLayout == Layout::kQ8 && kHasExcess ? scale_of(row).offset : 0);
        }
        codes.multiply(block, b, dots);
        const Floats scale = load_float16(block + kCodeBytes);
        for (int row = 0; row < kRows; ++row) {
            totals[row] = multiply_add(
                to_floats(dots[row]), multiply(scale, broadcast(scale_of(row).scale)), totals[row]);
        }
        if constexpr (kLayout == Layout::kQ4) {
            const Floats minimum = load_float16(block + kCodeBytes + kPanelRows * 2);
            for (int row = 0; row < kRows; ++row) {
                totals[row] =
                    multiply_add(minimum, broadcast(scale_of(row).scaled_sum), totals[row]);
            }
        }
    }
    for (int row = 0; row < kRows; ++row) {
        store(sums + row * kLanes, totals[row]);
    }
}

// Products of codes with one row of x for neighbouring panels side by side. One panel after the
// other is one stream of memory, which the processor fetches less far ahead than several.
template <Layout kLayout, int kPanels>
[[gnu::noinline]] void add_code_streams(const uint8_t* panels, int64_t bytes, Rows x, Rows scales,
                                        int64_t n_blocks, float* sums, int64_t panel_sums) {
    constexpr int64_t kCodeBytes =
        kLayout == Layout::kQ8 ? kBlockColumns * kPanelRows : kBlockColumns * kPanelRows / 2;
    const Codes<kLayout, 1> codes = {x};
    Floats totals[kPanels];
    for (int i = 0; i < kPanels; ++i) {
        totals[i] = broadcast(0.0f);
    }
    for (int64_t b = 0; b < n_blocks; ++b) {
        const CodeBlock& code = reinterpret_cast<const CodeBlock*>(scales.at)[b];
        for (int i = 0; i < kPanels; ++i) {
            const uint8_t* block = panels + i * bytes + b * block_bytes(kLayout);
            Ints dots[1] = {broadcast(kLayout == Layout::kQ8 && kHasExcess ? code.offset : 0)};
            codes.multiply(block, b, dots);
            totals[i] = multiply_add(
                to_floats(dots[0]),
                multiply(load_float16(block + kCodeBytes), broadcast(code.scale)), totals[i]);
            if constexpr (kLayout == Layout::kQ4) {
                const Floats minimum = load_float16(block + kCodeBytes + kPanelRows * 2);
                totals[i] = multiply_add(minimum, broadcast(code.scaled_sum), totals[i]);
            }
        }
    }
    for (int i = 0; i < kPanels; ++i) {
        store(sums + i * panel_sums, totals[i]);
    }
}

// --- Codes, unpacked for many rows ---

#if defined(SOLITON_LANES_AVX2)

// A block of a panel as its products are quickest: for kQ8 pairs of words (codes of even places,
// then of odd ones), for kQ4 a byte per code.
template <Layout kLayout>
struct WideBlock {
    static constexpr int64_t kGroups = kLayout == Layout::kQ8 ? 16 : 8;
    alignas(64) uint8_t groups[kGroups][kLineBytes];
    float scales[kPanelRows];
    float minima[kPanelRows];  // of kQ4
};

// Twelve sums, two vectors of weights, one of x and one of products are all sixteen registers.
constexpr int kWideRows = 6;

template <Layout kLayout>
SOLITON_INLINE void unpack(const uint8_t* block, WideBlock<kLayout>& wide) {
    constexpr int64_t kCodeBytes = kLayout == Layout::kQ8 ? 512 : 256;
    const __m256i even_places = _mm256_set1_epi16(0xff);
    const __m256i low_halves = _mm256_set1_epi8(15);
    const __m256i excess = _mm256_set1_epi16(128);
    for (int64_t i = 0; i < kCodeBytes; i += 32) {
        const __m256i both = load_bytes(block + i);
        const int64_t line = i / kLineBytes;
        const int64_t half = i % kLineBytes;
        if constexpr (kLayout == Layout::kQ8) {
            store_bytes(wide.groups[line] + half,
                        _mm256_sub_epi16(_mm256_and_si256(both, even_places), excess));
            store_bytes(wide.groups[line + 8] + half,
                        _mm256_sub_epi16(_mm256_srli_epi16(both, 8), excess));
        } else {
            store_bytes(wide.groups[2 * line] + half, _mm256_and_si256(both, low_halves));
            store_bytes(wide.groups[2 * line + 1] + half,
                        _mm256_and_si256(_mm256_srli_epi16(both, 4), low_halves));
        }
    }
    store(wide.scales, load_float16(block + kCodeBytes));
    if constexpr (kLayout == Layout::kQ4) {
        store(wide.minima, load_float16(block + kCodeBytes + kPanelRows * 2));
    }
}

// The products of a block and one of some rows of x, from `x` on.
template <Layout kLayout, int kRows>
SOLITON_INLINE void multiply_wide(const WideBlock<kLayout>& block, Rows x, Ints (&dots)[kRows]) {
    __m256i low_sums[kRows] = {};
    __m256i high_sums[kRows] = {};
    for (int64_t j = 0; j < WideBlock<kLayout>::kGroups; ++j) {
        const __m256i low = load_bytes(block.groups[j]);
        const __m256i high = load_bytes(block.groups[j] + 32);
        for (int row = 0; row < kRows; ++row) {
            const __m256i four = _mm256_set1_epi32(four_codes(x.at + row * x.stride + j * 4));
            if constexpr (kLayout == Layout::kQ8) {
                low_sums[row] = _mm256_add_epi32(low_sums[row], _mm256_madd_epi16(low, four));
                high_sums[row] = _mm256_add_epi32(high_sums[row], _mm256_madd_epi16(high, four));
            } else {
                low_sums[row] = _mm256_add_epi16(low_sums[row], _mm256_maddubs_epi16(low, four));
                high_sums[row] = _mm256_add_epi16(high_sums[row], _mm256_maddubs_epi16(high, four));
            }
            settle(low_sums[row]);
            settle(high_sums[row]);
        }
    }
    const __m256i ones = _mm256_set1_epi16(1);
    for (int row = 0; row < kRows; ++row) {
        if constexpr (kLayout == Layout::kQ8) {
            dots[row] = {low_sums[row], high_sums[row]};
        } else {
            dots[row] = {_mm256_madd_epi16(low_sums[row], ones),
                         _mm256_madd_epi16(high_sums[row], ones)};
        }
    }
}

template <Layout kLayout, int kRows>
[[gnu::noinline]] void add_wide_tile(const WideBlock<kLayout>* blocks, Rows x, Rows scales,
                                     int64_t n_blocks, float* sums) {
    constexpr int64_t kBytes = kReadsWords<kLayout> ? kBlockWordBytes : kBlockColumns;
    for (int64_t b = 0; b < n_blocks; ++b) {
        Ints dots[kRows];
        multiply_wide<kLayout, kRows>(blocks[b], {x.at + b * kBytes, x.stride}, dots);
        const Floats scale = load(blocks[b].scales);
        for (int row = 0; row < kRows; ++row) {
            const CodeBlock& code =
                reinterpret_cast<const CodeBlock*>(scales.at + row * scales.stride)[b];
            Floats total = load(sums + row * kLanes);
            total =
                multiply_add(to_floats(dots[row]), multiply(scale, broadcast(code.scale)), total);
            if constexpr (kLayout == Layout::kQ4) {
                total = multiply_add(load(blocks[b].minima), broadcast(code.scaled_sum), total);
            }
            store(sums + row * kLanes, total);
        }
    }
}

#endif

// --- Both ---

// Blocks begin.. before end of a panel, and rows of x from `x` on.
struct Chunk {
    const uint8_t* panel;
    const std::byte* x;
    int64_t row_bytes;
    int64_t n_in;
    int64_t begin;
    int64_t end;

    // What a tile reads of x from a row on: values, codes or words, and with codes their
    // CodeBlocks.
    template <Layout kLayout>
    SOLITON_INLINE Rows values(int64_t row) const {
        const int64_t at = kReadsWords<kLayout>    ? words_at(n_in) + begin * kBlockWordBytes
                           : is_quantized(kLayout) ? begin * kBlockColumns
                                                   : begin * kBlockColumns * 4;
        return {x + row * row_bytes + at, row_bytes};
    }

    SOLITON_INLINE Rows scales(int64_t row) const {
        const int64_t at = blocks_for(n_in) * kBlockColumns + begin * int64_t{sizeof(CodeBlock)};
        return {x + row * row_bytes + at, row_bytes};
    }
};

template <Layout kLayout, int kRows, bool kPrefetch>
SOLITON_INLINE void add_tile(const Chunk& chunk, int64_t row, float* sums) {
    const uint8_t* weights = chunk.panel + chunk.begin * block_bytes(kLayout);
    if constexpr (is_quantized(kLayout)) {
        add_code_tile<kLayout, kRows, kPrefetch>(weights, chunk.values<kLayout>(row),
                                                 chunk.scales(row), chunk.end - chunk.begin, sums);
    } else {
        const int64_t end = chunk.end * kBlockColumns;
        const int64_t end_column = end < chunk.n_in ? end : chunk.n_in;
        add_float_tile<kLayout, kRows, kPrefetch>(weights, chunk.values<kLayout>(row),
                                                  end_column - chunk.begin * kBlockColumns, sums);
    }
}

// Calls `function` with `n` as its template argument, n at most kMost.
template <int kMost, typename Function>
SOLITON_INLINE void with_rows(int64_t n, Function function) {
    if (n == kMost) {
        function.template operator()<kMost>();
    } else if constexpr (kMost > 1) {
        with_rows<kMost - 1>(n, function);
    }
}

// Calls `function` with each tile's first row, its rows as the template argument: as few tiles as
// possible, all of nearly the same size.
template <int kMost, typename Function>
SOLITON_INLINE void each_tile(int64_t n_rows, Function function) {
    for (int64_t row = 0; row < n_rows;) {
        const int64_t left = n_rows - row;
        const int64_t tiles = (left + kMost - 1) / kMost;
        const int64_t size = (left + tiles - 1) / tiles;
        with_rows<kMost>(size, [&]<int kRows>() { function.template operator()<kRows>(row); });
        row += size;
    }
}

// sums (n_rows, kSums, kLanes) += rows of x times a chunk of a panel.
template <Layout kLayout>
void add_chunk(const Chunk& chunk, int64_t n_rows, float* sums) {
    constexpr int64_t kSumsPerRow = kSums<kLayout> * kLanes;
#if defined(SOLITON_LANES_AVX2)
    if constexpr (is_quantized(kLayout)) {
        if (n_rows > kWideRows) {
            WideBlock<kLayout> blocks[kChunkBlocks<kLayout>];
            const int64_t n_blocks = chunk.end - chunk.begin;
            for (int64_t b = 0; b < n_blocks; ++b) {
                unpack(chunk.panel + (chunk.begin + b) * block_bytes(kLayout), blocks[b]);
            }
            each_tile<kWideRows>(n_rows, [&]<int kRows>(int64_t row) {
                add_wide_tile<kLayout, kRows>(blocks, chunk.values<kLayout>(row), chunk.scales(row),
                                              n_blocks, sums + row * kSumsPerRow);
            });
            return;
        }
    }
#endif
    each_tile<kMostRows<kLayout>>(n_rows, [&]<int kRows>(int64_t row) {
        float* tile_sums = sums + row * kSumsPerRow;
        if (row == 0) {  // the others find the weights in the cache
            add_tile<kLayout, kRows, true>(chunk, row, tile_sums);
        } else {
            add_tile<kLayout, kRows, false>(chunk, row, tile_sums);
        }
    });
}

// e^x for x from -87 to 88; infinity from 89 on, and below -87 what it is there.
SOLITON_INLINE Floats exponential(Floats x) {
    x = smaller(larger(x, broadcast(-87.0f)), broadcast(89.0f));
    // x = n ln 2 + r, and e^r by its Taylor series, |r| <= ln 2 / 2.
    const Ints n = round(multiply(x, broadcast(0x1.715476p+0f)));
    const Floats whole = to_floats(n);
    Floats r = multiply_add(whole, broadcast(-0x1.62e4p-1f), x);
    r = multiply_add(whole, broadcast(-0x1.7f7d1cp-20f), r);
    Floats p = broadcast(1.0f / 5040);
    p = multiply_add(p, r, broadcast(1.0f / 720));
    p = multiply_add(p, r, broadcast(1.0f / 120));
    p = multiply_add(p, r, broadcast(1.0f / 24));
    p = multiply_add(p, r, broadcast(1.0f / 6));
    p = multiply_add(p, r, broadcast(0.5f));
    p = multiply_add(p, r, broadcast(1.0f));
    p = multiply_add(p, r, broadcast(1.0f));
    return multiply(p, power_of_two(n));
}

SOLITON_INLINE Floats silu(Floats x) {
    const Floats e = exponential(multiply(x, broadcast(-1.0f)));
    return divide(x, add(broadcast(1.0f), e));
}

// One output of each of a panel's first n rows.
template <Layout kLayout>
SOLITON_INLINE Floats finish(const float* sums, const float* bias, int64_t n) {
    Floats y = load(sums);
    if constexpr (kSums<kLayout> == 2) {
        y = add(y, load(sums + kLanes));
    }
    return bias == nullptr ? y : add(y, load_first(bias, n));
}

// Some rows of x, and the panels of some units.
struct Group {
    int64_t begin_row;
    int64_t n_rows;
    int64_t begin_unit;
    int64_t n_units;
};

// sums (panels of the group, kRowsAtOnce, kSums, kLanes) = their products.
template <Layout kLayout>
void multiply_group(const MultiplyArgs& args, const Group& group, int64_t n_parts, float* sums) {
    constexpr int64_t kPanelSums = kRowsAtOnce * kSums<kLayout> * kLanes;
    const int64_t n_in = args.matrix.n_in;
    const int64_t n_blocks = blocks_for(n_in);
    const int64_t bytes = panel_bytes(kLayout, n_in);
    const uint8_t* panels =
        static_cast<const uint8_t*>(args.matrix.panels) + group.begin_unit * n_parts * bytes;
    const int64_t n_panels = group.n_units * n_parts;
    if constexpr (is_quantized(kLayout)) {
        if (group.n_rows == 1 && n_panels == kPanelsAtOnce) {
            const Chunk whole = {
                .panel = panels,
                .x = args.x + group.begin_row * args.row_bytes,
                .row_bytes = args.row_bytes,
                .n_in = n_in,
                .begin = 0,
                .end = n_blocks,
            };
            add_code_streams<kLayout, kPanelsAtOnce>(panels, bytes, whole.values<kLayout>(0),
                                                     whole.scales(0), n_blocks, sums, kPanelSums);
            return;
        }
    }
    for (int64_t i = 0; i < n_panels; ++i) {
        __builtin_memset(sums + i * kPanelSums, 0,
                         group.n_rows * kSums<kLayout> * kLanes * sizeof(float));
    }
    for (int64_t begin = 0; begin < n_blocks; begin += kChunkBlocks<kLayout>) {
        const int64_t left = n_blocks - begin;
        const int64_t n = left < kChunkBlocks<kLayout> ? left : kChunkBlocks<kLayout>;
        for (int64_t i = 0; i < n_panels; ++i) {
            const Chunk chunk = {
                .panel = panels + i * bytes,
                .x = args.x + group.begin_row * args.row_bytes,
                .row_bytes = args.row_bytes,
                .n_in = n_in,
                .begin = begin,
                .end = begin + n,
            };
            add_chunk<kLayout>(chunk, group.n_rows, sums + i * kPanelSums);
        }
    }
}

// The outputs of a unit, from the sums of its panels.
template <Layout kLayout>
void finish_unit(const MultiplyArgs& args, const Group& group, int64_t unit, int64_t width,
                 const float* sums) {
    constexpr int64_t kSumsPerRow = kSums<kLayout> * kLanes;
    const int64_t column = unit * kPanelRows;
    const int64_t n = width - column < kPanelRows ? width - column : kPanelRows;
    const float* bias = args.bias == nullptr ? nullptr : args.bias + column;
    const float* up_bias = args.bias == nullptr ? nullptr : bias + width;
    const float* up_sums = sums + kRowsAtOnce * kSumsPerRow;
    for (int64_t row = 0; row < group.n_rows; ++row) {
        Floats y = finish<kLayout>(sums + row * kSumsPerRow, bias, n);
        if (args.epilogue == Epilogue::kSiluGate) {
            const Floats up = finish<kLayout>(up_sums + row * kSumsPerRow, up_bias, n);
            y = multiply(silu(y), up);
        }
        float* out = args.out + (group.begin_row + row) * width + column;
        n == kPanelRows ? store(out, y) : store_first(out, y, n);
    }
}

template <Layout kLayout>
void multiply_units(const MultiplyArgs& args) {
    constexpr int64_t kPanelSums = kRowsAtOnce * kSums<kLayout> * kLanes;
    const int64_t n_parts = args.epilogue == Epilogue::kSiluGate ? 2 : 1;
    const int64_t width = args.matrix.n_out / n_parts;  // of a row of out
    // With few rows the weights take the time. Then one panel after the other, but for a single row
    // of codes, which takes several side by side.
    const bool in_streams = is_quantized(kLayout) && args.n_rows == 1;
    const int64_t units_at_once =
        args.n_rows > kFewRows || in_streams ? kPanelsAtOnce / n_parts : 1;
    alignas(64) float sums[kPanelsAtOnce * kPanelSums];
    Group group;
    for (group.begin_row = 0; group.begin_row < args.n_rows; group.begin_row += kRowsAtOnce) {
        const int64_t rows_left = args.n_rows - group.begin_row;
        group.n_rows = rows_left < kRowsAtOnce ? rows_left : kRowsAtOnce;
        for (group.begin_unit = args.begin_unit; group.begin_unit < args.end_unit;
             group.begin_unit += units_at_once) {
            const int64_t units_left = args.end_unit - group.begin_unit;
            group.n_units = units_left < units_at_once ? units_left : units_at_once;
            multiply_group<kLayout>(args, group, n_parts, sums);
            for (int64_t i = 0; i < group.n_units; ++i) {
                finish_unit<kLayout>(args, group, group.begin_unit + i, width,
                                     sums + i * n_parts * kPanelSums);
            }
        }
    }
}

}  // namespace

void multiply_units(const MultiplyArgs& args) {
    switch (args.matrix.layout) {
        case Layout::kF32:
            return multiply_units<Layout::kF32>(args);
        case Layout::kBf16:
            return multiply_units<Layout::kBf16>(args);
        case Layout::kQ8:
            return multiply_units<Layout::kQ8>(args);
        case Layout::kQ4:
            return multiply_units<Layout::kQ4>(args);
    }
}

}  // namespace soliton::SOLITON_ISA
