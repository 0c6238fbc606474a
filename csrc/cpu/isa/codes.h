// Products of codes, as the instruction set does them.
//
// Codes<kLayout, kRows> of the instruction set knows a block of kRows rows of x: multiply(block, b,
// dots) adds to dots the products of its codes, or words where kReadsWords, with the block of a
// panel. With kHasExcess those are 128 too large, and dots begin with what makes up for it.
#pragma once

#include "../tiles.h"

namespace soliton::SOLITON_ISA {
namespace {

// Four codes of x, or two words, for the 16 rows of a group.
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
