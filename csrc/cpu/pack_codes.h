// Codes of a block, joined into the lines that layout.h describes. Knows no weights.
//
// Everything is in an unnamed namespace: no copy is shared between instruction sets.
#pragma once

#include "kernels.h"

namespace soliton::SOLITON_ISA {
namespace {

// The codes of a group, four bytes of each row. They fit the lower bits of every byte.
using Group = uint32_t[kPanelRows];
constexpr int64_t kGroups = kBlockColumns / 4;

// These bits of all four bytes.
uint32_t bits(uint32_t bytes, uint32_t mask) {
    return bytes & mask * 0x01010101u;
}

void join_six_bits(const Group (&groups)[kGroups], Group* lines, int64_t row) {
    for (int64_t quad = 0; quad < 2; ++quad) {
        const uint32_t last = groups[4 * quad + 3][row];
        lines[3 * quad][row] = groups[4 * quad][row] | bits(last, 48) << 2;
        lines[3 * quad + 1][row] = groups[4 * quad + 1][row] | bits(last, 12) << 4;
        lines[3 * quad + 2][row] = groups[4 * quad + 2][row] | bits(last, 3) << 6;
    }
}

void join_five_bits(const Group (&groups)[kGroups], Group* lines, int64_t row) {
    const uint32_t third = groups[2][row];
    const uint32_t sixth = groups[5][row];
    const uint32_t eighth = groups[7][row];
    lines[0][row] = groups[0][row] | bits(third, 28) << 3;
    lines[1][row] = groups[1][row] | bits(third, 3) << 6 | bits(eighth, 2) << 4;
    lines[2][row] = groups[3][row] | bits(sixth, 28) << 3;
    lines[3][row] = groups[4][row] | bits(sixth, 3) << 6 | bits(eighth, 1) << 5;
    lines[4][row] = groups[6][row] | bits(eighth, 28) << 3;
}

void join_four_bits(const Group (&groups)[kGroups], Group* lines, int64_t row) {
    for (int64_t pair = 0; pair < kGroups / 2; ++pair) {
        lines[pair][row] = groups[2 * pair][row] | groups[2 * pair + 1][row] << 4;
    }
}

void join_two_bits(const Group (&groups)[kGroups], Group* lines, int64_t row) {
    for (int64_t quad = 0; quad < 2; ++quad) {
        const Group* four = groups + 4 * quad;
        lines[quad][row] = four[0][row] | four[1][row] << 2 | four[2][row] << 4 | four[3][row] << 6;
    }
}

// Writes the lines of a block.
template <Layout kLayout>
void write_codes(const Group (&groups)[kGroups], uint8_t* out) {
    constexpr int kBits = code_bits(kLayout);
    if constexpr (kBits == 8) {
        __builtin_memcpy(out, groups, sizeof groups);
        return;
    }
    uint32_t lines[code_bytes(kLayout) / sizeof groups[0]][kPanelRows];
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        if constexpr (kBits == 6) {
            join_six_bits(groups, lines, row);
        } else if constexpr (kBits == 5) {
            join_five_bits(groups, lines, row);
        } else if constexpr (kBits == 4) {
            join_four_bits(groups, lines, row);
        } else if constexpr (kBits == 2) {
            join_two_bits(groups, lines, row);
        }
    }
    __builtin_memcpy(out, lines, sizeof lines);
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
