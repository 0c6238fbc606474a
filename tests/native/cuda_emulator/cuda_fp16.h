// Replaces CUDA's header of this name: the part of __half that kernels use.
#pragma once

#include "cuda_runtime.h"
#include "emulated_floats.h"

struct __half_raw {
    unsigned short x;
};

struct alignas(2) __half {
    unsigned short bits;

    __half() = default;
    __half(const __half_raw& raw) : bits(raw.x) {}
    __half(float value) : bits(soliton::emulator::double_to_half(value)) {}
    operator float() const { return soliton::emulator::half_to_float(bits); }
    operator __half_raw() const { return {bits}; }
};

struct alignas(4) __half2 {
    __half x, y;

    __half2() = default;
    __half2(__half x_, __half y_) : x(x_), y(y_) {}
};

using half = __half;
using half2 = __half2;

inline __half __float2half_rn(float a) {
    return __half(a);
}
inline __half __float2half(float a) {
    return __half(a);
}
inline __half __double2half(double a) {
    return __half_raw{soliton::emulator::double_to_half(a)};
}
inline float __half2float(__half a) {
    return a;
}
inline unsigned short __half_as_ushort(__half a) {
    return a.bits;
}
inline __half __ushort_as_half(unsigned short a) {
    return __half_raw{a};
}
inline short __half_as_short(__half a) {
    return static_cast<short>(a.bits);
}
inline __half __int2half_rn(int a) {
    return __double2half(a);
}

inline __half2 __halves2half2(__half a, __half b) {
    return {a, b};
}
inline __half2 make_half2(__half a, __half b) {
    return {a, b};
}
inline __half2 __half2half2(__half a) {
    return {a, a};
}
inline __half2 __float2half2_rn(float a) {
    return {__half(a), __half(a)};
}
inline __half2 __floats2half2_rn(float a, float b) {
    return {__half(a), __half(b)};
}
inline __half2 __float22half2_rn(float2 a) {
    return {__half(a.x), __half(a.y)};
}
inline float2 __half22float2(__half2 a) {
    return {a.x, a.y};
}
inline __half __low2half(__half2 a) {
    return a.x;
}
inline __half __high2half(__half2 a) {
    return a.y;
}
inline float __low2float(__half2 a) {
    return a.x;
}
inline float __high2float(__half2 a) {
    return a.y;
}

// A float16 sum, product or both is exact in double, or close enough that the result is rounded
// once.
inline __half __hadd(__half a, __half b) {
    return __double2half(double{float(a)} + float(b));
}
inline __half __hsub(__half a, __half b) {
    return __double2half(double{float(a)} - float(b));
}
inline __half __hmul(__half a, __half b) {
    return __double2half(double{float(a)} * float(b));
}
inline __half __hfma(__half a, __half b, __half c) {
    return __double2half(double{float(a)} * float(b) + float(c));
}
inline __half __hneg(__half a) {
    return __half_raw{static_cast<unsigned short>(a.bits ^ 0x8000)};
}
inline __half __habs(__half a) {
    return __half_raw{static_cast<unsigned short>(a.bits & 0x7fff)};
}
inline __half2 __hadd2(__half2 a, __half2 b) {
    return {__hadd(a.x, b.x), __hadd(a.y, b.y)};
}
inline __half2 __hsub2(__half2 a, __half2 b) {
    return {__hsub(a.x, b.x), __hsub(a.y, b.y)};
}
inline __half2 __hmul2(__half2 a, __half2 b) {
    return {__hmul(a.x, b.x), __hmul(a.y, b.y)};
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
