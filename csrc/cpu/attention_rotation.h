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

// One stage for each bit of an index, the lowest first: neighbours become their sum and their
// difference, in two halves. So the next bit is the lowest one, and after all of them each number
// is in its place. A loop over a whole half is vector code, for the first bits too.
inline void rotate_block(float* x, int64_t size) {
    float memory[kMaxHeadDim];
    float* from = x;
    float* to = memory;
    const int64_t half = size / 2;
    for (int64_t n = size; n > 1; n /= 2) {
#pragma omp simd
        for (int64_t i = 0; i < half; ++i) {
            const float a = from[2 * i];
            const float b = from[2 * i + 1];
            to[i] = a + b;
            to[half + i] = a - b;
        }
        float* swapped = from;
        from = to;
        to = swapped;
    }
    if (from != x) {
        __builtin_memcpy(x, from, size * sizeof(float));
    }
}

// In place, n numbers in blocks of the largest power of two that divides n.
inline void rotate_head(float* x, int64_t n, Side side) {
    const int64_t size = n & -n;
    const int log = __builtin_ctzll(static_cast<uint64_t>(n));
    for (int64_t block = 0; block < n; block += size) {
        rotate_block(x + block, size);
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
