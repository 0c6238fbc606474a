// Sixteen numbers at a time, as many as a panel has rows: in one vector register, in two or four,
// or in as many as the compiler chooses for the baseline. Owns what the kernels need from an
// instruction set; every function gives the same bits in all of them. lanes_avx512.h says what each
// function does.
//
// Everything is in the namespace of the instruction set and in an unnamed one, so no copy is
// shared.
#pragma once

#include <cstdint>

// SOLITON_EMULATED_AVX512 is set by hand, to run this code with emulated intrinsics.
#if defined(__AVX512VNNI__) || defined(SOLITON_EMULATED_AVX512)
#define SOLITON_LANES_AVX512
#elif defined(__AVX2__)
#define SOLITON_LANES_AVX2
#elif defined(SOLITON_NEON)  // __ARM_NEON is also defined for the baseline of arm64
#define SOLITON_LANES_NEON
#include <arm_neon.h>
#endif
#if defined(SOLITON_LANES_AVX512) || defined(SOLITON_LANES_AVX2)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push  // gcc 12's own header
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif
#endif

namespace soliton::SOLITON_ISA {
namespace {

#define SOLITON_INLINE [[gnu::always_inline]] inline

constexpr int kLanes = 16;

}  // namespace
}  // namespace soliton::SOLITON_ISA

#if defined(SOLITON_LANES_AVX512)
#include "lanes_avx512.h"
#elif defined(SOLITON_LANES_AVX2)
#include "lanes_avx2.h"
#elif defined(SOLITON_LANES_NEON)
#include "lanes_neon.h"
#else
#include "lanes_plain.h"
#endif

namespace soliton::SOLITON_ISA {
namespace {

// Adds the lanes as sum(Floats) does: one half onto the other, again and again.
SOLITON_INLINE double sum(const Doubles& a) {
    double parts[kLanes];
    store(parts, a);
    for (int width = kLanes / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; ++i) {
            parts[i] += parts[i + width];
        }
    }
    return parts[0];
}

// n values, then zeros; n at most kLanes.
SOLITON_INLINE Floats load_first(const float* at, int64_t n) {
    float values[kLanes] = {};
    for (int64_t i = 0; i < n; ++i) {
        values[i] = at[i];
    }
    return load(values);
}

SOLITON_INLINE void store_first(float* at, Floats a, int64_t n) {
    float values[kLanes];
    store(values, a);
    for (int64_t i = 0; i < n; ++i) {
        at[i] = values[i];
    }
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
