// The arguments and results of the sampler's loops. loops.cpp has the loops, compiled once per
// instruction set with the same results in all of them.
#pragma once

#include <cstdint>

namespace soliton {

// The sampler reads the vocabulary in blocks of kSampleBlock logits, and adds up tiles of blocks.
inline constexpr int kSampleBlock = 128;
inline constexpr int kSampleTile = 16 * kSampleBlock;

// The groups of a block: logits whose places in it are equal modulo kSampleGroups.
inline constexpr int kSampleGroups = 16;

// A mask has a bit for every token, in words of kMaskBits bits, lowest bit first.
inline constexpr int kMaskBits = 32;

// A softmax without its normalisation: the mass of a logit is exp(d * (linear + quadratic * d)),
// where d = logit - largest; so the most likely token has mass 1. linear >= 0, quadratic <= 0, not
// both 0.
struct Softmax {
    float largest;
    double linear;
    double quadratic;
};

// Count, sum and sum of squares of some finite values.
struct Moments {
    double count;
    double sum;
    double squares;
};

// A token with an exponent at or below this is not a candidate; exp(-700) is still a normal double.
// engine/sampling/reference/pipeline.py has the same number.
inline constexpr double kLowestExponent = -700.0;

// The masses of a tile of logits, 2^(scale * logit - reference).
struct TileSums {
    double mass;       // their sum
    double moment;     // the sum of their products with the logits; NaN if a logit is NaN
    double reference;  // an integer
    float largest;
};

// Logits roughly sorted by distance from the largest: bucket = (largest - logit) * scale, clamped
// to the last bucket. Every logit of a bucket is larger than every logit of the next one.
inline constexpr int kBuckets = 1024;
struct Histogram {
    double mass[kBuckets];
    int32_t count[kBuckets];
};

}  // namespace soliton
