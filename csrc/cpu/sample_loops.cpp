// The sampler's loops over a whole vocabulary. Compiled once per instruction set (see kernels.h);
// sample.cpp says what they are for.
#include "kernels.h"

namespace soliton::SOLITON_ISA {
namespace {

// exp(x) for kLowestExponent < x <= 0, to about 1e-15 of its value; 0 for x below. Written without
// branches or calls, so that the loops around it become vector code.
[[gnu::always_inline]] inline double exp_or_zero(double x) {
    const double clamped = x > kLowestExponent ? x : kLowestExponent;
    // x = n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^52 rounds to an integer, which is left in
    // the low bits.
    constexpr double kShift = 0x1.8p52;
    const double shifted = clamped * 0x1.71547652b82fep0 + kShift;
    const double n = shifted - kShift;
    const double r = (clamped - n * 0x1.62e42fefa3800p-1) - n * 0x1.ef35793c76730p-45;
    double p = 1.0 / 479001600.0;  // the series of exp up to r^12 / 12!
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    // Times 2^n: n goes into the exponent field; what is above it in `shifted` falls out at the
    // top.
    const uint64_t bits =
        __builtin_bit_cast(uint64_t, p) + (__builtin_bit_cast(uint64_t, shifted) << 52);
    return x > kLowestExponent ? __builtin_bit_cast(double, bits) : 0.0;
}

[[gnu::always_inline]] inline double mass_of(float logit, Softmax softmax) {
    return exp_or_zero((static_cast<double>(logit) - softmax.largest) *
                       softmax.inverse_temperature);
}

// The order of the operands makes a NaN (0 * inf) the last bucket.
[[gnu::always_inline]] inline int32_t bucket_of(float logit, float largest, float scale) {
    const float distance = (largest - logit) * scale;
    return static_cast<int32_t>(distance < kBuckets - 1 ? distance : kBuckets - 1);
}

constexpr int kBlock = 256;

}  // namespace

LogitRange logit_range(const float* logits, int64_t n) {
    // Explicit lanes, because not every compiler makes a vector reduction of a largest float.
    constexpr int kLanes = 32;
    constexpr float kInfinity = __builtin_inff();
    float largest[kLanes];
    float smallest[kLanes];
    int32_t bad[kLanes];
    for (int j = 0; j < kLanes; ++j) {
        largest[j] = -kInfinity;
        smallest[j] = kInfinity;
        bad[j] = 0;
    }
    for (int64_t begin = 0; begin < n; begin += kLanes) {
        const int size = n - begin < kLanes ? static_cast<int>(n - begin) : kLanes;
#pragma omp simd
        for (int j = 0; j < size; ++j) {
            const float logit = logits[begin + j];
            const float finite = logit > -kInfinity ? logit : kInfinity;
            largest[j] = largest[j] < logit ? logit : largest[j];
            smallest[j] = finite < smallest[j] ? finite : smallest[j];
            bad[j] |= logit < kInfinity ? 0 : 1;  // a NaN compares false
        }
    }
    LogitRange range = {largest[0], smallest[0], bad[0] != 0};
    for (int j = 1; j < kLanes; ++j) {
        range.largest = range.largest < largest[j] ? largest[j] : range.largest;
        range.smallest = smallest[j] < range.smallest ? smallest[j] : range.smallest;
        range.bad = range.bad || bad[j] != 0;
    }
    return range;
}

int64_t next_above(const float* logits, int64_t begin, int64_t n, float bound) {
    constexpr int64_t kStride = 64;
    int64_t i = begin;
    for (; i + kStride <= n; i += kStride) {
        int32_t any = 0;
#pragma omp simd reduction(| : any)
        for (int64_t j = 0; j < kStride; ++j) {
            any |= logits[i + j] > bound ? 1 : 0;
        }
        if (any) {
            break;
        }
    }
    while (i < n && !(logits[i] > bound)) {
        ++i;
    }
    return i;
}

double total_mass(const float* logits, int64_t n, Softmax softmax) {
    double total = 0.0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < n; ++i) {
        total += mass_of(logits[i], softmax);
    }
    return total;
}

MassAbove mass_above(const float* logits, int64_t n, Softmax softmax, double bound) {
    constexpr float kInfinity = __builtin_inff();
    double total = 0.0;
    int64_t count = 0;
    float smallest = kInfinity;
    for (int64_t begin = 0; begin < n; begin += kBlock) {
        const int64_t size = n - begin < kBlock ? n - begin : kBlock;
        double mass[kBlock];
#pragma omp simd
        for (int64_t j = 0; j < size; ++j) {
            mass[j] = mass_of(logits[begin + j], softmax);
        }
        for (int64_t j = 0; j < size; ++j) {
            if (mass[j] >= bound) {
                total += mass[j];
                ++count;
                smallest = logits[begin + j] < smallest ? logits[begin + j] : smallest;
            }
        }
    }
    return {total, count, smallest};
}

void fill_histogram(const float* logits, int64_t n, Softmax softmax, float scale,
                    Histogram& histogram) {
    // Neighbours often fall into the same bucket; two histograms in turn keep their additions from
    // waiting for each other.
    double mass_sums[2][kBuckets];
    int32_t counts[2][kBuckets];
    for (int b = 0; b < kBuckets; ++b) {
        mass_sums[0][b] = mass_sums[1][b] = 0.0;
        counts[0][b] = counts[1][b] = 0;
    }
    for (int64_t begin = 0; begin < n; begin += kBlock) {
        const int64_t size = n - begin < kBlock ? n - begin : kBlock;
        double mass[kBlock];
        int32_t bucket[kBlock];
#pragma omp simd
        for (int64_t j = 0; j < size; ++j) {
            mass[j] = mass_of(logits[begin + j], softmax);
            bucket[j] = bucket_of(logits[begin + j], softmax.largest, scale);
        }
        for (int64_t j = 0; j < size; ++j) {
            mass_sums[j & 1][bucket[j]] += mass[j];
            counts[j & 1][bucket[j]] += mass[j] > 0.0 ? 1 : 0;
        }
    }
    for (int b = 0; b < kBuckets; ++b) {
        histogram.mass[b] = mass_sums[0][b] + mass_sums[1][b];
        histogram.count[b] = counts[0][b] + counts[1][b];
    }
}

int64_t collect_bucket(const float* logits, int64_t n, Softmax softmax, float scale, int bucket,
                       int32_t* ids) {
    constexpr int64_t kStride = 64;
    int64_t count = 0;
    for (int64_t begin = 0; begin < n; begin += kStride) {
        const int64_t end = n - begin < kStride ? n : begin + kStride;
        int32_t any = 0;
#pragma omp simd reduction(| : any)
        for (int64_t i = begin; i < end; ++i) {
            any |= bucket_of(logits[i], softmax.largest, scale) == bucket ? 1 : 0;
        }
        for (int64_t i = begin; any && i < end; ++i) {
            if (bucket_of(logits[i], softmax.largest, scale) == bucket &&
                mass_of(logits[i], softmax) > 0.0) {
                ids[count++] = static_cast<int32_t>(i);
            }
        }
    }
    return count;
}

}  // namespace soliton::SOLITON_ISA
