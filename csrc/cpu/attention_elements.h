// The elements that attention multiplies: how many a lane of the caches holds, and the codes that
// are multiplied with int8 keys and values.
#pragma once

#include "isa/lanes.h"
#include "kernels.h"

namespace soliton::SOLITON_ISA {
namespace {

static_assert(kLanes == kKvLanes);

constexpr float kInfinity = __builtin_inff();
constexpr float kLog2E = 0x1.715476p0f;   // exp(x) = 2^(x log2(e))
constexpr float kLargestCode = 32767.0f;  // of queries and probabilities
// Below this, kLargestCode / largest could overflow; values this small do not affect any other sum.
constexpr float kSmallest = 0x1p-100f;

template <KvType kKv>
constexpr int64_t kPerLane = per_lane(kKv);

template <KvType kKv>
constexpr bool kHasCodes = kKv == KvType::kInt8 || kKv == KvType::kInt4;

// What the codes of 4 bits stand for, times a scale: the levels that lose least of 32 normally
// distributed numbers whose largest becomes 127.
struct alignas(16) Levels {
    int8_t at[16];
};
constexpr Levels kLevels = {
    {-123, -99, -79, -62, -47, -33, -19, -6, 6, 19, 33, 47, 62, 79, 99, 123}};
constexpr float kLevelRange = 127.0f;

void fill(float* values, int64_t begin, int64_t end, float value) {
    for (int64_t i = begin; i < end; ++i) {
        values[i] = value;
    }
}

// Writes values (padded n,) as codes and returns their scale, which is NaN if a value is NaN or
// infinite.
float to_codes(const float* values, int64_t n, int16_t* codes) {
    Ints bits = broadcast(0);
    for (int64_t i = 0; i < n; i += kLanes) {
        bits = larger(bits, magnitude_bits(load(values + i)));
    }
    const float magnitude = __builtin_bit_cast(float, largest(bits));
    const bool usable = magnitude >= kSmallest && magnitude < kInfinity;
    const Floats inverse = broadcast(usable ? kLargestCode / magnitude : 0.0f);
    for (int64_t i = 0; i < n; i += kLanes) {
        store_words(codes + i, round(multiply(load(values + i), inverse)));
    }
    if (usable) {
        return magnitude / kLargestCode;
    }
    return magnitude < kSmallest ? 0.0f : magnitude - magnitude;
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
