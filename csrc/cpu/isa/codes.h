// Products of codes, for each instruction set.
//
// Each instruction set defines Codes<kLayout, kRows> for kRows rows of x: multiply(block, b, dots)
// adds the products of their codes (words with kReadsWords) with block b of a panel to dots. With
// kHasExcess the weights' codes are multiplied as stored, so the caller starts dots with the
// correction.
#pragma once

#include "../tiles.h"

namespace soliton::SOLITON_ISA {
namespace {

// Four codes of x, or two words, which are multiplied with all 16 rows of a group.
SOLITON_INLINE int32_t four_codes(const std::byte* at) {
    int32_t codes;
    __builtin_memcpy(&codes, at, sizeof codes);
    return codes;
}

}  // namespace
}  // namespace soliton::SOLITON_ISA

#if defined(SOLITON_LANES_AVX512)
#include "codes_avx512.h"
#elif defined(SOLITON_LANES_AVX2)
#include "codes_avx2.h"
#elif defined(SOLITON_LANES_NEON)
#include "codes_neon.h"
#else
#include "codes_plain.h"
#endif

namespace soliton::SOLITON_ISA {
namespace {

// What the products of a block begin with: the correction if the weights' codes are multiplied as
// stored, too large by an excess that divides 128.
template <Layout kLayout>
SOLITON_INLINE int32_t first_sum(const CodeBlock& code) {
    if constexpr (kLayout == Layout::kQ4 || !kHasExcess<kLayout>) {
        return 0;
    } else {
        return code.offset / (128 / excess(kLayout));
    }
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
