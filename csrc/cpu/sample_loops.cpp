// The sampler's loops over a whole vocabulary. Compiled once per instruction set (see kernels.h);
// sample.cpp says what they are for.
#include "kernels.h"

namespace soliton::SOLITON_ISA {
namespace {

constexpr float kInfinity = __builtin_inff();

// exp((logit - largest) / temperature), to 8e-11 of its value; what is below 1e-300 becomes about
// that. Written without branches or calls, so that the loops around it become vector code.
struct Mass {
    double largest;
    double scale;   // makes nats binary digits
    double lowest;  // distance

    explicit Mass(Softmax softmax)
        : largest(softmax.largest),
          scale(softmax.inverse_temperature * 0x1.71547652b82fep0),
          lowest(-1000.0 / scale) {}

    [[gnu::always_inline]] double of(float logit) const {
        double distance = static_cast<double>(logit) - largest;
        distance = distance > lowest ? distance : lowest;
        // 2^(distance * scale) = 2^n 2^f with |f| <= 1/2. Adding 1.5 * 2^52 rounds to an integer,
        // which is left in the low bits; 1023 makes it the exponent field of 2^n.
        constexpr double kShift = 0x1.8p52 + 1023.0;
        const double shifted = distance * scale + kShift;
        const double f = distance * scale - (shifted - kShift);
        const double power =
            __builtin_bit_cast(double, __builtin_bit_cast(uint64_t, shifted) << 52);
        // A polynomial, minimax in the relative error but for its 1 at 0: no probability shall
        // exceed 1. Summed in two halves, so that fewer operations wait for each other.
        const double f2 = f * f;
        double even = 0x1.446a1fdd8a57ap-13;
        double odd = 0x1.fe1786b561980p-17;
        even = even * f2 + 0x1.3b29dc4106ca9p-7;
        odd = odd * f2 + 0x1.5d8a708607622p-10;
        even = even * f2 + 0x1.ebfbe0a50f805p-3;
        odd = odd * f2 + 0x1.c6b08aaf7c2b9p-5;
        even = even * f2 + 1.0;
        odd = odd * f2 + 0x1.62e42ff1508fbp-1;
        return (odd * f + even) * power;
    }
};

// The order of the operands makes a NaN (0 * inf) the last bucket.
[[gnu::always_inline]] inline int32_t bucket_of(float logit, float largest, float scale) {
    const float distance = (largest - logit) * scale;
    return static_cast<int32_t>(distance < kBuckets - 1 ? distance : kBuckets - 1);
}

[[gnu::always_inline]] inline int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

}  // namespace

bool block_maxima(const float* logits, int64_t n, float* maxima) {
    int32_t bad = 0;
    for (int64_t begin = 0; begin < n; begin += kSampleBlock) {
        const int64_t size = smaller(n - begin, kSampleBlock);
        // A short block is filled up, so that the loop below has a constant size.
        float padded[kSampleBlock];
        const float* block = logits + begin;
        if (size < kSampleBlock) {
            for (int j = 0; j < kSampleBlock; ++j) {
                padded[j] = j < size ? block[j] : -kInfinity;
            }
            block = padded;
        }
        float largest = -kInfinity;
#pragma omp simd reduction(max : largest) reduction(| : bad)
        for (int j = 0; j < kSampleBlock; ++j) {
            largest = largest < block[j] ? block[j] : largest;
            bad |= block[j] < kInfinity ? 0 : 1;  // a NaN compares false
        }
        maxima[begin / kSampleBlock] = largest;
    }
    return bad == 0;
}

double total_mass(const float* logits, int64_t n, Softmax softmax) {
    const Mass mass(softmax);
    double total = 0.0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < n; ++i) {
        total += mass.of(logits[i]);
    }
    return total;
}

int64_t collect(const float* logits, int64_t n, const float* maxima, float bound, int32_t* ids) {
    int64_t count = 0;
    for (int64_t begin = 0; begin < n; begin += kSampleBlock) {
        if (maxima[begin / kSampleBlock] < bound) {
            continue;
        }
        const int64_t end = smaller(begin + kSampleBlock, n);
        for (int64_t i = begin; i < end; ++i) {
            ids[count] = static_cast<int32_t>(i);
            count += logits[i] >= bound ? 1 : 0;
        }
    }
    return count;
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
    const Mass mass(softmax);
    for (int64_t begin = 0; begin < n; begin += kSampleBlock) {
        const int64_t size = smaller(n - begin, kSampleBlock);
        double masses[kSampleBlock];
        int32_t bucket[kSampleBlock];
#pragma omp simd
        for (int64_t j = 0; j < size; ++j) {
            masses[j] = mass.of(logits[begin + j]);
            bucket[j] = bucket_of(logits[begin + j], softmax.largest, scale);
        }
        for (int64_t j = 0; j < size; ++j) {
            mass_sums[j & 1][bucket[j]] += masses[j];
            counts[j & 1][bucket[j]] += 1;
        }
    }
    for (int b = 0; b < kBuckets; ++b) {
        histogram.mass[b] = mass_sums[0][b] + mass_sums[1][b];
        histogram.count[b] = counts[0][b] + counts[1][b];
    }
}

int64_t collect_bucket(const float* logits, int64_t n, Softmax softmax, float scale, int bucket,
                       int32_t* places) {
    constexpr int64_t kStride = 64;
    int64_t count = 0;
    for (int64_t begin = 0; begin < n; begin += kStride) {
        const int64_t end = smaller(begin + kStride, n);
        int32_t any = 0;
#pragma omp simd reduction(| : any)
        for (int64_t i = begin; i < end; ++i) {
            any |= bucket_of(logits[i], softmax.largest, scale) == bucket ? 1 : 0;
        }
        for (int64_t i = begin; any && i < end; ++i) {
            if (bucket_of(logits[i], softmax.largest, scale) == bucket) {
                places[count++] = static_cast<int32_t>(i);
            }
        }
    }
    return count;
}

}  // namespace soliton::SOLITON_ISA
