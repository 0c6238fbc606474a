// The vectors of lanes.h: one register each.
#pragma once

#include "lanes.h"

namespace soliton::SOLITON_ISA {
namespace {

struct Floats {
    __m512 all;
};
struct Ints {
    __m512i all;
};

SOLITON_INLINE Floats load(const float* at) {
    return {_mm512_loadu_ps(at)};
}
SOLITON_INLINE void store(float* at, Floats a) {
    _mm512_storeu_ps(at, a.all);
}
SOLITON_INLINE Floats broadcast(float a) {
    return {_mm512_set1_ps(a)};
}
SOLITON_INLINE Ints broadcast(int32_t a) {
    return {_mm512_set1_epi32(a)};
}
SOLITON_INLINE Floats add(Floats a, Floats b) {
    return {_mm512_add_ps(a.all, b.all)};
}
SOLITON_INLINE Floats subtract(Floats a, Floats b) {
    return {_mm512_sub_ps(a.all, b.all)};
}
// a * 2^n for normal results; n is in the low bits of `shifted`.
SOLITON_INLINE Floats times_power_of_two(Floats a, Floats shifted) {
    const __m512i power = _mm512_slli_epi32(_mm512_castps_si512(shifted.all), 23);
    return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a.all), power))};
}
SOLITON_INLINE Floats multiply(Floats a, Floats b) {
    return {_mm512_mul_ps(a.all, b.all)};
}
SOLITON_INLINE Floats divide(Floats a, Floats b) {
    return {_mm512_div_ps(a.all, b.all)};
}
// a * b + c, rounded once.
SOLITON_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
    return {_mm512_fmadd_ps(a.all, b.all, c.all)};
}
// b if either is NaN.
SOLITON_INLINE Floats smaller(Floats a, Floats b) {
    return {_mm512_min_ps(a.all, b.all)};
}
SOLITON_INLINE Floats larger(Floats a, Floats b) {
    return {_mm512_max_ps(a.all, b.all)};
}
SOLITON_INLINE Ints larger(Ints a, Ints b) {
    return {_mm512_max_epi32(a.all, b.all)};
}
SOLITON_INLINE Ints add(Ints a, Ints b) {
    return {_mm512_add_epi32(a.all, b.all)};
}
SOLITON_INLINE Floats to_floats(Ints a) {
    return {_mm512_cvtepi32_ps(a.all)};
}
// To the nearest integer, ties to even; the values must fit.
SOLITON_INLINE Ints round(Floats a) {
    return {_mm512_cvtps_epi32(a.all)};
}
SOLITON_INLINE Ints magnitude_bits(Floats a) {
    return {_mm512_and_si512(_mm512_castps_si512(a.all), _mm512_set1_epi32(0x7fffffff))};
}
// 2^n for n from -126 to 127; infinity for 128.
SOLITON_INLINE Floats power_of_two(Ints n) {
    const __m512i biased = _mm512_add_epi32(n.all, _mm512_set1_epi32(127));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(biased, 23))};
}
SOLITON_INLINE Ints shift_left(Ints a, int n) {
    return {(__m512i)((__v16su)a.all << n)};
}
// Zeros come in.
SOLITON_INLINE Ints shift_right(Ints a, int n) {
    return {(__m512i)((__v16su)a.all >> n)};
}
SOLITON_INLINE Ints bits_of(Ints a, Ints mask) {
    return {_mm512_and_si512(a.all, mask.all)};
}
// The floats with these bits.
SOLITON_INLINE Floats as_floats(Ints a) {
    return {_mm512_castsi512_ps(a.all)};
}
// 16 bytes, unsigned or signed.
SOLITON_INLINE Ints widen_bytes(const uint8_t* at) {
    return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)))};
}
SOLITON_INLINE Ints widen_signed_bytes(const uint8_t* at) {
    return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)))};
}
SOLITON_INLINE Floats load_float16(const uint8_t* at) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)))};
}
// The first, or the second, of each of 16 pairs of bfloat16.
SOLITON_INLINE Floats load_bfloat16(const uint8_t* at, bool second) {
    const __m512i pairs = _mm512_loadu_si512(at);
    const __m512i bits = second ? _mm512_and_si512(pairs, _mm512_set1_epi32(-0x10000))
                                : _mm512_slli_epi32(pairs, 16);
    return {_mm512_castsi512_ps(bits)};
}
// Values that fit.
SOLITON_INLINE void store_bytes(int8_t* at, Ints a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm512_cvtepi32_epi8(a.all));
}
// Adds the lanes in a fixed order: one half onto the other, again and again.
SOLITON_INLINE float sum(Floats a) {
    const __m256 eight =
        _mm256_add_ps(_mm512_castps512_ps256(a.all), _mm512_extractf32x8_ps(a.all, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
SOLITON_INLINE int32_t sum(Ints a) {
    return _mm512_reduce_add_epi32(a.all);
}
SOLITON_INLINE int32_t largest(Ints a) {
    return _mm512_reduce_max_epi32(a.all);
}
// 64 bytes, as two loads of 32 in ascending order, which the compiler would change. The prefetchers
// of Zen 4 keep up with that; they lose a tenth with whole loads, and half with halves in another
// order (bench/RESULTS.md).
SOLITON_INLINE __m512i load_halves(const uint8_t* at) {
    const __m256i* halves = reinterpret_cast<const __m256i*>(at);
    __m512i both;
    asm volatile("vmovdqu64 %1, %t0\n\tvinserti64x4 $1, %2, %0, %0"
                 : "=&v"(both)
                 : "m"(halves[0]), "m"(halves[1]));
    return both;
}
SOLITON_INLINE Ints load_ints(const void* at) {
    return {_mm512_loadu_si512(at)};
}
SOLITON_INLINE void store_ints(void* at, Ints a) {
    _mm512_storeu_si512(at, a.all);
}
// The first and third of the four bytes of a lane, or the second and fourth, as signed words.
SOLITON_INLINE Ints even_bytes(Ints a) {
    return {_mm512_srai_epi16(_mm512_slli_epi16(a.all, 8), 8)};
}
SOLITON_INLINE Ints odd_bytes(Ints a) {
    return {_mm512_srai_epi16(a.all, 8)};
}
// For each byte, what a table of 16 has for its low 4 bits; the others may hold anything.
SOLITON_INLINE Ints look_up(const int8_t* table, Ints a) {
    const __m128i numbers = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
    const __m512i codes = _mm512_and_si512(a.all, _mm512_set1_epi8(15));
    return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(numbers), codes)};
}
// c + the products of the two signed words of a lane.
SOLITON_INLINE Ints multiply_add_words(Ints a, Ints b, Ints c) {
    return {_mm512_dpwssd_epi32(c.all, a.all, b.all)};
}
// Values that fit.
SOLITON_INLINE void store_words(int16_t* at, Ints a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm512_cvtepi32_epi16(a.all));
}
// A bit for each lane, set if a >= b; the first lane has the lowest bit.
SOLITON_INLINE uint32_t at_least_bits(Floats a, Floats b) {
    return _mm512_cmp_ps_mask(a.all, b.all, _CMP_GE_OQ);
}
// No lane may be NaN.
SOLITON_INLINE float largest_lane(Floats a) {
    return _mm512_reduce_max_ps(a.all);
}

// Sums of many floats.
struct Doubles {
    __m512d low;
    __m512d high;
};
SOLITON_INLINE Doubles add(Doubles a, Floats b) {
    const __m256 high = _mm512_extractf32x8_ps(b.all, 1);
    return {_mm512_add_pd(a.low, _mm512_cvtps_pd(_mm512_castps512_ps256(b.all))),
            _mm512_add_pd(a.high, _mm512_cvtps_pd(high))};
}
SOLITON_INLINE void store(double* at, Doubles a) {
    _mm512_storeu_pd(at, a.low);
    _mm512_storeu_pd(at + 8, a.high);
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
