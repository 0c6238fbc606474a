// Conversions to and from 16-bit floats, as bits: rounded to nearest, ties to even, like the
// hardware.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace soliton::emulator {

inline float bf16_to_float(uint16_t bits) {
    return std::bit_cast<float>(uint32_t{bits} << 16);
}

inline uint16_t float_to_bf16(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return 0x7fff;  // NaN
    }
    return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float half_to_float(uint16_t bits) {
    const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
    const uint32_t exponent = (bits >> 10) & 0x1f;
    const uint32_t fraction = bits & 0x3ffu;
    if (exponent == 0x1f) {
        return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
    }
    if (exponent == 0) {
        const float value = static_cast<float>(fraction) * 0x1p-24f;
        return sign != 0 ? -value : value;
    }
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

inline uint16_t double_to_half(double value) {
    if (std::isnan(value)) {
        return 0x7fff;
    }
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const double size = std::fabs(value);
    if (size >= 65520.0) {  // half way from the largest to what would be the next one
        return sign | 0x7c00;
    }
    if (size < 0x1p-14) {  // subnormal, or rounded up to the smallest normal one
        return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(size * 0x1p24)));
    }
    int exponent = 0;
    const double fraction = std::frexp(size, &exponent);                           // in [0.5, 1)
    const auto digits = static_cast<uint32_t>(std::nearbyint(fraction * 0x1p11));  // 1024..2048
    return static_cast<uint16_t>(sign | ((static_cast<uint32_t>(exponent + 13) << 10) + digits));
}

}  // namespace soliton::emulator
