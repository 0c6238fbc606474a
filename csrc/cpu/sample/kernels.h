// What the sampler's loops take and give; sample_loops.cpp has them, compiled once per instruction
// set with the same results in all of them.
#pragma once

#include <cstdint>

namespace soliton {

// The sampler looks at the vocabulary in blocks of so many logits, and adds up tiles of blocks.
inline constexpr int kSampleBlock = 128;
inline constexpr int kSampleTile = 16 * kSampleBlock;

// Groups of a block: the logits whose places in it are equal modulo this.
inline constexpr int kSampleGroups = 16;

// A mask has a bit for every token, in words of so many: the lowest bit first.
inline constexpr int kMaskBits = 32;

// A softmax without its normalisation: the mass of a logit is exp(d * (linear + quadratic * d)),
// where d = logit - largest; 1 for the most likely token. linear >= 0, quadratic <= 0, not both 0.
struct Softmax {
    float largest;
    double linear;
    double quadratic;
};

// Of n finite values: their count, sum and sum of squares.
struct Moments {
    double count;
    double sum;
    double squares;
};

// A token is no candidate from here down; exp(-700) is still a normal double.
// engine/sampling/reference/pipeline.py has the same number.
inline constexpr double kLowestExponent = -700.0;

// The masses of a tile of logits, 2^(scale * logit - reference).
struct TileSums {
    double mass;       // their sum
    double moment;     // the sum of their products with the logits; NaN of a NaN
    double reference;  // an integer
    float largest;
};

// Logits sorted roughly, by distance from the largest logit: bucket = (largest - logit) *
// scale, at most the last. Every logit of a bucket is larger than every logit of the next one.
inline constexpr int kBuckets = 1024;
struct Histogram {
    double mass[kBuckets];
    int32_t count[kBuckets];
};

}  // namespace soliton
