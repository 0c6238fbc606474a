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
template <Layout>
constexpr int kExcess = 0;

template <Layout kLayout, int kRows>
struct Codes {
    Rows x;

    template <int kPart>
    SOLITON_INLINE void multiply(const uint8_t* block, int64_t b, Ints (&dots)[kRows]) const {
        constexpr int64_t kBegin = kPart * kPartGroups<kLayout>;
        for (int64_t j = kBegin; j < kBegin + kPartGroups<kLayout>; ++j) {
            int8_t weights[4 * kLanes];
            for (int64_t i = 0; i < 4 * kLanes; ++i) {
                const int stored = stored_code(kLayout, block, j, i);
                weights[i] = static_cast<int8_t>(code_value(kLayout, stored));
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
