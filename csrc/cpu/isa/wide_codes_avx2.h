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
// places, then at odd places), for kQ4 a byte per code.
template <Layout kLayout>
struct WideBlock {
    static constexpr int64_t kGroups = kLayout == Layout::kQ8 ? 16 : 8;
    alignas(64) uint8_t groups[kGroups][kLineBytes];
    float scales[kPanelRows];
    float minima[kPanelRows];  // of kQ4
};

// Twelve sums, two vectors of weights, one of x and one of products use all sixteen registers.
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

// The products of a block with the same block of some rows of x, from `x` on.
template <Layout kLayout, int kRows>
SOLITON_INLINE void multiply_wide(const WideBlock<kLayout>& block, Rows x, Ints (&dots)[kRows]) {
    __m256i low_sums[kRows];
    __m256i high_sums[kRows];
    for (int row = 0; row < kRows; ++row) {
        low_sums[row] = _mm256_setzero_si256();
        high_sums[row] = _mm256_setzero_si256();
    }
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

}  // namespace
}  // namespace soliton::SOLITON_ISA
