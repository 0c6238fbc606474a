// The scale of a block of 6-bit or 5-bit codes: finds, for each row, one with a small squared
// error, in which the columns count by their importance. Knows no bytes.
//
// Everything is in an unnamed namespace: no copy is shared between instruction sets.
#pragma once

#include "pack_numbers.h"

namespace soliton::SOLITON_ISA {
namespace {

// The codes that the largest weight may get, as shares of the smallest code; codes beyond that are
// cut. With all of 8/16 to 16/16, weights that already are 5-bit codes times a scale are kept
// exactly: if the largest of these codes is below 8, they can be doubled. If several fit such
// codes, that scale divided by a power of two comes first, because float16 holds it.
constexpr float kLargestCodes[] = {
    16.0f / 16, 8.0f / 16,  12.0f / 16, 10.0f / 16, 14.0f / 16, 9.0f / 16,
    11.0f / 16, 13.0f / 16, 15.0f / 16, 15.5f / 16, 16.5f / 16, 17.0f / 16,
};
// A later one must gain more by this factor, which is more than rounding makes of equal ones.
constexpr float kClearly = 1.0f + 0x1p-20f;

// The nearest code, -kExcess to kExcess - 1.
template <int kExcess>
float nearest_signed(float value) {
    const float above = value < -kExcess ? -kExcess : value;
    const float inside = above > kExcess - 1 ? kExcess - 1 : above;
    return inside + 0x1.8p23f - 0x1.8p23f;
}

// The factors for weights: 0 for scale 0, so that all codes are zero.
Lanes inverse_or_zero(const Lanes& scale) {
    Lanes result;
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        const float quotient = 1.0f / scale.at[row];
        result.at[row] = scale.at[row] != 0.0f ? quotient : 0.0f;
    }
    return result;
}

// The weight of the largest magnitude, with its sign.
Lanes find_largest(const Block& block) {
    Lanes largest = block.columns[0];
    for (const Lanes& column : block.columns) {
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float value = column.at[row];
            const float before = largest.at[row];
            largest.at[row] = __builtin_fabsf(value) > __builtin_fabsf(before) ? value : before;
        }
    }
    return largest;
}

// The least-squares scale for some codes, and by how much it makes the squared error less than that
// of codes which are all zero.
struct Fit {
    Lanes scale;
    Lanes gain;
};

// For the codes that the weights get when they are multiplied by `per_step`. Scale 0 if all these
// codes are zero, or none is important.
template <int kExcess>
Fit fit_scale(const Block& block, const Lanes& per_step) {
    Lanes squares = {};
    Lanes products = {};
    for (int64_t k = 0; k < kBlockColumns; ++k) {
        const Lanes& column = block.columns[k];
        const float importance = block.importance[k];
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float code = nearest_signed<kExcess>(column.at[row] * per_step.at[row]);
            const float weighted = importance * code;
            squares.at[row] += weighted * code;
            products.at[row] += weighted * column.at[row];
        }
    }
    Fit fit;
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        const float slope = products.at[row] / squares.at[row];
        fit.scale.at[row] = squares.at[row] > 0.0f ? slope : 0.0f;
        fit.gain.at[row] = fit.scale.at[row] * products.at[row];
    }
    return fit;
}

// Each row's weighted squared error with the nearest codes.
template <int kExcess>
Lanes squared_error(const Block& block, const Lanes& scale) {
    const Lanes per_step = inverse_or_zero(scale);
    Lanes sum = {};
    for (int64_t k = 0; k < kBlockColumns; ++k) {
        const Lanes& column = block.columns[k];
        const float importance = block.importance[k];
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float code = nearest_signed<kExcess>(column.at[row] * per_step.at[row]);
            const float error = scale.at[row] * code - column.at[row];
            sum.at[row] += importance * (error * error);
        }
    }
    return sum;
}

// With the largest weight at the smallest code, all codes are used and no weight is cut. Other
// steps may fit the weights better: this tries several, each with its least-squares scale.
template <Layout kLayout>
Lanes best_scale(const Block& block) {
    constexpr int kExcess = excess(kLayout);
    const Lanes largest = find_largest(block);
    const Lanes inverse = inverse_or_zero(largest);
    Lanes plain;
    Fit best = {};
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        plain.at[row] = 0.0f - largest.at[row] / kExcess;
    }
    for (const float share : kLargestCodes) {
        Lanes per_step;
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            per_step.at[row] = inverse.at[row] * (share * -kExcess);
        }
        const Fit fit = fit_scale<kExcess>(block, per_step);
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const bool better = fit.gain.at[row] > best.gain.at[row] * kClearly;
            best.gain.at[row] = better ? fit.gain.at[row] : best.gain.at[row];
            best.scale.at[row] = better ? fit.scale.at[row] : best.scale.at[row];
        }
    }
    to_float16(plain);
    to_float16(best.scale);
    const Lanes plain_error = squared_error<kExcess>(block, plain);
    const Lanes best_error = squared_error<kExcess>(block, best.scale);
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        const bool better = best_error.at[row] < plain_error.at[row];
        best.scale.at[row] = better ? best.scale.at[row] : plain.at[row];
    }
    return best.scale;
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
