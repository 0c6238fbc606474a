// What the sampler's launches pass to each other, and how they represent a token: its place in the
// descending order, its bucket, its mass.
//
// There are one or two rows: the one that the draw uses and, if that was adjusted, the raw one.
#pragma once

#include <cfloat>
#include <cmath>

#include "common.cuh"
#include "sample.h"

namespace soliton::cuda {

// The 64-bit type of atomicAdd.
using Word = unsigned long long;

inline constexpr int kSampleThreads = 512;

// A block reads kChunk logits.
inline constexpr int kTokensPerThread = 4;
inline constexpr int kChunk = kSampleThreads * kTokensPerThread;

inline constexpr int kDrawnRow = 0;
inline constexpr int kRawRow = 1;  // if it differs
inline constexpr int kMostRows = 2;

// The columns of the sums over a set of tokens: how many, and their masses in the softmax without
// and with temperature, in units of 2^-kMassBits of the most likely token's mass.
inline constexpr int kCount = 0;
inline constexpr int kPlain = 1;
inline constexpr int kTempered = 2;
inline constexpr int kColumns = 3;

struct Sums {
    Word of[kColumns];

    // For a column that is unknown at compile time; keeps all sums in registers.
    __device__ Word at(int column) const {
        return column == kCount ? of[kCount] : column == kPlain ? of[kPlain] : of[kTempered];
    }
};

// Tokens roughly sorted by distance from the largest logit. Nearly every token that is ever drawn
// lies within kSpread nats; those farther away share the last bucket.
inline constexpr int kBuckets = 1024;
inline constexpr float kSpread = 32.0f;

inline constexpr double kLog2E = 1.4426950408889634;

// The bounds of a chunk's logits.
struct Bounds {
    float largest;
    float smallest;  // of the finite logits
    int32_t is_bad;  // one is NaN or +inf
};

struct Row {
    float largest;
    float scale;     // buckets per logit
    int32_t is_bad;  // nothing can be drawn from the row
};

struct Histogram {
    Word sums[kColumns][kBuckets];
    uint32_t taken[kBuckets];  // places of the bucket's members that are taken
};

// Starts as zeros.
struct Totals {
    Histogram histograms[kMostRows];
    uint32_t n_candidates;  // of the row that the draw uses
    uint32_t n_done;        // blocks
};

struct SampleWork {
    float* adjusted;  // (V,)
    Bounds* bounds;   // (kMostRows, n_chunks)
    double* moments;  // (n_chunks,): sums of mass * (logit - largest) of the raw row
    Row* rows;        // (kMostRows,)
    Totals* totals;
    Word* members;  // (kMostRows, V): keys by bucket
};

struct Sampling {
    SampleArgs args;
    SampleWork work;
    int32_t n_chunks;
    int32_t n_rows;
    bool is_tempered;

    __device__ int raw_row() const { return n_rows - 1; }
    __device__ const float* logits_of(int row) const {
        return n_rows > 1 && row == kDrawnRow ? work.adjusted : args.logits;
    }
};

// The launches. Each runs n_chunks blocks; the last two run them for each row.
cudaError_t read_rows(const Sampling& sampling, LaunchAt at);
cudaError_t count_rows(const Sampling& sampling, LaunchAt at);
cudaError_t choose(const Sampling& sampling, LaunchAt at);

// A number for each token that ascends as the logit descends, and with the id among equal logits.
__device__ inline Word key_of(float logit, uint32_t id) {
    const uint32_t bits = __float_as_uint(logit + 0.0f);  // -0 becomes +0
    const uint32_t descending = bits & 0x80000000u ? bits : ~bits & 0x7fffffffu;
    return Word{descending} << 32 | id;
}

__device__ inline float logit_of(Word key) {
    const auto descending = static_cast<uint32_t>(key >> 32);
    return __uint_as_float(descending & 0x80000000u ? descending : ~descending & 0x7fffffffu);
}

// A larger logit is never in a later bucket.
__device__ inline int bucket_of(const Row& row, float logit) {
    const float bucket = (row.largest - logit) * row.scale;
    return static_cast<int>(fminf(fmaxf(bucket, 0.0f), static_cast<float>(kBuckets - 1)));
}

__device__ inline double distance_of(const Row& row, float logit) {
    return static_cast<double>(logit) - static_cast<double>(row.largest);
}

// exp(exponent), rounded; 0 at and below 2^-(kMassBits + 2).
__device__ inline Word mass_of(double exponent) {
    constexpr int kDigits = 30;  // of the fraction, after an integral power of 2
    const double binary = exponent * kLog2E;
    if (!(binary > -(kMassBits + 2))) {
        return 0;
    }
    const double power = rint(binary);
    const float rest = exp2f(static_cast<float>(binary - power));
    const auto digits = static_cast<Word>(rest * static_cast<float>(1 << kDigits));
    const int shift = static_cast<int>(power) + kMassBits - kDigits;
    return shift >= 0 ? digits << shift : (digits + (Word{1} << (-shift - 1))) >> -shift;
}

__device__ inline double as_real(Word mass) {
    return static_cast<double>(mass) / static_cast<double>(Word{1} << kMassBits);
}

}  // namespace soliton::cuda
