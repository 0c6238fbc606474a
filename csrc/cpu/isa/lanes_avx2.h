// The vectors of lanes.h: two registers each.
#pragma once

#include "lanes.h"

namespace soliton::SOLITON_ISA {
namespace {

struct Floats {
    __m256 low;
    __m256 high;
};
struct Ints {
    __m256i low;
    __m256i high;
};

SOLITON_INLINE Floats load(const float* at) {
    return {_mm256_loadu_ps(at), _mm256_loadu_ps(at + 8)};
}
SOLITON_INLINE void store(float* at, Floats a) {
    _mm256_storeu_ps(at, a.low);
    _mm256_storeu_ps(at + 8, a.high);
}
SOLITON_INLINE Floats broadcast(float a) {
    return {_mm256_set1_ps(a), _mm256_set1_ps(a)};
}
SOLITON_INLINE Ints broadcast(int32_t a) {
    return {_mm256_set1_epi32(a), _mm256_set1_epi32(a)};
}
SOLITON_INLINE Floats add(Floats a, Floats b) {
    return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
SOLITON_INLINE Floats subtract(Floats a, Floats b) {
    return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
SOLITON_INLINE __m256 times_power_of_two(__m256 a, __m256 shifted) {
    const __m256i power = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), power));
}
SOLITON_INLINE Floats times_power_of_two(Floats a, Floats shifted) {
    return {times_power_of_two(a.low, shifted.low), times_power_of_two(a.high, shifted.high)};
}
SOLITON_INLINE Floats multiply(Floats a, Floats b) {
    return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
SOLITON_INLINE Floats divide(Floats a, Floats b) {
    return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
SOLITON_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
SOLITON_INLINE Floats smaller(Floats a, Floats b) {
    return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
SOLITON_INLINE Floats larger(Floats a, Floats b) {
    return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
SOLITON_INLINE Ints larger(Ints a, Ints b) {
    return {_mm256_max_epi32(a.low, b.low), _mm256_max_epi32(a.high, b.high)};
}
SOLITON_INLINE Ints add(Ints a, Ints b) {
    return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
SOLITON_INLINE Floats to_floats(Ints a) {
    return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
}
SOLITON_INLINE Ints round(Floats a) {
    return {_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)};
}
SOLITON_INLINE Ints magnitude_bits(Floats a) {
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    return {_mm256_and_si256(_mm256_castps_si256(a.low), mask),
            _mm256_and_si256(_mm256_castps_si256(a.high), mask)};
}
SOLITON_INLINE Floats power_of_two(Ints n) {
    const Ints biased = add(n, broadcast(127));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(biased.low, 23)),
            _mm256_castsi256_ps(_mm256_slli_epi32(biased.high, 23))};
}
SOLITON_INLINE Ints shift_left(Ints a, int n) {
    return {(__m256i)((__v8su)a.low << n), (__m256i)((__v8su)a.high << n)};
}
SOLITON_INLINE Ints shift_right(Ints a, int n) {
    return {(__m256i)((__v8su)a.low >> n), (__m256i)((__v8su)a.high >> n)};
}
SOLITON_INLINE Ints bits_of(Ints a, Ints mask) {
    return {_mm256_and_si256(a.low, mask.low), _mm256_and_si256(a.high, mask.high)};
}
SOLITON_INLINE Floats as_floats(Ints a) {
    return {_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)};
}
SOLITON_INLINE Ints widen_bytes(const uint8_t* at) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
SOLITON_INLINE Ints widen_signed_bytes(const uint8_t* at) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}
SOLITON_INLINE Floats load_float16(const uint8_t* at) {
    const __m128i* halves = reinterpret_cast<const __m128i*>(at);
    return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}
SOLITON_INLINE Floats load_bfloat16(const uint8_t* at, bool second) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at) + 1);
    const __m256i mask = _mm256_set1_epi32(-0x10000);
    return {
        _mm256_castsi256_ps(second ? _mm256_and_si256(low, mask) : _mm256_slli_epi32(low, 16)),
        _mm256_castsi256_ps(second ? _mm256_and_si256(high, mask) : _mm256_slli_epi32(high, 16)),
    };
}
SOLITON_INLINE void store_bytes(int8_t* at, Ints a) {
    const __m256i words =
        _mm256_permute4x64_epi64(_mm256_packs_epi32(a.low, a.high), _MM_SHUFFLE(3, 1, 2, 0));
    const __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), bytes);
}
SOLITON_INLINE float sum(Floats a) {
    const __m256 eight = _mm256_add_ps(a.low, a.high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
SOLITON_INLINE int32_t sum(Ints a) {
    const __m256i eight = _mm256_add_epi32(a.low, a.high);
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, _MM_SHUFFLE(1, 0, 3, 2)));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, _MM_SHUFFLE(2, 3, 0, 1)));
    return _mm_cvtsi128_si32(four);
}
SOLITON_INLINE int32_t largest(Ints a) {
    const __m256i eight = _mm256_max_epi32(a.low, a.high);
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, _MM_SHUFFLE(1, 0, 3, 2)));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, _MM_SHUFFLE(2, 3, 0, 1)));
    return _mm_cvtsi128_si32(four);
}
SOLITON_INLINE Ints load_ints(const void* at) {
    const __m256i* halves = static_cast<const __m256i*>(at);
    return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
}
SOLITON_INLINE void store_ints(void* at, Ints a) {
    __m256i* halves = static_cast<__m256i*>(at);
    _mm256_storeu_si256(halves, a.low);
    _mm256_storeu_si256(halves + 1, a.high);
}
SOLITON_INLINE Ints even_bytes(Ints a) {
    return {_mm256_srai_epi16(_mm256_slli_epi16(a.low, 8), 8),
            _mm256_srai_epi16(_mm256_slli_epi16(a.high, 8), 8)};
}
SOLITON_INLINE Ints odd_bytes(Ints a) {
    return {_mm256_srai_epi16(a.low, 8), _mm256_srai_epi16(a.high, 8)};
}
SOLITON_INLINE Ints look_up(const int8_t* table, Ints a) {
    const __m256i numbers =
        _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table)));
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_shuffle_epi8(numbers, _mm256_and_si256(a.low, mask)),
            _mm256_shuffle_epi8(numbers, _mm256_and_si256(a.high, mask))};
}
SOLITON_INLINE Ints multiply_add_words(Ints a, Ints b, Ints c) {
    Ints result = {_mm256_add_epi32(c.low, _mm256_madd_epi16(a.low, b.low)),
                   _mm256_add_epi32(c.high, _mm256_madd_epi16(a.high, b.high))};
    // Otherwise gcc adds up products before it adds them to c, and runs out of registers.
    __asm__("" : "+x"(result.low), "+x"(result.high));
    return result;
}
SOLITON_INLINE void store_words(int16_t* at, Ints a) {
    const __m256i words =
        _mm256_permute4x64_epi64(_mm256_packs_epi32(a.low, a.high), _MM_SHUFFLE(3, 1, 2, 0));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), words);
}
SOLITON_INLINE uint32_t at_least_bits(Floats a, Floats b) {
    const int low = _mm256_movemask_ps(_mm256_cmp_ps(a.low, b.low, _CMP_GE_OQ));
    const int high = _mm256_movemask_ps(_mm256_cmp_ps(a.high, b.high, _CMP_GE_OQ));
    return static_cast<uint32_t>(high << 8 | low);
}
SOLITON_INLINE float largest_lane(Floats a) {
    const __m256 eight = _mm256_max_ps(a.low, a.high);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

struct Doubles {
    __m256d first;
    __m256d second;
    __m256d third;
    __m256d fourth;
};
SOLITON_INLINE Doubles add(Doubles a, Floats b) {
    return {_mm256_add_pd(a.first, _mm256_cvtps_pd(_mm256_castps256_ps128(b.low))),
            _mm256_add_pd(a.second, _mm256_cvtps_pd(_mm256_extractf128_ps(b.low, 1))),
            _mm256_add_pd(a.third, _mm256_cvtps_pd(_mm256_castps256_ps128(b.high))),
            _mm256_add_pd(a.fourth, _mm256_cvtps_pd(_mm256_extractf128_ps(b.high, 1)))};
}
SOLITON_INLINE void store(double* at, Doubles a) {
    _mm256_storeu_pd(at, a.first);
    _mm256_storeu_pd(at + 4, a.second);
    _mm256_storeu_pd(at + 8, a.third);
    _mm256_storeu_pd(at + 12, a.fourth);
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
