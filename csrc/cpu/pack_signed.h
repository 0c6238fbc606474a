// Codes from -32 to 31 and no minima: each half of a block has a scale, which is a number of 8 bits
// times the factor that a row has for a super-block. Finds scales with a small squared error. Knows
// no bytes.
//
// Everything is in an unnamed namespace: no copy is shared between instruction sets.
#pragma once

#include "pack_line.h"

namespace soliton::SOLITON_ISA {
namespace {

constexpr int64_t kHalfColumns = kBlockColumns / 2;
constexpr int64_t kHalves = 2 * kSuperBlocks;
constexpr int kLowestSigned = -32;
constexpr int kHighestSigned = 31;
constexpr int kLargestHalfNumber = 127;
// The codes that the largest weight would have. Beyond -32 it is clipped, and the steps are
// smaller.
constexpr float kReach[] = {32.0f, 33.0f, 34.0f};

float nearest_signed(float value) {
    return rounded<kLowestSigned, kHighestSigned>(value);
}

// 1 / scale, of either sign; 0 for scale 0.
Lanes signed_inverse(const Lanes& scale) {
    Lanes result;
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        const float quotient = 1.0f / scale.at[row];
        result.at[row] = scale.at[row] != 0.0f ? quotient : 0.0f;
    }
    return result;
}

// The weights of half a block.
struct HalfBlock {
    const Lanes* columns;
    const float* importance;
};

// What the codes of a scale come to: the sums of which the best scale for them is a quotient, and
// the squared error with the scale itself.
struct SignedFit {
    Lanes products;
    Lanes squares;
    Lanes error;
};

SignedFit fit_signed(const HalfBlock& half, const Lanes& scale) {
    const Lanes per_step = signed_inverse(scale);
    SignedFit fit = {};
    for (int64_t k = 0; k < kHalfColumns; ++k) {
        const Lanes& column = half.columns[k];
        const float importance = half.importance[k];
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float code = nearest_signed(column.at[row] * per_step.at[row]);
            const float error = scale.at[row] * code - column.at[row];
            fit.products.at[row] += importance * (code * column.at[row]);
            fit.squares.at[row] += importance * (code * code);
            fit.error.at[row] += importance * (error * error);
        }
    }
    return fit;
}

// The weight of the largest size. It gets the lowest code, which has no counterpart, so a scale may
// be negative.
Lanes largest_weight(const HalfBlock& half) {
    Lanes largest = {};
    for (int64_t k = 0; k < kHalfColumns; ++k) {
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float value = half.columns[k].at[row];
            const bool is_larger = __builtin_fabsf(value) > __builtin_fabsf(largest.at[row]);
            largest.at[row] = is_larger ? value : largest.at[row];
        }
    }
    return largest;
}

// The best of a few scales, each fitted to its codes.
Lanes best_scale(const HalfBlock& half) {
    const Lanes largest = largest_weight(half);
    Lanes best = {};
    Lanes least = {};
    for (const float reach : kReach) {
        Lanes scale;
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            scale.at[row] = largest.at[row] / -reach;
        }
        const SignedFit first = fit_signed(half, scale);
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float fitted = first.products.at[row] / first.squares.at[row];
            scale.at[row] = first.squares.at[row] > 0.0f ? fitted : scale.at[row];
        }
        const SignedFit fit = fit_signed(half, scale);
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const bool better = fit.error.at[row] < least.at[row] || reach == kReach[0];
            least.at[row] = better ? fit.error.at[row] : least.at[row];
            best.at[row] = better ? scale.at[row] : best.at[row];
        }
    }
    return best;
}

// The smallest factor with which the largest number reaches all scales.
Lanes factor_for(const Lanes (&scales)[kHalves]) {
    Lanes factor = {};
    for (const Lanes& scale : scales) {
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float size = __builtin_fabsf(scale.at[row]);
            factor.at[row] = size > factor.at[row] ? size : factor.at[row];
        }
    }
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        factor.at[row] /= kLargestHalfNumber;
    }
    round_up_to_float16(factor);
    return factor;
}

// The number of a scale, as a float.
Lanes number_of(const Lanes& scale, const Lanes& factor) {
    const Lanes per_factor = inverse(factor);
    Lanes number;
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        const float value = scale.at[row] * per_factor.at[row];
        number.at[row] = rounded<-kLargestHalfNumber, kLargestHalfNumber>(value);
    }
    return number;
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
