// Products of codes, for each instruction set.
//
// Each instruction set defines Codes<kLayout, kRows> for kRows rows of x: multiply<kPart>(block, b,
// dots) adds the products of their codes (words with kReadsWords) with block b of a panel to dots,
// or with the part of it that has a scale of its own. The bytes that are multiplied are kExcess
// larger than what the codes stand for, so the caller starts dots with the correction.
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

// The groups that share a scale.
template <Layout kLayout>
constexpr int64_t kPartGroups = kBlockColumns / 4 / scales_per_block(kLayout);

// The bits of what is multiplied: of codes, or of what a table has for them, made unsigned.
template <Layout kLayout>
constexpr int kByteBits = !has_table(kLayout)         ? code_bits(kLayout)
                          : kLayout == Layout::kMxfp4 ? 5
                                                      : 8;

// What must be added to the numbers of a table, so that they are unsigned.
template <Layout kLayout>
constexpr int kTableExcess = 1 << (kByteBits<kLayout> - 1);

// A table of bytes, signed or not.
struct alignas(16) ByteTable {
    uint8_t at[16];
};

// The numbers that 4-bit codes stand for, and `excess` more.
constexpr ByteTable byte_table(Layout layout, int excess) {
    ByteTable table = {};
    for (int i = 0; i < 16; ++i) {
        table.at[i] = static_cast<uint8_t>(code_value(layout, i) + excess);
    }
    return table;
}

// kExcess where everything is multiplied as unsigned bytes.
template <Layout kLayout>
constexpr int kUnsignedExcess = !has_table(kLayout) ? code_excess(kLayout) : kTableExcess<kLayout>;

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

// What the products with a part of a block begin with: -kExcess * the sum of x's codes.
template <Layout kLayout, int kPart>
SOLITON_INLINE int32_t first_sum(const CodeBlock& code) {
    constexpr int kShift = 7 - __builtin_ctz(kExcess<kLayout> | 1 << 7);
    if constexpr (kExcess<kLayout> == 0) {
        return 0;
    } else if constexpr (scales_per_block(kLayout) == 1) {
        return code.offset >> kShift;
    } else {
        const int32_t first = -kExcess<kLayout> * code.half_sum;
        return kPart == 0 ? first : (code.offset >> kShift) - first;
    }
}

// What the minimum of a part is multiplied with.
template <Layout kLayout, int kPart>
SOLITON_INLINE float scaled_sum(const CodeBlock& code) {
    if constexpr (scales_per_block(kLayout) == 1) {
        return code.scaled_sum;
    } else {
        const int32_t rest = -(code.offset >> 7) - code.half_sum;
        return code.scale * static_cast<float>(kPart == 0 ? code.half_sum : rest);
    }
}

// Calls `function` with each part as its template argument.
template <Layout kLayout, typename Function>
SOLITON_INLINE void each_part(const Function& function) {
    function.template operator()<0>();
    if constexpr (scales_per_block(kLayout) == 2) {
        function.template operator()<1>();
    }
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
