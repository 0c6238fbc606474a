// Codes unpacked once for many rows, in AVX2: the unpacked blocks, and the products of rows with
// them.
#pragma once

#include "codes_avx2.h"

namespace soliton::SOLITON_ISA {
namespace {

SOLITON_INLINE void store_bytes(void* at, __m256i bytes) {
    _mm256_store_si256(static_cast<__m256i*>(at), bytes);
}

// A block of a panel in the form whose products are fastest: for kQ8 pairs of words (codes at even
// places, then at odd places), otherwise a byte per code.
template <Layout kLayout>
struct WideBlock {
    static constexpr int64_t kGroups = kLayout == Layout::kQ8 ? 16 : 8;
    static constexpr int64_t kGroupsPerSum = kLayout == Layout::kQ8 ? 16 : kGroupsInWords<kLayout>;
    alignas(64) uint8_t groups[kGroups][kLineBytes];
    float scales[kPanelRows];
    float minima[kPanelRows];  // unless of kQ8
};

// Twelve sums, two vectors of weights, one of x and one of products use all sixteen registers.
constexpr int kWideRows = 6;

template <Layout kLayout>
SOLITON_INLINE void unpack(const uint8_t* block, WideBlock<kLayout>& wide) {
    const __m256i even_places = _mm256_set1_epi16(0xff);
    const __m256i excess = _mm256_set1_epi16(128);
#pragma GCC unroll 8
    for (int64_t j = 0; j < 8; ++j) {
        for (int64_t half = 0; half < kLineBytes; half += 32) {
            if constexpr (kLayout == Layout::kQ8) {
                const __m256i both = load_bytes(block + j * kLineBytes + half);
                store_bytes(wide.groups[j] + half,
                            _mm256_sub_epi16(_mm256_and_si256(both, even_places), excess));
                store_bytes(wide.groups[j + 8] + half,
                            _mm256_sub_epi16(_mm256_srli_epi16(both, 8), excess));
            } else {
                store_bytes(wide.groups[j] + half, load_group<kLayout>(block, j, half));
            }
        }
    }
    store(wide.scales, load_float16(block + code_bytes(kLayout)));
    if constexpr (has_minimum(kLayout)) {
        store(wide.minima, load_float16(block + code_bytes(kLayout) + kPanelRows * 2));
    }
}

// The products of some groups, from `begin` on, with the same groups of some rows of x.
template <Layout kLayout, int kRows>
SOLITON_INLINE void multiply_groups(const WideBlock<kLayout>& block, int64_t begin, Rows x,
                                    Ints (&dots)[kRows]) {
    constexpr int64_t kGroups = WideBlock<kLayout>::kGroupsPerSum;
    __m256i low_sums[kRows];
    __m256i high_sums[kRows];
    for (int row = 0; row < kRows; ++row) {
        low_sums[row] = _mm256_setzero_si256();
        high_sums[row] = _mm256_setzero_si256();
    }
    for (int64_t j = begin; j < begin + kGroups; ++j) {
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

// The products of a block with the same block of some rows of x, from `x` on.
template <Layout kLayout, int kRows>
SOLITON_INLINE void multiply_wide(const WideBlock<kLayout>& block, Rows x, Ints (&dots)[kRows]) {
    using Wide = WideBlock<kLayout>;
    multiply_groups(block, 0, x, dots);
    for (int64_t begin = Wide::kGroupsPerSum; begin < Wide::kGroups; begin += Wide::kGroupsPerSum) {
        Ints more[kRows];
        multiply_groups(block, begin, x, more);
        for (int row = 0; row < kRows; ++row) {
            dots[row] = add(dots[row], more[row]);
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
            if constexpr (has_minimum(kLayout)) {
                total = multiply_add(load(blocks[b].minima), broadcast(code.scaled_sum), total);
            }
            store(sums + row * kLanes, total);
        }
    }
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
