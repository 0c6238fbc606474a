// The blocks of GGUF types: where their codes and scales are, in the order and with the numbers of
// the layout that holds them without loss. Knows nothing of panels.
//
// Source of the bits: the reference in Python, gguf.quants (MIT), which the file format fixes.
// Everything is in an unnamed namespace: no copy is shared between instruction sets.
#pragma once

#include "pack_numbers.h"
#include "pack_scales.h"

namespace soliton::SOLITON_ISA {
namespace {

// A float16 as stored, which is not aligned.
uint16_t half_at(const uint8_t* at) {
    uint16_t half;
    __builtin_memcpy(&half, at, sizeof half);
    return half;
}

// Eight bytes at a time, which are shifted together: what comes from a neighbour is masked.
uint64_t load_eight(const uint8_t* at) {
    uint64_t bytes;
    __builtin_memcpy(&bytes, at, sizeof bytes);
    return bytes;
}

void store_eight(uint8_t* at, uint64_t bytes) {
    __builtin_memcpy(at, &bytes, sizeof bytes);
}

// These bits of all bytes, which are shifted to the right before.
uint64_t bits_of(uint64_t bytes, int64_t shift, uint64_t mask) {
    return bytes >> shift & mask * 0x0101010101010101u;
}

// 32 codes of 4 bits: the first 16 in the low halves of 16 bytes, the others in the high ones.
void read_halves(const uint8_t* at, uint8_t* codes) {
    for (int64_t i = 0; i < 16; i += 8) {
        const uint64_t bytes = load_eight(at + i);
        store_eight(codes + i, bits_of(bytes, 0, 15));
        store_eight(codes + i + 16, bits_of(bytes, 4, 15));
    }
}

// Adds the fifth bits of 32 codes, one after the other.
void add_fifth_bits(const uint8_t* at, uint8_t* codes) {
    for (int64_t i = 0; i < 4; ++i) {
        // Each byte keeps another bit. Adding 127 moves it into the highest place.
        const uint64_t kept = at[i] * 0x0101010101010101u & 0x8040201008040201u;
        const uint64_t highest = kept + 0x7f7f7f7f7f7f7f7fu;
        store_eight(codes + 8 * i, load_eight(codes + 8 * i) | bits_of(highest, 7, 1) << 4);
    }
}

// 32 codes that are the same bits of 32 bytes.
void read_bits(const uint8_t* at, int64_t shift, uint64_t mask, uint8_t* codes) {
    for (int64_t i = 0; i < kBlockColumns; i += 8) {
        store_eight(codes + i, bits_of(load_eight(at + i), shift, mask));
    }
}

// Adds bits of 32 other bytes, moved to the left.
void add_bits(const uint8_t* at, int64_t shift, uint64_t mask, int64_t left, uint8_t* codes) {
    for (int64_t i = 0; i < kBlockColumns; i += 8) {
        const uint64_t more = bits_of(load_eight(at + i), shift, mask) << left;
        store_eight(codes + i, load_eight(codes + i) + more);
    }
}

// Of each type: its layout, the columns and bytes of a block, and how scales and the codes of
// columns 32k.. are read from a block.

struct FileQ4_0 {
    static constexpr Layout kLayout = Layout::kQ4_0;
    static constexpr int64_t kColumns = 32;
    static constexpr int64_t kBytes = 18;
    static void read_scales(const uint8_t* at, RowScales& scales) { scales.factor = half_at(at); }
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
    static void read_scales(const uint8_t* at, RowScales& scales) {
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
    static void read_scales(const uint8_t* at, RowScales& scales) { scales.factor = half_at(at); }
    static void read_codes(const uint8_t* at, int64_t, uint8_t* codes) {
        read_halves(at + 6, codes);
        add_fifth_bits(at + 2, codes);
    }
};

struct FileQ5_1 {
    static constexpr Layout kLayout = Layout::kQ5;
    static constexpr int64_t kColumns = 32;
    static constexpr int64_t kBytes = 24;
    static void read_scales(const uint8_t* at, RowScales& scales) {
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
    static void read_scales(const uint8_t* at, RowScales& scales) { scales.factor = half_at(at); }
    static void read_codes(const uint8_t* at, int64_t, uint8_t* codes) {
        for (int64_t i = 0; i < kBlockColumns; i += 8) {
            store_eight(codes + i, load_eight(at + 2 + i) ^ 0x8080808080808080u);
        }
    }
};

struct FileMxfp4 {
    static constexpr Layout kLayout = Layout::kMxfp4;
    static constexpr int64_t kColumns = 32;
    static constexpr int64_t kBytes = 17;
    static void read_scales(const uint8_t* at, RowScales& scales) { scales.numbers[0] = at[0]; }
    static void read_codes(const uint8_t* at, int64_t, uint8_t* codes) {
        read_halves(at + 1, codes);
    }
};

struct FileIq4Xs {
    static constexpr Layout kLayout = Layout::kIq4Xs;
    static constexpr int64_t kColumns = 256;
    static constexpr int64_t kBytes = 136;
    static void read_scales(const uint8_t* at, RowScales& scales) {
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
void read_six_bit_lines(const uint8_t* at, RowScales& scales) {
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
    static void read_scales(const uint8_t* at, RowScales& scales) {
        scales.factor = half_at(at);
        scales.minimum = negative(half_at(at + 2));
        read_six_bit_lines(at + 4, scales);
    }
    static void read_codes(const uint8_t* at, int64_t k, uint8_t* codes) {
        read_bits(at + 16 + k / 2 * 32, k % 2 * 4, 15, codes);
    }
};

struct FileQ5_K {
    static constexpr Layout kLayout = Layout::kQ5_K;
    static constexpr int64_t kColumns = 256;
    static constexpr int64_t kBytes = 176;
    static void read_scales(const uint8_t* at, RowScales& scales) {
        FileQ4_K::read_scales(at, scales);
    }
    static void read_codes(const uint8_t* at, int64_t k, uint8_t* codes) {
        read_bits(at + 48 + k / 2 * 32, k % 2 * 4, 15, codes);
        add_bits(at + 16, k, 1, 4, codes);
    }
};

struct FileQ6_K {
    static constexpr Layout kLayout = Layout::kQ6_K;
    static constexpr int64_t kColumns = 256;
    static constexpr int64_t kBytes = 210;
    static void read_scales(const uint8_t* at, RowScales& scales) {
        scales.factor = half_at(at + 208);
        __builtin_memcpy(scales.numbers, at + 192, 16);
    }
    static void read_codes(const uint8_t* at, int64_t k, uint8_t* codes) {
        read_bits(at + k / 4 * 64 + k % 2 * 32, k % 4 / 2 * 4, 15, codes);
        add_bits(at + 128 + k / 4 * 32, k % 4 * 2, 3, 4, codes);
    }
};

struct FileQ2_K {
    static constexpr Layout kLayout = Layout::kQ2_K;
    static constexpr int64_t kColumns = 256;
    static constexpr int64_t kBytes = 84;
    static void read_scales(const uint8_t* at, RowScales& scales) {
        __builtin_memcpy(scales.numbers, at, 16);
        scales.factor = half_at(at + 80);
        scales.minimum = negative(half_at(at + 82));
    }
    static void read_codes(const uint8_t* at, int64_t k, uint8_t* codes) {
        read_bits(at + 16 + k / 4 * 32, k % 4 * 2, 3, codes);
    }
};

// Codes from -4 to 3 and scales from -32 to 31, which the layout of Q6_K holds as well.
struct FileQ3_K {
    static constexpr Layout kLayout = Layout::kQ6_K;
    static constexpr int64_t kColumns = 256;
    static constexpr int64_t kBytes = 110;
    static void read_scales(const uint8_t* at, RowScales& scales) {
        for (int64_t i = 0; i < 16; ++i) {
            const int low = at[96 + i % 8] >> i / 8 * 4 & 15;
            const int high = at[104 + i % 4] >> i / 4 * 2 & 3;
            scales.numbers[i] = static_cast<uint8_t>((low | high << 4) - 32);
        }
        scales.factor = half_at(at + 108);
    }
    static void read_codes(const uint8_t* at, int64_t k, uint8_t* codes) {
        read_bits(at + 32 + k / 4 * 32, k % 4 * 2, 3, codes);
        add_bits(at, k, 1, 2, codes);
        for (int64_t i = 0; i < kBlockColumns; i += 8) {
            store_eight(codes + i, load_eight(codes + i) + 28 * 0x0101010101010101u);
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
