// Products of codes in plain C++: Codes, as codes.h describes it.
#pragma once

#include "codes.h"

namespace soliton::SOLITON_ISA {
namespace {

// The largest number of rows of a tile, by layout.
template <Layout>
constexpr int kMostRows = 1;
// Whether the words of x are read instead of its codes.
template <Layout>
constexpr bool kReadsWords = false;
// Whether codes of kQ8 are multiplied as stored, 128 too large.
constexpr bool kHasExcess = true;

template <Layout kLayout, int kRows>
struct Codes {
    Rows x;

    SOLITON_INLINE void multiply(const uint8_t* block, int64_t b, Ints (&dots)[kRows]) const {
        for (int64_t j = 0; j < kBlockColumns / 4; ++j) {
            uint8_t weights[4 * kLanes];
            for (int64_t i = 0; i < 4 * kLanes; ++i) {
                weights[i] = static_cast<uint8_t>(stored_code(kLayout, block, j, i));
            }
            for (int row = 0; row < kRows; ++row) {
                const int8_t* codes = reinterpret_cast<const int8_t*>(x.at + row * x.stride +
                                                                      b * kBlockColumns + j * 4);
                for (int i = 0; i < kLanes; ++i) {
                    dots[row].at[i] += weights[4 * i] * codes[0] + weights[4 * i + 1] * codes[1] +
                                       weights[4 * i + 2] * codes[2] +
                                       weights[4 * i + 3] * codes[3];
                }
            }
        }
    }
};

}  // namespace
}  // namespace soliton::SOLITON_ISA
