// The blocks of GGUF types: where their codes and scales are, in the order and with the numbers of
// the layout that holds them without loss. Knows nothing of panels.
//
// Source of the bits: the reference in Python, gguf.quants (MIT), which the file format fixes.
// Everything is in an unnamed namespace: no copy is shared between instruction sets.
#pragma once

#include "pack_numbers.h"

namespace soliton::SOLITON_ISA {
namespace {

// The scales of a row's block of a file.
struct FileScales {
    uint16_t factor;      // float16, or what Scaling multiplies its numbers with
    uint16_t minimum;     // the same for what is added to a product
    uint8_t numbers[16];  // those of Scaling, or the exponent
};

// A float16 as stored, which is not aligned.
uint16_t half_at(const uint8_t* at) {
    uint16_t half;
    __builtin_memcpy(&half, at, sizeof half);
    return half;
}

uint16_t negative(uint16_t half) {
    return half ^ 0x8000;
}

// 32 codes of 4 bits: the first 16 in the low halves of 16 bytes, the others in the high ones.
void read_halves(const uint8_t* at, uint8_t* codes) {
    for (int64_t i = 0; i < 16; ++i) {
        codes[i] = at[i] & 15;
        codes[i + 16] = at[i] >> 4;
    }
}

// Adds the fifth bits of 32 codes, one after the other.
void add_fifth_bits(const uint8_t* at, uint8_t* codes) {
    uint32_t bits;
    __builtin_memcpy(&bits, at, sizeof bits);
    for (int64_t i = 0; i < kBlockColumns; ++i) {
        codes[i] |= static_cast<uint8_t>((bits >> i & 1) << 4);
    }
}

// Of each type: its layout, the columns and bytes of a block, and how scales and the codes of
// columns 32k.. are read from a block.

struct FileQ4_0 {
    static constexpr Layout kLayout = Layout::kQ4_0;
    static constexpr int64_t kColumns = 32;
    static constexpr int64_t kBytes = 18;
    static void read_scales(const uint8_t* at, FileScales& scales) { scales.factor = half_at(at); }
    static void read_codes(const uint8_t* at, int64_t, uint8_t* codes) {
        read_halves(at + 2, codes);
    }
};

struct FileIq4Nl : FileQ4_0 {
    static constexpr Layout kLayout = Layout::kIq4Nl;
};

struct FileQ4_1 {
    static constexpr Layout kLayout = Layout::kQ4;
    static constexpr int64_t kColumns = 32;
    static constexpr int64_t kBytes = 20;
    static void read_scales(const uint8_t* at, FileScales& scales) {
        scales.factor = half_at(at);
        scales.minimum = half_at(at + 2);
    }
    static void read_codes(const uint8_t* at, int64_t, uint8_t* codes) {
        read_halves(at + 4, codes);
    }
};

struct FileQ5_0 {
    static constexpr Layout kLayout = Layout::kQ5_0;
    static constexpr int64_t kColumns = 32;
    static constexpr int64_t kBytes = 22;
    static void read_scales(const uint8_t* at, FileScales& scales) { scales.factor = half_at(at); }
    static void read_codes(const uint8_t* at, int64_t, uint8_t* codes) {
        read_halves(at + 6, codes);
        add_fifth_bits(at + 2, codes);
    }
};

struct FileQ5_1 {
    static constexpr Layout kLayout = Layout::kQ5;
    static constexpr int64_t kColumns = 32;
    static constexpr int64_t kBytes = 24;
    static void read_scales(const uint8_t* at, FileScales& scales) {
        scales.factor = half_at(at);
        scales.minimum = half_at(at + 2);
    }
    static void read_codes(const uint8_t* at, int64_t, uint8_t* codes) {
        read_halves(at + 8, codes);
        add_fifth_bits(at + 4, codes);
    }
};

struct FileQ8_0 {
    static constexpr Layout kLayout = Layout::kQ8;
    static constexpr int64_t kColumns = 32;
    static constexpr int64_t kBytes = 34;
    static void read_scales(const uint8_t* at, FileScales& scales) { scales.factor = half_at(at); }
    static void read_codes(const uint8_t* at, int64_t, uint8_t* codes) {
        for (int64_t i = 0; i < kBlockColumns; ++i) {
            codes[i] = at[2 + i] ^ 128;
        }
    }
};

struct FileMxfp4 {
    static constexpr Layout kLayout = Layout::kMxfp4;
    static constexpr int64_t kColumns = 32;
    static constexpr int64_t kBytes = 17;
    static void read_scales(const uint8_t* at, FileScales& scales) { scales.numbers[0] = at[0]; }
    static void read_codes(const uint8_t* at, int64_t, uint8_t* codes) {
        read_halves(at + 1, codes);
    }
};

struct FileIq4Xs {
    static constexpr Layout kLayout = Layout::kIq4Xs;
    static constexpr int64_t kColumns = 256;
    static constexpr int64_t kBytes = 136;
    static void read_scales(const uint8_t* at, FileScales& scales) {
        scales.factor = half_at(at);
        const uint16_t high = half_at(at + 2);
        for (int64_t i = 0; i < 8; ++i) {
            const int low = at[4 + i / 2] >> i % 2 * 4 & 15;
            scales.numbers[i] = static_cast<uint8_t>(low | (high >> 2 * i & 3) << 4);
        }
    }
    static void read_codes(const uint8_t* at, int64_t k, uint8_t* codes) {
        read_halves(at + 8 + k * 16, codes);
    }
};

// Eight scales and eight minima of 6 bits in 12 bytes. The lower bits of the last four of each are
// in the last four bytes, their upper two in the upper bits of the first eight.
void read_six_bit_lines(const uint8_t* at, FileScales& scales) {
    for (int64_t i = 0; i < 4; ++i) {
        scales.numbers[2 * i] = at[i] & 63;
        scales.numbers[2 * i + 1] = at[4 + i] & 63;
        scales.numbers[2 * i + 8] = (at[8 + i] & 15) | at[i] >> 6 << 4;
        scales.numbers[2 * i + 9] = at[8 + i] >> 4 | at[4 + i] >> 6 << 4;
    }
}

struct FileQ4_K {
    static constexpr Layout kLayout = Layout::kQ4_K;
    static constexpr int64_t kColumns = 256;
    static constexpr int64_t kBytes = 144;
    static void read_scales(const uint8_t* at, FileScales& scales) {
        scales.factor = half_at(at);
        scales.minimum = negative(half_at(at + 2));
        read_six_bit_lines(at + 4, scales);
    }
    static void read_codes(const uint8_t* at, int64_t k, uint8_t* codes) {
        const uint8_t* from = at + 16 + k / 2 * 32;
        for (int64_t i = 0; i < kBlockColumns; ++i) {
            codes[i] = from[i] >> k % 2 * 4 & 15;
        }
    }
};

struct FileQ5_K {
    static constexpr Layout kLayout = Layout::kQ5_K;
    static constexpr int64_t kColumns = 256;
    static constexpr int64_t kBytes = 176;
    static void read_scales(const uint8_t* at, FileScales& scales) {
        FileQ4_K::read_scales(at, scales);
    }
    static void read_codes(const uint8_t* at, int64_t k, uint8_t* codes) {
        const uint8_t* from = at + 48 + k / 2 * 32;
        for (int64_t i = 0; i < kBlockColumns; ++i) {
            const int high = at[16 + i] >> k & 1;
            codes[i] = static_cast<uint8_t>((from[i] >> k % 2 * 4 & 15) | high << 4);
        }
    }
};

struct FileQ6_K {
    static constexpr Layout kLayout = Layout::kQ6_K;
    static constexpr int64_t kColumns = 256;
    static constexpr int64_t kBytes = 210;
    static void read_scales(const uint8_t* at, FileScales& scales) {
        scales.factor = half_at(at + 208);
        __builtin_memcpy(scales.numbers, at + 192, 16);
    }
    static void read_codes(const uint8_t* at, int64_t k, uint8_t* codes) {
        const uint8_t* low = at + k / 4 * 64 + k % 2 * 32;
        const uint8_t* high = at + 128 + k / 4 * 32;
        for (int64_t i = 0; i < kBlockColumns; ++i) {
            const int upper = high[i] >> k % 4 * 2 & 3;
            codes[i] = static_cast<uint8_t>((low[i] >> k % 4 / 2 * 4 & 15) | upper << 4);
        }
    }
};

// Two bits of each of 32 bytes for every block; four blocks share them.
void read_two_bits(const uint8_t* at, int64_t k, uint8_t* codes) {
    for (int64_t i = 0; i < kBlockColumns; ++i) {
        codes[i] = at[k / 4 * 32 + i] >> k % 4 * 2 & 3;
    }
}

struct FileQ2_K {
    static constexpr Layout kLayout = Layout::kQ2_K;
    static constexpr int64_t kColumns = 256;
    static constexpr int64_t kBytes = 84;
    static void read_scales(const uint8_t* at, FileScales& scales) {
        __builtin_memcpy(scales.numbers, at, 16);
        scales.factor = half_at(at + 80);
        scales.minimum = negative(half_at(at + 82));
    }
    static void read_codes(const uint8_t* at, int64_t k, uint8_t* codes) {
        read_two_bits(at + 16, k, codes);
    }
};

// Codes from -4 to 3 and scales from -32 to 31, which the layout of Q6_K holds as well.
struct FileQ3_K {
    static constexpr Layout kLayout = Layout::kQ6_K;
    static constexpr int64_t kColumns = 256;
    static constexpr int64_t kBytes = 110;
    static void read_scales(const uint8_t* at, FileScales& scales) {
        for (int64_t i = 0; i < 16; ++i) {
            const int low = at[96 + i % 8] >> i / 8 * 4 & 15;
            const int high = at[104 + i % 4] >> i / 4 * 2 & 3;
            scales.numbers[i] = static_cast<uint8_t>((low | high << 4) - 32);
        }
        scales.factor = half_at(at + 108);
    }
    static void read_codes(const uint8_t* at, int64_t k, uint8_t* codes) {
        read_two_bits(at + 32, k, codes);
        for (int64_t i = 0; i < kBlockColumns; ++i) {
            codes[i] = static_cast<uint8_t>(codes[i] + (at[i] >> k & 1) * 4 + 28);
        }
    }
};

// What `function` returns with the type as its template argument.
template <typename Function>
auto with_file_type(SourceType source, Function function) {
    switch (source) {
        case SourceType::kQ4_1:
            return function.template operator()<FileQ4_1>();
        case SourceType::kQ5_0:
            return function.template operator()<FileQ5_0>();
        case SourceType::kQ5_1:
            return function.template operator()<FileQ5_1>();
        case SourceType::kQ8_0:
            return function.template operator()<FileQ8_0>();
        case SourceType::kQ2_K:
            return function.template operator()<FileQ2_K>();
        case SourceType::kQ3_K:
            return function.template operator()<FileQ3_K>();
        case SourceType::kQ4_K:
            return function.template operator()<FileQ4_K>();
        case SourceType::kQ5_K:
            return function.template operator()<FileQ5_K>();
        case SourceType::kQ6_K:
            return function.template operator()<FileQ6_K>();
        case SourceType::kIq4Nl:
            return function.template operator()<FileIq4Nl>();
        case SourceType::kIq4Xs:
            return function.template operator()<FileIq4Xs>();
        case SourceType::kMxfp4:
            return function.template operator()<FileMxfp4>();
        default:
            return function.template operator()<FileQ4_0>();
    }
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
