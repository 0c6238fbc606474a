// The line scale * code + minimum for a block of codes: finds, for each row, one with a small
// squared error, in which the columns count by their importance. Knows no bytes.
//
// A super-block stores no minimum above 0, and rounds the lines of its blocks later (pack_super.h).
//
// Everything is in an unnamed namespace: no copy is shared between instruction sets.
#pragma once

#include "pack_numbers.h"

namespace soliton::SOLITON_ISA {
namespace {

// Shares of a row's range that may be cut off at either end, in the first kCuts of them: the more
// steps the range has, the less is to be gained by smaller ones.
constexpr float kCut[] = {0.0f, 0.03f, 0.06f};
template <Layout kLayout>
constexpr int kCuts = 7 - code_bits(kLayout);

template <Layout kLayout>
constexpr float kLargestCode = (1 << code_bits(kLayout)) - 1;

template <Layout kLayout>
constexpr bool kInSuperBlocks = scaling(kLayout) == Scaling::kSuperLine;

// A row's weights are scale * code + minimum, with codes from 0 to kLargestCode.
struct Line {
    Lanes scale;
    Lanes minimum;
};

// The factors for differences from the minimum: 0 for scale 0, so that all codes are zero.
Lanes inverse(const Lanes& scale) {
    Lanes result;
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        const float quotient = 1.0f / scale.at[row];
        result.at[row] = scale.at[row] > 0.0f ? quotient : 0.0f;
    }
    return result;
}

template <Layout kLayout>
float nearest_code(float value) {
    return rounded<0, static_cast<int>(kLargestCode<kLayout>)>(value);
}

// To the numbers that the layout stores, if it stores them as they are.
template <Layout kLayout>
void round_to_stored(Line& line) {
    if constexpr (!kInSuperBlocks<kLayout>) {
        to_float16(line.scale);
        to_float16(line.minimum);
    }
}

// The least-squares line for the codes that `line` gives the weights; `line` itself if these codes
// are all the same, or none is important.
template <Layout kLayout>
Line fitted(const Block& block, const Line& line) {
    const Lanes per_step = inverse(line.scale);
    Lanes codes = {};
    Lanes squares = {};
    Lanes values = {};
    Lanes products = {};
    float n = 0.0f;
    for (int64_t k = 0; k < kBlockColumns; ++k) {
        const Lanes& column = block.columns[k];
        const float importance = block.importance[k];
        n += importance;
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float value = column.at[row] - line.minimum.at[row];
            const float code = nearest_code<kLayout>(value * per_step.at[row]);
            codes.at[row] += importance * code;
            squares.at[row] += importance * (code * code);
            values.at[row] += importance * value;
            products.at[row] += importance * (code * value);
        }
    }
    Line result;
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        const float spread = n * squares.at[row] - codes.at[row] * codes.at[row];
        const float slope = (n * products.at[row] - codes.at[row] * values.at[row]) / spread;
        const float offset = (values.at[row] - slope * codes.at[row]) / n;
        const float minimum = line.minimum.at[row] + offset;
        result.scale.at[row] = spread > 0.0f ? slope : line.scale.at[row];
        result.minimum.at[row] = spread > 0.0f ? minimum : line.minimum.at[row];
        if constexpr (kInSuperBlocks<kLayout>) {
            // The minimum stays at 0, and the line through it is fitted.
            const float through_zero =
                (products.at[row] + line.minimum.at[row] * codes.at[row]) / squares.at[row];
            const bool is_above = result.minimum.at[row] > 0.0f;
            result.scale.at[row] = is_above ? through_zero : result.scale.at[row];
            result.minimum.at[row] = is_above ? 0.0f : result.minimum.at[row];
        }
    }
    return result;
}

// Each row's weighted squared error with the nearest codes.
template <Layout kLayout>
Lanes squared_error(const Block& block, const Line& line) {
    const Lanes per_step = inverse(line.scale);
    Lanes sum = {};
    for (int64_t k = 0; k < kBlockColumns; ++k) {
        const Lanes& column = block.columns[k];
        const float importance = block.importance[k];
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float minimum = line.minimum.at[row];
            const float code = nearest_code<kLayout>((column.at[row] - minimum) * per_step.at[row]);
            const float error = line.scale.at[row] * code + minimum - column.at[row];
            sum.at[row] += importance * (error * error);
        }
    }
    return sum;
}

template <Layout kLayout>
void find_range(const Block& block, Lanes& low, Lanes& high) {
    low = high = block.columns[0];
    if constexpr (kInSuperBlocks<kLayout>) {
        low = {};
    }
    for (const Lanes& column : block.columns) {
#pragma omp simd
        for (int64_t row = 0; row < kPanelRows; ++row) {
            const float value = column.at[row];
            low.at[row] = value < low.at[row] ? value : low.at[row];
            high.at[row] = value > high.at[row] ? value : high.at[row];
        }
    }
}

// The line over the range, shortened by the share `low_cut` at its low end and `high_cut` at its
// high end.
template <Layout kLayout>
Line line_over(const Lanes& low, const Lanes& high, float low_cut, float high_cut) {
    Line line;
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        const float span = high.at[row] - low.at[row];
        const float minimum = low.at[row] + span * low_cut;
        line.minimum.at[row] = kInSuperBlocks<kLayout> && minimum > 0.0f ? 0.0f : minimum;
        line.scale.at[row] = (span - span * low_cut - span * high_cut) / kLargestCode<kLayout>;
    }
    return line;
}

// Replaces the lines of the rows in which another one errs less.
void keep_better(const Line& line, const Lanes& error, Line& best, Lanes& least) {
#pragma omp simd
    for (int64_t row = 0; row < kPanelRows; ++row) {
        const bool better = error.at[row] < least.at[row];
        least.at[row] = better ? error.at[row] : least.at[row];
        best.scale.at[row] = better ? line.scale.at[row] : best.scale.at[row];
        best.minimum.at[row] = better ? line.minimum.at[row] : best.minimum.at[row];
    }
}

// The line over the whole range covers every weight, but most weights lie in its middle. There,
// smaller steps reduce the error by more than clipping the weights at the ends adds. The best range
// differs from block to block, so this tries several, each with its line fitted to its codes.
template <Layout kLayout>
Line best_line(const Block& block) {
    Lanes low;
    Lanes high;
    find_range<kLayout>(block, low, high);
    Line best = line_over<kLayout>(low, high, 0.0f, 0.0f);
    round_to_stored<kLayout>(best);
    Lanes least = squared_error<kLayout>(block, best);
    for (int at_low = 0; at_low < kCuts<kLayout>; ++at_low) {
        for (int at_high = 0; at_high < kCuts<kLayout>; ++at_high) {
            const Line cut = line_over<kLayout>(low, high, kCut[at_low], kCut[at_high]);
            Line line = fitted<kLayout>(block, cut);
            round_to_stored<kLayout>(line);
            keep_better(line, squared_error<kLayout>(block, line), best, least);
        }
    }
    return best;
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
