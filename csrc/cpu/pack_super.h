// Lines of the eight blocks of a super-block: scale and minimum are numbers of 6 bits, times
// factors that a row has for all eight. Finds numbers with a small squared error. Knows no bytes.
//
// Everything is in an unnamed namespace: no copy is shared between instruction sets.
#pragma once

#include "pack_line.h"

namespace soliton::SOLITON_ISA {
namespace {

constexpr int kLargestNumber = 63;

// What lines are made of, of 16 rows: a line's scale is a factor times a number, and its minimum is
// -(factor * number). Factors are float16, numbers whole.
using Factors = Line;
using Numbers = Line;

float nearest_number(float value) {
    return rounded<0, kLargestNumber>(value);
}

// The smallest factors with which the largest number reaches all lines.
Factors factors_for(const Line (&lines)[kSuperBlocks]) {
    Factors factors = {};
    for (const Line& line : lines) {
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float scale = line.scale.at[row];
            const float depth = -line.minimum.at[row];
            factors.scale.at[row] = scale > factors.scale.at[row] ? scale : factors.scale.at[row];
            factors.minimum.at[row] =
                depth > factors.minimum.at[row] ? depth : factors.minimum.at[row];
        }
    }
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        factors.scale.at[row] /= kLargestNumber;
        factors.minimum.at[row] /= kLargestNumber;
    }
    round_up_to_float16(factors.scale);
    round_up_to_float16(factors.minimum);
    return factors;
}

Line line_of(const Factors& factors, const Numbers& numbers) {
    Line line;
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        line.scale.at[row] = factors.scale.at[row] * numbers.scale.at[row];
        line.minimum.at[row] = -factors.minimum.at[row] * numbers.minimum.at[row];
    }
    return line;
}

// The number of the minimum that fits best to the codes which `line` gives the weights.
template <Layout kLayout>
Lanes fitted_minimum(const Block& block, const Line& line, const Lanes& per_minimum) {
    const Lanes per_step = inverse(line.scale);
    Lanes rest = {};
    float n = 0.0f;
    for (int64_t k = 0; k < kBlockColumns; ++k) {
        const Lanes& column = block.columns[k];
        const float importance = block.importance[k];
        n += importance;
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float value = column.at[row] - line.minimum.at[row];
            const float code = nearest_code<kLayout>(value * per_step.at[row]);
            rest.at[row] += importance * (line.scale.at[row] * code - column.at[row]);
        }
    }
    Lanes number;
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        number.at[row] = n > 0.0f ? nearest_number(rest.at[row] / n * per_minimum.at[row]) : 0.0f;
    }
    return number;
}

// The best of a few numbers around a line: its own, rounded, and scales one less and one more, each
// with the minimum that fits it.
template <Layout kLayout>
Numbers best_numbers(const Block& block, const Line& wanted, const Factors& factors) {
    const Lanes per_scale = inverse(factors.scale);
    const Lanes per_minimum = inverse(factors.minimum);
    Numbers best;
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        best.scale.at[row] = nearest_number(wanted.scale.at[row] * per_scale.at[row]);
        best.minimum.at[row] = nearest_number(-wanted.minimum.at[row] * per_minimum.at[row]);
    }
    const Numbers nearest = best;
    Lanes least = squared_error<kLayout>(block, line_of(factors, best));
    for (int more = -1; more <= 1; ++more) {
        Numbers numbers = nearest;
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            numbers.scale.at[row] =
                nearest_number(nearest.scale.at[row] + static_cast<float>(more));
        }
        numbers.minimum = fitted_minimum<kLayout>(block, line_of(factors, numbers), per_minimum);
        const Line line = line_of(factors, numbers);
        keep_better(numbers, squared_error<kLayout>(block, line), best, least);
    }
    return best;
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
