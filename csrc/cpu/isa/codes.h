// Products of codes, for each instruction set.
//
// Each instruction set defines Codes<kLayout, kRows> for kRows rows of x: multiply(block, b, dots)
// adds the products of their codes (words with kReadsWords) with block b of a panel to dots. With
// kHasExcess the codes of kQ8 are 128 too large, so the caller starts dots with the correction.
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

// What the products of a block begin with.
template <Layout kLayout>
SOLITON_INLINE int32_t first_sum(const CodeBlock& code) {
    return kLayout == Layout::kQ8 && kHasExcess ? code.offset : 0;
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
