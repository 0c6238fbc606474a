// Replaces CUDA's header of this name: the part of __nv_bfloat16 that kernels use.
#pragma once

#include "cuda_runtime.h"
#include "emulated_floats.h"

struct __nv_bfloat16_raw {
    unsigned short x;
};

struct alignas(2) __nv_bfloat16 {
    unsigned short bits;

    __nv_bfloat16() = default;
    __nv_bfloat16(const __nv_bfloat16_raw& raw) : bits(raw.x) {}
    __nv_bfloat16(float value) : bits(soliton::emulator::float_to_bf16(value)) {}
    operator float() const { return soliton::emulator::bf16_to_float(bits); }
    operator __nv_bfloat16_raw() const { return {bits}; }
};

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;

    __nv_bfloat162() = default;
    __nv_bfloat162(__nv_bfloat16 x_, __nv_bfloat16 y_) : x(x_), y(y_) {}
};

using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline __nv_bfloat16 __float2bfloat16_rn(float a) {
    return __nv_bfloat16(a);
}
inline __nv_bfloat16 __float2bfloat16(float a) {
    return __nv_bfloat16(a);
}
inline __nv_bfloat16 __float2bfloat16_rz(float a) {
    return __nv_bfloat16_raw{static_cast<unsigned short>(std::bit_cast<unsigned>(a) >> 16)};
}
inline float __bfloat162float(__nv_bfloat16 a) {
    return a;
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 a) {
    return a.bits;
}
inline short __bfloat16_as_short(__nv_bfloat16 a) {
    return static_cast<short>(a.bits);
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short a) {
    return __nv_bfloat16_raw{a};
}

inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) {
    return {a, b};
}
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) {
    return {a, b};
}
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) {
    return {a, a};
}
inline __nv_bfloat162 __float2bfloat162_rn(float a) {
    return {__nv_bfloat16(a), __nv_bfloat16(a)};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
    return {__nv_bfloat16(a), __nv_bfloat16(b)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 a) {
    return {__nv_bfloat16(a.x), __nv_bfloat16(a.y)};
}
inline float2 __bfloat1622float2(__nv_bfloat162 a) {
    return {a.x, a.y};
}
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) {
    return a.x;
}
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) {
    return a.y;
}
inline float __low2float(__nv_bfloat162 a) {
    return a.x;
}
inline float __high2float(__nv_bfloat162 a) {
    return a.y;
}
