// Rows of x times panels of weights: one pass over the weights, however many rows there are.
// Compiled once per instruction set (see kernels.h); ops_linear.cpp says who multiplies what.
//
// An output is one chain of fused multiply-adds, ascending: over blocks where the matrix is
// quantised (inside a block integers are added, exactly), over even and over odd columns, added at
// the end, where it is not. So it depends neither on which rows share a tile nor on the instruction
// set.
//
// The weights of a chunk of blocks stay in the first-level cache while all rows pass by; sums are
// kept in memory from one chunk to the next.
#include "kernels.h"
#include "lanes.h"

namespace soliton::SOLITON_ISA {
namespace {

constexpr int64_t kChunkBlocks = 16;
// Rows whose sums are kept at once.
constexpr int64_t kRowsAtOnce = 128;
constexpr int64_t kMostPanels = 2;  // of a unit
// Weights are read once and in order. The processor foresees that, but stops at every page.
constexpr int64_t kPrefetchBytes = 4096;
constexpr int64_t kLineBytes = 64;

// Rows of a tile, by layout: they share what was loaded and unpacked of the weights, and their sums
// stay in registers. Enough sums to hide the time an instruction takes, no more than registers.
#if defined(SOLITON_LANES_AVX512)
constexpr int kTileRows[] = {12, 12, 12, 12};
#elif defined(SOLITON_LANES_AVX2)
constexpr int kTileRows[] = {6, 6, 3, 3};
#else
constexpr int kTileRows[] = {1, 1, 1, 1};
#endif
template <Layout kLayout>
constexpr int kMostRows = kTileRows[static_cast<int>(kLayout)];

// Sums that one output has: of even and of odd columns where it is a sum of floats.
template <Layout kLayout>
constexpr int kSums = is_quantized(kLayout) ? 1 : 2;

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
template <Layout kLayout, int kRows, bool kEven, bool kOdd>
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
            prefetch(weights + k / 2 * kPairLines * kLineBytes, kPairLines);
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
template <Layout kLayout, int kRows>
[[gnu::noinline]] void add_float_tile(const uint8_t* weights, Rows x, int64_t n_columns,
                                      float* sums) {
#if defined(SOLITON_LANES_AVX2)
    constexpr bool kInOneGo = kRows <= 3;  // two registers for each of even and odd
#else
    constexpr bool kInOneGo = true;
#endif
    if constexpr (kInOneGo) {
        add_columns<kLayout, kRows, true, true>(weights, x, n_columns, sums);
    } else {
        add_columns<kLayout, kRows, true, false>(weights, x, n_columns, sums);
        add_columns<kLayout, kRows, false, true>(weights, x, n_columns, sums);
    }
}

// --- Codes ---

// Four codes of x, for the 16 rows of a group.
SOLITON_INLINE int32_t four_codes(const std::byte* at) {
    int32_t codes;
    __builtin_memcpy(&codes, at, sizeof codes);
    return codes;
}

// Codes of x, as far as a chunk goes, in the form in which they are multiplied; and the products of
// one block of them with one of a panel, less what codes + 128 make too much of it.
#if defined(SOLITON_LANES_AVX512)

template <Layout kLayout, int kRows>
struct Codes {
    Rows x;

    SOLITON_INLINE Codes(Rows x, int64_t) : x(x) {}

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

template <Layout kLayout, int kRows>
struct Codes;

// Products of bytes would not fit the 16 bits in which they are added in pairs. So bytes become
// words: those in even places and those in odd ones.
template <int kRows>
struct Codes<Layout::kQ8, kRows> {
    static constexpr int64_t kWords = kChunkBlocks * kBlockColumns;
    alignas(32) int16_t words[kRows][kWords];  // per block 16 in even places, 16 in odd ones

    SOLITON_INLINE Codes(Rows x, int64_t n_blocks) {
        for (int row = 0; row < kRows; ++row) {
            for (int64_t b = 0; b < n_blocks; ++b) {
                const __m256i codes = load_bytes(x.at + row * x.stride + b * kBlockColumns);
                __m256i* target = reinterpret_cast<__m256i*>(words[row] + b * kBlockColumns);
                _mm256_store_si256(target, _mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 8));
                _mm256_store_si256(target + 1, _mm256_srai_epi16(codes, 8));
            }
        }
    }

    SOLITON_INLINE void multiply(const uint8_t* block, int64_t b, Ints (&dots)[kRows]) const {
        const __m256i even_places = _mm256_set1_epi16(0xff);
        const int64_t begin = b * kBlockColumns;
        for (int64_t j = 0; j < kBlockColumns / 4; ++j) {
            const __m256i low = load_bytes(block + j * kLineBytes);
            const __m256i high = load_bytes(block + j * kLineBytes + 32);
            const __m256i low_even = _mm256_and_si256(low, even_places);
            const __m256i high_even = _mm256_and_si256(high, even_places);
            const __m256i low_odd = _mm256_srli_epi16(low, 8);
            const __m256i high_odd = _mm256_srli_epi16(high, 8);
            for (int row = 0; row < kRows; ++row) {
                const int16_t* pair = words[row] + begin + j * 2;
                const __m256i even = _mm256_set1_epi32(two_words(pair));
                const __m256i odd = _mm256_set1_epi32(two_words(pair + 16));
                dots[row].low = _mm256_add_epi32(dots[row].low, _mm256_madd_epi16(low_even, even));
                dots[row].low = _mm256_add_epi32(dots[row].low, _mm256_madd_epi16(low_odd, odd));
                dots[row].high =
                    _mm256_add_epi32(dots[row].high, _mm256_madd_epi16(high_even, even));
                dots[row].high = _mm256_add_epi32(dots[row].high, _mm256_madd_epi16(high_odd, odd));
            }
        }
    }

    SOLITON_INLINE static int32_t two_words(const int16_t* at) {
        int32_t words;
        __builtin_memcpy(&words, at, sizeof words);
        return words;
    }
};

// Halves of bytes times bytes: even all of a block, 16 products, fit 16 bits (16 * 15 * 127).
template <int kRows>
struct Codes<Layout::kQ4, kRows> {
    Rows x;

    SOLITON_INLINE Codes(Rows x, int64_t) : x(x) {}

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
            }
        };
        // Unrolled, all products would come before all sums, and need more registers than there
        // are.
#pragma GCC unroll 1
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

#else

template <Layout kLayout, int kRows>
struct Codes {
    Rows x;

    SOLITON_INLINE Codes(Rows x, int64_t) : x(x) {}

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
template <Layout kLayout, int kRows>
[[gnu::noinline]] void add_code_tile(const uint8_t* block, Rows x, Rows scales, int64_t n_blocks,
                                     float* sums) {
    constexpr int64_t kBytes = block_bytes(kLayout);
    constexpr int64_t kCodeBytes =
        kLayout == Layout::kQ8 ? kBlockColumns * kPanelRows : kBlockColumns * kPanelRows / 2;
    const Codes<kLayout, kRows> codes(x, n_blocks);
    Floats totals[kRows];
    for (int row = 0; row < kRows; ++row) {
        totals[row] = load(sums + row * kLanes);
    }
    for (int64_t b = 0; b < n_blocks; ++b, block += kBytes) {
        prefetch(block, (kBytes + kLineBytes - 1) / kLineBytes);
        const auto scale_of = [&](int row) -> const CodeBlock& {
            return reinterpret_cast<const CodeBlock*>(scales.at + row * scales.stride)[b];
        };
        Ints dots[kRows];
        for (int row = 0; row < kRows; ++row) {
            dots[row] = broadcast(kLayout == Layout::kQ8 ? -128 * scale_of(row).sum : 0);
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

// --- Both ---

// Blocks begin.. before end of a panel, for a tile of rows from `x` on.
template <Layout kLayout, int kRows>
SOLITON_INLINE void add_tile(const MultiplyArgs& args, const uint8_t* panel, const std::byte* x,
                             int64_t begin, int64_t end, float* sums) {
    const uint8_t* weights = panel + begin * block_bytes(kLayout);
    const int64_t begin_column = begin * kBlockColumns;
    const int64_t n_in = args.matrix.n_in;
    if constexpr (is_quantized(kLayout)) {
        const std::byte* scales = x + blocks_for(n_in) * kBlockColumns + begin * sizeof(CodeBlock);
        add_code_tile<kLayout, kRows>(weights, {x + begin_column, args.row_bytes},
                                      {scales, args.row_bytes}, end - begin, sums);
    } else {
        const int64_t end_column = end * kBlockColumns < n_in ? end * kBlockColumns : n_in;
        add_float_tile<kLayout, kRows>(weights, {x + begin_column * 4, args.row_bytes},
                                       end_column - begin_column, sums);
    }
}

template <Layout kLayout, int kRows>
void add_tile_of(int64_t n_rows, const MultiplyArgs& args, const uint8_t* panel, const std::byte* x,
                 int64_t begin, int64_t end, float* sums) {
    if (n_rows == kRows) {
        add_tile<kLayout, kRows>(args, panel, x, begin, end, sums);
    } else if constexpr (kRows > 1) {
        add_tile_of<kLayout, kRows - 1>(n_rows, args, panel, x, begin, end, sums);
    }
}

// sums (n_rows, kSums, kLanes) = rows of x times a panel.
template <Layout kLayout>
void multiply_panel(const MultiplyArgs& args, const uint8_t* panel, const std::byte* x,
                    int64_t n_rows, float* sums) {
    constexpr int64_t kMost = kMostRows<kLayout>;
    constexpr int64_t kSumsPerRow = kSums<kLayout> * kLanes;
    const int64_t n_blocks = blocks_for(args.matrix.n_in);
    __builtin_memset(sums, 0, n_rows * kSumsPerRow * sizeof(float));
    for (int64_t begin = 0; begin < n_blocks; begin += kChunkBlocks) {
        const int64_t end = begin + kChunkBlocks < n_blocks ? begin + kChunkBlocks : n_blocks;
        for (int64_t row = 0; row < n_rows;) {
            // As few tiles as possible, all of nearly the same size.
            const int64_t left = n_rows - row;
            const int64_t tiles = (left + kMost - 1) / kMost;
            const int64_t size = (left + tiles - 1) / tiles;
            add_tile_of<kLayout, kMost>(size, args, panel, x + row * args.row_bytes, begin, end,
                                        sums + row * kSumsPerRow);
            row += size;
        }
    }
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

template <Layout kLayout>
void multiply_units(const MultiplyArgs& args) {
    constexpr int64_t kSumsPerRow = kSums<kLayout> * kLanes;
    const bool gated = args.epilogue == Epilogue::kSiluGate;
    const int64_t n_panels = gated ? 2 : 1;
    const int64_t width = args.matrix.n_out / n_panels;  // of a row of out
    const int64_t bytes = panel_bytes(kLayout, args.matrix.n_in);
    alignas(64) float sums[kMostPanels][kRowsAtOnce * kSumsPerRow];
    for (int64_t unit = args.begin_unit; unit < args.end_unit; ++unit) {
        const uint8_t* panel =
            static_cast<const uint8_t*>(args.matrix.panels) + unit * n_panels * bytes;
        const int64_t column = unit * kPanelRows;
        const int64_t n = width - column < kPanelRows ? width - column : kPanelRows;
        const float* bias = args.bias == nullptr ? nullptr : args.bias + column;
        const float* up_bias = args.bias == nullptr ? nullptr : bias + width;
        for (int64_t begin = 0; begin < args.n_rows; begin += kRowsAtOnce) {
            const int64_t left = args.n_rows - begin;
            const int64_t n_rows = left < kRowsAtOnce ? left : kRowsAtOnce;
            for (int64_t i = 0; i < n_panels; ++i) {
                multiply_panel<kLayout>(args, panel + i * bytes, args.x + begin * args.row_bytes,
                                        n_rows, sums[i]);
            }
            for (int64_t row = 0; row < n_rows; ++row) {
                Floats y = finish<kLayout>(sums[0] + row * kSumsPerRow, bias, n);
                if (gated) {
                    const Floats up = finish<kLayout>(sums[1] + row * kSumsPerRow, up_bias, n);
                    y = multiply(silu(y), up);
                }
                float* out = args.out + (begin + row) * width + column;
                n == kPanelRows ? store(out, y) : store_first(out, y, n);
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
