// The vectors of lanes.h: arrays, which the compiler vectorises.
#pragma once

#include "lanes.h"

namespace soliton::SOLITON_ISA {
namespace {

struct Floats {
    float at[kLanes];
};
struct Ints {
    int32_t at[kLanes];
};

// Calls `function` with each lane's number and collects what it returns.
template <typename Result, typename Function>
SOLITON_INLINE Result each_lane(Function function) {
    Result result;
    for (int i = 0; i < kLanes; ++i) {
        result.at[i] = function(i);
    }
    return result;
}

SOLITON_INLINE Floats load(const float* at) {
    return each_lane<Floats>([=](int i) { return at[i]; });
}
SOLITON_INLINE void store(float* at, Floats a) {
    for (int i = 0; i < kLanes; ++i) {
        at[i] = a.at[i];
    }
}
SOLITON_INLINE Floats broadcast(float a) {
    return each_lane<Floats>([=](int) { return a; });
}
SOLITON_INLINE Ints broadcast(int32_t a) {
    return each_lane<Ints>([=](int) { return a; });
}
SOLITON_INLINE Floats add(const Floats& a, const Floats& b) {
    return each_lane<Floats>([&](int i) { return a.at[i] + b.at[i]; });
}
SOLITON_INLINE Floats subtract(const Floats& a, const Floats& b) {
    return each_lane<Floats>([&](int i) { return a.at[i] - b.at[i]; });
}
SOLITON_INLINE Floats times_power_of_two(const Floats& a, const Floats& shifted) {
    return each_lane<Floats>([&](int i) {
        const uint32_t power = __builtin_bit_cast(uint32_t, shifted.at[i]) << 23;
        return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, a.at[i]) + power);
    });
}
SOLITON_INLINE Floats multiply(const Floats& a, const Floats& b) {
    return each_lane<Floats>([&](int i) { return a.at[i] * b.at[i]; });
}
SOLITON_INLINE Floats divide(const Floats& a, const Floats& b) {
    return each_lane<Floats>([&](int i) { return a.at[i] / b.at[i]; });
}
SOLITON_INLINE Floats multiply_add(const Floats& a, const Floats& b, const Floats& c) {
    return each_lane<Floats>([&](int i) { return __builtin_fmaf(a.at[i], b.at[i], c.at[i]); });
}
SOLITON_INLINE Floats smaller(const Floats& a, const Floats& b) {
    return each_lane<Floats>([&](int i) { return a.at[i] < b.at[i] ? a.at[i] : b.at[i]; });
}
SOLITON_INLINE Floats larger(const Floats& a, const Floats& b) {
    return each_lane<Floats>([&](int i) { return a.at[i] > b.at[i] ? a.at[i] : b.at[i]; });
}
SOLITON_INLINE Ints larger(const Ints& a, const Ints& b) {
    return each_lane<Ints>([&](int i) { return a.at[i] > b.at[i] ? a.at[i] : b.at[i]; });
}
SOLITON_INLINE Ints add(const Ints& a, const Ints& b) {
    return each_lane<Ints>([&](int i) { return a.at[i] + b.at[i]; });
}
SOLITON_INLINE Floats to_floats(const Ints& a) {
    return each_lane<Floats>([&](int i) { return static_cast<float>(a.at[i]); });
}
SOLITON_INLINE Ints round(const Floats& a) {
    // Adding 1.5 * 2^23 rounds to nearest, ties to even, and leaves the integer in the low bits.
    return each_lane<Ints>(
        [&](int i) { return __builtin_bit_cast(int32_t, a.at[i] + 0x1.8p23f) - 0x4b400000; });
}
SOLITON_INLINE Ints magnitude_bits(const Floats& a) {
    return each_lane<Ints>(
        [&](int i) { return __builtin_bit_cast(int32_t, a.at[i]) & 0x7fffffff; });
}
SOLITON_INLINE Floats power_of_two(const Ints& n) {
    return each_lane<Floats>(
        [&](int i) { return __builtin_bit_cast(float, (n.at[i] + 127) << 23); });
}
SOLITON_INLINE Ints shift_left(const Ints& a, int n) {
    return each_lane<Ints>(
        [&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.at[i]) << n); });
}
SOLITON_INLINE Ints shift_right(const Ints& a, int n) {
    return each_lane<Ints>(
        [&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.at[i]) >> n); });
}
SOLITON_INLINE Ints bits_of(const Ints& a, const Ints& mask) {
    return each_lane<Ints>([&](int i) { return a.at[i] & mask.at[i]; });
}
SOLITON_INLINE Floats as_floats(const Ints& a) {
    return each_lane<Floats>([&](int i) { return __builtin_bit_cast(float, a.at[i]); });
}
SOLITON_INLINE Ints widen_bytes(const uint8_t* at) {
    return each_lane<Ints>([=](int i) { return at[i]; });
}
SOLITON_INLINE Ints widen_signed_bytes(const uint8_t* at) {
    return each_lane<Ints>([=](int i) { return static_cast<int8_t>(at[i]); });
}
SOLITON_INLINE Floats load_float16(const uint8_t* at) {
    uint16_t halves[kLanes];
    __builtin_memcpy(halves, at, sizeof halves);
    // Moves exponent and fraction into place. The product corrects the exponent's bias, also for
    // subnormal numbers. Finite values only, which scales and minima always are.
    return each_lane<Floats>([&](int i) {
        const uint32_t magnitude = static_cast<uint32_t>(halves[i] & 0x7fff) << 13;
        const float value = __builtin_bit_cast(float, magnitude) * 0x1p112f;
        return halves[i] & 0x8000 ? -value : value;
    });
}
SOLITON_INLINE Floats load_bfloat16(const uint8_t* at, bool second) {
    uint32_t pairs[kLanes];
    __builtin_memcpy(pairs, at, sizeof pairs);
    return each_lane<Floats>([&](int i) {
        return __builtin_bit_cast(float, second ? pairs[i] & 0xffff0000u : pairs[i] << 16);
    });
}
SOLITON_INLINE void store_bytes(int8_t* at, const Ints& a) {
    for (int i = 0; i < kLanes; ++i) {
        at[i] = static_cast<int8_t>(a.at[i]);
    }
}
SOLITON_INLINE float sum(Floats a) {
    for (int width = kLanes / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; ++i) {
            a.at[i] += a.at[i + width];
        }
    }
    return a.at[0];
}
SOLITON_INLINE int32_t sum(const Ints& a) {
    int32_t result = 0;
    for (int i = 0; i < kLanes; ++i) {
        result += a.at[i];
    }
    return result;
}
SOLITON_INLINE int32_t largest(const Ints& a) {
    int32_t result = a.at[0];
    for (int i = 1; i < kLanes; ++i) {
        result = a.at[i] > result ? a.at[i] : result;
    }
    return result;
}
SOLITON_INLINE Ints load_ints(const void* at) {
    Ints result;
    __builtin_memcpy(&result, at, sizeof result);
    return result;
}
SOLITON_INLINE void store_ints(void* at, const Ints& a) {
    __builtin_memcpy(at, &a, sizeof a);
}
SOLITON_INLINE int32_t signed_byte(int32_t lane, int index) {
    return static_cast<int8_t>(static_cast<uint32_t>(lane) >> (8 * index));
}
SOLITON_INLINE int32_t signed_word(int32_t lane, int index) {
    return static_cast<int16_t>(static_cast<uint32_t>(lane) >> (16 * index));
}
SOLITON_INLINE int32_t words(int32_t low, int32_t high) {
    return static_cast<int32_t>((static_cast<uint32_t>(low) & 0xffffu) |
                                (static_cast<uint32_t>(high) << 16));
}
SOLITON_INLINE Ints even_bytes(const Ints& a) {
    return each_lane<Ints>(
        [&](int i) { return words(signed_byte(a.at[i], 0), signed_byte(a.at[i], 2)); });
}
SOLITON_INLINE Ints odd_bytes(const Ints& a) {
    return each_lane<Ints>(
        [&](int i) { return words(signed_byte(a.at[i], 1), signed_byte(a.at[i], 3)); });
}
SOLITON_INLINE Ints look_up(const int8_t* table, const Ints& a) {
    return each_lane<Ints>([&](int i) {
        uint32_t lane = 0;
        for (int shift = 0; shift < 32; shift += 8) {
            const uint32_t code = static_cast<uint32_t>(a.at[i]) >> shift & 15u;
            lane |= static_cast<uint32_t>(static_cast<uint8_t>(table[code])) << shift;
        }
        return static_cast<int32_t>(lane);
    });
}
SOLITON_INLINE Ints multiply_add_words(const Ints& a, const Ints& b, const Ints& c) {
    return each_lane<Ints>([&](int i) {
        return c.at[i] + signed_word(a.at[i], 0) * signed_word(b.at[i], 0) +
               signed_word(a.at[i], 1) * signed_word(b.at[i], 1);
    });
}
SOLITON_INLINE void store_words(int16_t* at, const Ints& a) {
    for (int i = 0; i < kLanes; ++i) {
        at[i] = static_cast<int16_t>(a.at[i]);
    }
}
SOLITON_INLINE uint32_t at_least_bits(const Floats& a, const Floats& b) {
    uint32_t bits = 0;
    for (int i = 0; i < kLanes; ++i) {
        bits |= a.at[i] >= b.at[i] ? 1u << i : 0u;
    }
    return bits;
}
SOLITON_INLINE float largest_lane(const Floats& a) {
    float result = a.at[0];
    for (int i = 1; i < kLanes; ++i) {
        result = a.at[i] > result ? a.at[i] : result;
    }
    return result;
}

struct Doubles {
    double at[kLanes];
};
SOLITON_INLINE Doubles add(const Doubles& a, const Floats& b) {
    Doubles result;
    for (int i = 0; i < kLanes; ++i) {
        result.at[i] = a.at[i] + static_cast<double>(b.at[i]);
    }
    return result;
}
SOLITON_INLINE void store(double* at, const Doubles& a) {
    for (int i = 0; i < kLanes; ++i) {
        at[i] = a.at[i];
    }
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
