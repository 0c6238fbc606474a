// Codes unpacked once for many rows, in AVX2: as wide_codes.h describes them.
#pragma once

#include "wide_codes.h"

namespace soliton::SOLITON_ISA {
namespace {

// Twelve sums, two vectors of weights, one of x and one of products use all sixteen registers. So a
// tile has one panel.
template <int kPanels>
constexpr int kWideRows = 6;
constexpr int64_t kWidePanels = 1;
template <Layout>
constexpr int64_t kFewWideRows = kFewRows;

SOLITON_INLINE void store_bytes(void* at, __m256i bytes) {
    _mm256_store_si256(static_cast<__m256i*>(at), bytes);
}

template <Layout kLayout>
SOLITON_INLINE void unpack_codes(const uint8_t* block, WideBlock<kLayout>& wide) {
    const __m256i even_places = _mm256_set1_epi16(0xff);
    const __m256i excess = _mm256_set1_epi16(128);
#pragma GCC unroll 8
    for (int64_t j = 0; j < 8; ++j) {
        for (int64_t half = 0; half < kLineBytes; half += 32) {
            if constexpr (kReadsWords<kLayout>) {
                const __m256i both = load_group<kLayout>(block, j, half);
                store_bytes(wide.groups[j] + half,
                            _mm256_sub_epi16(_mm256_and_si256(both, even_places), excess));
                store_bytes(wide.groups[j + 8] + half,
                            _mm256_sub_epi16(_mm256_srli_epi16(both, 8), excess));
            } else {
                store_bytes(wide.groups[j] + half, load_group<kLayout>(block, j, half));
            }
        }
    }
}

template <Layout kLayout>
constexpr int64_t kGroupsPerSum = kReadsWords<kLayout> ? 16 : kGroupsInWords<kLayout>;

// The products of some groups, from `begin` on, with the same groups of some rows of x.
template <Layout kLayout, int kRows>
SOLITON_INLINE void multiply_groups(const WideBlock<kLayout>& block, int64_t begin, Rows x,
                                    Ints (&dots)[kRows]) {
    constexpr int64_t kGroups = kGroupsPerSum<kLayout>;
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
            if constexpr (kReadsWords<kLayout>) {
                low_sums[row] = _mm256_add_epi32(low_sums[row], _mm256_madd_epi16(low, four));
                high_sums[row] = _mm256_add_epi32(high_sums[row], _mm256_madd_epi16(high, four));
            } else {
                low_sums[row] = _mm256_add_epi16(low_sums[row], sums_of_two<kLayout>(low, four));
                high_sums[row] = _mm256_add_epi16(high_sums[row], sums_of_two<kLayout>(high, four));
            }
            settle(low_sums[row]);
            settle(high_sums[row]);
        }
    }
    const __m256i ones = _mm256_set1_epi16(1);
    for (int row = 0; row < kRows; ++row) {
        if constexpr (kReadsWords<kLayout>) {
            dots[row] = {low_sums[row], high_sums[row]};
        } else {
            dots[row] = {_mm256_madd_epi16(low_sums[row], ones),
                         _mm256_madd_epi16(high_sums[row], ones)};
        }
    }
}

// The products of a part of a block with the same part of some rows of x, from `x` on.
template <Layout kLayout, int kPart, int kRows>
SOLITON_INLINE void multiply_wide(const WideBlock<kLayout>& block, Rows x, Ints (&dots)[kRows]) {
    using Wide = WideBlock<kLayout>;
    constexpr int64_t kGroups = Wide::kGroups / Wide::kParts;
    constexpr int64_t kBegin = kPart * kGroups;
    multiply_groups(block, kBegin, x, dots);
    for (int64_t begin = kBegin + kGroupsPerSum<kLayout>; begin < kBegin + kGroups;
         begin += kGroupsPerSum<kLayout>) {
        Ints more[kRows];
        multiply_groups(block, begin, x, more);
        for (int row = 0; row < kRows; ++row) {
            dots[row] = add(dots[row], more[row]);
        }
    }
}

template <Layout kLayout, int kPanels, int kRows>
[[gnu::noinline]] void add_wide_tile(const WideBlock<kLayout>* blocks, Rows x, Rows scales,
                                     int64_t n_blocks, float* sums, int64_t) {
    static_assert(kPanels == 1);
    constexpr int64_t kBytes = kReadsWords<kLayout> ? kBlockWordBytes : kBlockColumns;
    for (int64_t b = 0; b < n_blocks; ++b) {
        each_part<kLayout>([&]<int kPart>() __attribute__((always_inline)) {
            Ints dots[kRows];
            multiply_wide<kLayout, kPart, kRows>(blocks[b], {x.at + b * kBytes, x.stride}, dots);
            const Floats scale = load(blocks[b].scales[kPart]);
            for (int row = 0; row < kRows; ++row) {
                const CodeBlock& code =
                    reinterpret_cast<const CodeBlock*>(scales.at + row * scales.stride)[b];
                if constexpr (!kReadsWords<kLayout> && kExcess<kLayout> != 0) {
                    dots[row] = add(dots[row], broadcast(first_sum<kLayout, kPart>(code)));
                }
                Floats total = load(sums + row * kLanes);
                total = multiply_add(to_floats(dots[row]), multiply(scale, broadcast(code.scale)),
                                     total);
                if constexpr (has_minimum(kLayout)) {
                    const float sum = scaled_sum<kLayout, kPart>(code);
                    total = multiply_add(load(blocks[b].minima[kPart]), broadcast(sum), total);
                }
                store(sums + row * kLanes, total);
            }
        });
    }
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
