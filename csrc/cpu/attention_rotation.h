// The rotation of heads whose keys or values are codes: a Hadamard transform, which spreads an
// outlier over its neighbours. Queries are rotated as keys are, so scores stay; outputs are rotated
// back. Owns the rotation of one head; the same bits in every instruction set.
#pragma once

#include "kernels.h"

namespace soliton::SOLITON_ISA {
namespace {

// Keys and values are stored; queries and outputs read them. The two scales make a rotation and its
// inverse of both, and each is a power of two.
enum class Side { kStored, kRead };

// In place, n numbers in blocks of the largest power of two that divides n.
inline void rotate_head(float* x, int64_t n, Side side) {
    const int64_t size = n & -n;
    int log = 0;
    for (int64_t half = 1; half < size; half *= 2, ++log) {
        for (int64_t block = 0; block < n; block += 2 * half) {
            float* low = x + block;
            float* high = low + half;
#pragma omp simd
            for (int64_t i = 0; i < half; ++i) {
                const float a = low[i];
                const float b = high[i];
                low[i] = a + b;
                high[i] = a - b;
            }
        }
    }
    const int stored = log / 2;
    const int power = side == Side::kStored ? stored : log - stored;
    const float scale = 1.0f / static_cast<float>(int64_t{1} << power);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
        x[i] *= scale;
    }
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
