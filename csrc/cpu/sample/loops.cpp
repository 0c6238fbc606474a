// The sampler's loops over a whole vocabulary. Compiled once per instruction set (see
// ../kernels.h); sample.cpp uses them.
#include "../isa/lanes.h"
#include "../kernels.h"

namespace soliton::SOLITON_ISA {
namespace {

constexpr float kInfinity = __builtin_inff();

constexpr double kLog2E = 0x1.71547652b82fep0;

// Masses with a relative error of at most 8e-11; one below 1e-300 becomes about that. Without
// branches or calls, so that the loops around it become vector code.
struct Mass {
    double largest;
    double linear;
    double quadratic;

    explicit Mass(Softmax softmax)
        : largest(softmax.largest), linear(softmax.linear), quadratic(softmax.quadratic) {}

    // In nats. The distance is bounded, because 0 times infinity is NaN.
    [[gnu::always_inline]] double exponent_of(float logit) const {
        double distance = static_cast<double>(logit) - largest;
        distance = distance > -1e100 ? distance : -1e100;
        return distance * (linear + quadratic * distance);
    }

    [[gnu::always_inline]] double of(float logit) const {
        double digits = exponent_of(logit) * kLog2E;
        digits = digits > -1000.0 ? digits : -1000.0;
        // 2^digits = 2^n 2^f with |f| <= 1/2. Adding 1.5 * 2^52 rounds to an integer and leaves it
        // in the low bits; adding 1023 makes it the exponent field of 2^n.
        constexpr double kShift = 0x1.8p52 + 1023.0;
        const double shifted = digits + kShift;
        const double f = digits - (shifted - kShift);
        const double power =
            __builtin_bit_cast(double, __builtin_bit_cast(uint64_t, shifted) << 52);
        // A polynomial, minimax in the relative error, except that it is exactly 1 at 0, so that no
        // probability exceeds 1. Summed in two halves, so that fewer operations wait for each
        // other.
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

static_assert(kLanes == kSampleGroups);

SOLITON_INLINE Floats lane_maxima(const float* block) {
    constexpr int kAtOnce = 4;
    Floats best[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i) {
        best[i] = load(block + i * kLanes);
    }
    for (int i = kAtOnce; i < kSampleBlock / kLanes; ++i) {
        best[i % kAtOnce] = larger(best[i % kAtOnce], load(block + i * kLanes));
    }
    return larger(larger(best[0], best[1]), larger(best[2], best[3]));
}

SOLITON_INLINE float block_maximum(const float* block) {
    return largest_lane(lane_maxima(block));
}

// 2^(scale * logit - reference) with a relative error of at most 1.7e-7; values below 2^-125 become
// about that.
class TileMass {
  public:
    SOLITON_INLINE TileMass(float scale, float shift, float lowest)
        : scale_(broadcast(scale)), shift_(broadcast(shift)), lowest_(broadcast(lowest)) {}

    SOLITON_INLINE void add_block(const float* block, Floats& mass_out, Floats& moment_out) const {
        Floats mass = broadcast(0.0f);
        Floats moment = broadcast(0.0f);
#pragma GCC unroll 1
        for (int i = 0; i < kSampleBlock; i += kLanes) {
            const Floats logit = larger(lowest_, load(block + i));
            // scale * logit = n + f with |f| <= 1/2; the product minus n is rounded once.
            const Floats shifted = multiply_add(logit, scale_, shift_);
            const Floats f = multiply_add(logit, scale_, subtract(shift_, shifted));
            Floats p = broadcast(0x1.5bb9b6p-10f);  // minimax for the relative error, 1 at 0
            p = multiply_add(p, f, broadcast(0x1.3ceae2p-7f));
            p = multiply_add(p, f, broadcast(0x1.c6b756p-5f));
            p = multiply_add(p, f, broadcast(0x1.ebf9bap-3f));
            p = multiply_add(p, f, broadcast(0x1.62e42ap-1f));
            p = multiply_add(p, f, broadcast(1.0f));
            p = times_power_of_two(p, shifted);
            mass = add(mass, p);
            moment = multiply_add(p, logit, moment);
        }
        mass_out = mass;
        moment_out = moment;
    }

  private:
    Floats scale_;
    Floats shift_;  // minus the reference
    Floats lowest_;
};

// The order of the operands puts NaN (0 * inf) into the last bucket.
[[gnu::always_inline]] inline int32_t bucket_of(float logit, float largest, float scale) {
    const float distance = (largest - logit) * scale;
    return static_cast<int32_t>(distance < kBuckets - 1 ? distance : kBuckets - 1);
}

[[gnu::always_inline]] inline int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

}  // namespace

// Two passes over a tile; in the second it is in the first-level cache.
void sum_tile(const float* logits, int64_t n, float scale, float* maxima, TileSums& sums) {
    float padded[kSampleBlock];
    const auto block_at = [&](int64_t begin) {
        const int64_t size = smaller(n - begin, kSampleBlock);
        if (size == kSampleBlock) {
            return logits + begin;
        }
        for (int64_t j = 0; j < kSampleBlock; ++j) {
            padded[j] = j < size ? logits[begin + j] : -kInfinity;
        }
        return static_cast<const float*>(padded);
    };
    float largest = -kInfinity;
    for (int64_t begin = 0; begin < n; begin += kSampleBlock) {
        const float maximum = block_maximum(block_at(begin));
        maxima[begin / kSampleBlock] = maximum;
        largest = largest < maximum ? maximum : largest;
    }
    sums.largest = largest;
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
    constexpr float kShift = 0x1.8p23f;
    const float shifted = largest * scale + kShift;
    const float reference = largest > -kInfinity ? shifted - kShift : 0.0f;
    sums.reference = reference;
    const TileMass mass(scale, kShift - reference,
                        static_cast<float>((static_cast<double>(reference) - 125.0) / scale));
    // Sums are floats within a block and doubles beyond.
    Floats masses[kSampleTile / kSampleBlock];
    Floats moments[kSampleTile / kSampleBlock];
    int n_blocks = 0;
    for (int64_t begin = 0; begin < n; begin += kSampleBlock) {
        mass.add_block(block_at(begin), masses[n_blocks], moments[n_blocks]);
        ++n_blocks;
    }
    Doubles mass_sum = {};
    Doubles moment_sum = {};
    for (int i = 0; i < n_blocks; ++i) {
        mass_sum = add(mass_sum, masses[i]);
        moment_sum = add(moment_sum, moments[i]);
    }
    sums.mass = sum(mass_sum);
    sums.moment = sum(moment_sum);
}

void group_maxima(const float* logits, int64_t n, float* maxima) {
    for (int64_t begin = 0; begin < n; begin += kSampleBlock) {
        const Floats block =
            n - begin >= kSampleBlock ? lane_maxima(logits + begin) : broadcast(-kInfinity);
        store(maxima, block);
        maxima += kLanes;
    }
}

int64_t first_largest(const float* logits, int64_t n) {
    const int64_t whole = n / kSampleBlock * kSampleBlock;
    float best = -kInfinity;
    int64_t begin = 0;
    for (int64_t i = 0; i < whole; i += kSampleBlock) {
        const float largest = block_maximum(logits + i);
        if (largest > best) {
            best = largest;
            begin = i;
        }
    }
    int64_t found = begin;
    while (found < whole && logits[found] != best) {
        ++found;
    }
    for (int64_t i = whole; i < n; ++i) {
        if (logits[i] > best) {
            best = logits[i];
            found = i;
        }
    }
    return found < n ? found : 0;
}

int64_t count_before(const float* logits, int64_t n, const float* maxima, float logit, int64_t id) {
    int64_t count = 0;
    for (int64_t begin = 0; begin < n; begin += kSampleBlock) {
        if (maxima[begin / kSampleBlock] < logit) {
            continue;
        }
        const int64_t end = smaller(begin + kSampleBlock, n);
        int32_t larger = 0;
        int32_t equal = 0;
#pragma omp simd reduction(+ : larger, equal)
        for (int64_t i = begin; i < end; ++i) {
            larger += logits[i] > logit ? 1 : 0;
            equal += logits[i] == logit && i < id ? 1 : 0;
        }
        count += larger + equal;
    }
    return count;
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

Moments moments(const float* logits, int64_t n, Softmax softmax) {
    const Mass mass(softmax);
    double count = 0.0;
    double total = 0.0;
    double squares = 0.0;
#pragma omp simd reduction(+ : count, total, squares)
    for (int64_t i = 0; i < n; ++i) {
        const double one = logits[i] > -kInfinity ? 1.0 : 0.0;
        const double exponent = logits[i] > -kInfinity ? mass.exponent_of(logits[i]) : 0.0;
        count += one;
        total += exponent;
        squares += exponent * exponent;
    }
    return {count, total, squares};
}

void apply_mask(const int32_t* words, int64_t n, float* logits) {
    constexpr int kBits = kMaskBits;
    for (int64_t begin = 0; begin < n; begin += kBits) {
        const uint32_t word = static_cast<uint32_t>(words[begin / kBits]);
        if (begin + kBits <= n) {
#pragma omp simd
            for (int j = 0; j < kBits; ++j) {
                logits[begin + j] = (word >> j & 1) != 0 ? logits[begin + j] : -kInfinity;
            }
        } else {
            for (int64_t j = 0; begin + j < n; ++j) {
                logits[begin + j] = (word >> j & 1) != 0 ? logits[begin + j] : -kInfinity;
            }
        }
    }
}

int64_t collect(const float* logits, int64_t n, const float* maxima, float bound, int32_t* ids) {
    int64_t count = 0;
    for (int64_t begin = 0; begin < n; begin += kSampleBlock) {
        if (maxima[begin / kSampleBlock] < bound) {
            continue;
        }
        const int64_t end = smaller(begin + kSampleBlock, n);
        int64_t i = begin;
        for (; i + kLanes <= end; i += kLanes) {
            uint32_t bits = at_least_bits(load(logits + i), broadcast(bound));
            for (; bits != 0; bits &= bits - 1) {
                ids[count++] = static_cast<int32_t>(i) + __builtin_ctz(bits);
            }
        }
        for (; i < end; ++i) {
            if (logits[i] >= bound) {
                ids[count++] = static_cast<int32_t>(i);
            }
        }
    }
    return count;
}

void fill_histogram(const float* logits, int64_t n, Softmax softmax, float scale,
                    Histogram& histogram) {
    // Neighbours often fall into the same bucket. Two alternating histograms keep their additions
    // from waiting for each other.
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
