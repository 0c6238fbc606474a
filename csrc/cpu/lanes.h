// Sixteen numbers at a time, as many as a panel has rows: in one vector register, in two, or in as
// many as the compiler takes for the baseline. Owns what the kernels of matrices need of an
// instruction set; every function gives the same bits in all of them.
//
// Everything is in the namespace of the instruction set and in an unnamed one: no copy is shared.
#pragma once

#include <cstdint>

// The second is set by hand, to run this code with an emulation of the intrinsics.
#if defined(__AVX512VNNI__) || defined(SOLITON_EMULATED_AVX512)
#define SOLITON_LANES_AVX512
#elif defined(__AVX2__)
#define SOLITON_LANES_AVX2
#elif defined(SOLITON_NEON)  // __ARM_NEON holds for the baseline of arm64 too
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

#if defined(SOLITON_LANES_AVX512)

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
// b where either is NaN.
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
// To the nearest, ties to even; the values fit.
SOLITON_INLINE Ints round(Floats a) {
    return {_mm512_cvtps_epi32(a.all)};
}
SOLITON_INLINE Ints magnitude_bits(Floats a) {
    return {_mm512_and_si512(_mm512_castps_si512(a.all), _mm512_set1_epi32(0x7fffffff))};
}
// 2^n for n from -126 to 127, infinity for 128.
SOLITON_INLINE Floats power_of_two(Ints n) {
    const __m512i biased = _mm512_add_epi32(n.all, _mm512_set1_epi32(127));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(biased, 23))};
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
SOLITON_INLINE int32_t sum(Ints a) {
    return _mm512_reduce_add_epi32(a.all);
}
SOLITON_INLINE int32_t largest(Ints a) {
    return _mm512_reduce_max_epi32(a.all);
}
SOLITON_INLINE Ints load_ints(const void* at) {
    return {_mm512_loadu_si512(at)};
}
// Of the four bytes of a lane the first and third, or the second and fourth, as signed words.
SOLITON_INLINE Ints even_bytes(Ints a) {
    return {_mm512_srai_epi16(_mm512_slli_epi16(a.all, 8), 8)};
}
SOLITON_INLINE Ints odd_bytes(Ints a) {
    return {_mm512_srai_epi16(a.all, 8)};
}
// c + the products of the two signed words of a lane.
SOLITON_INLINE Ints multiply_add_words(Ints a, Ints b, Ints c) {
    return {_mm512_dpwssd_epi32(c.all, a.all, b.all)};
}
// Values that fit.
SOLITON_INLINE void store_words(int16_t* at, Ints a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm512_cvtepi32_epi16(a.all));
}

#elif defined(SOLITON_LANES_AVX2)

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
SOLITON_INLINE Ints even_bytes(Ints a) {
    return {_mm256_srai_epi16(_mm256_slli_epi16(a.low, 8), 8),
            _mm256_srai_epi16(_mm256_slli_epi16(a.high, 8), 8)};
}
SOLITON_INLINE Ints odd_bytes(Ints a) {
    return {_mm256_srai_epi16(a.low, 8), _mm256_srai_epi16(a.high, 8)};
}
SOLITON_INLINE Ints multiply_add_words(Ints a, Ints b, Ints c) {
    Ints result = {_mm256_add_epi32(c.low, _mm256_madd_epi16(a.low, b.low)),
                   _mm256_add_epi32(c.high, _mm256_madd_epi16(a.high, b.high))};
    // Or gcc adds up products before it adds them to c, for which there are not enough registers.
    __asm__("" : "+x"(result.low), "+x"(result.high));
    return result;
}
SOLITON_INLINE void store_words(int16_t* at, Ints a) {
    const __m256i words =
        _mm256_permute4x64_epi64(_mm256_packs_epi32(a.low, a.high), _MM_SHUFFLE(3, 1, 2, 0));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), words);
}

#elif defined(SOLITON_LANES_NEON)

template <typename Quarter>
struct Quarters {
    Quarter first;
    Quarter second;
    Quarter third;
    Quarter fourth;
};
using Floats = Quarters<float32x4_t>;
using Ints = Quarters<int32x4_t>;

// Calls `function` with each quarter of all `parts` and collects what it returns.
template <typename Function, typename... Parts>
SOLITON_INLINE auto each_quarter(Function function, const Parts&... parts) {
    return Quarters<decltype(function(parts.first...))>{
        function(parts.first...), function(parts.second...), function(parts.third...),
        function(parts.fourth...)};
}

SOLITON_INLINE Floats load(const float* at) {
    return {vld1q_f32(at), vld1q_f32(at + 4), vld1q_f32(at + 8), vld1q_f32(at + 12)};
}
SOLITON_INLINE void store(float* at, Floats a) {
    vst1q_f32(at, a.first);
    vst1q_f32(at + 4, a.second);
    vst1q_f32(at + 8, a.third);
    vst1q_f32(at + 12, a.fourth);
}
SOLITON_INLINE Floats broadcast(float a) {
    const float32x4_t quarter = vdupq_n_f32(a);
    return {quarter, quarter, quarter, quarter};
}
SOLITON_INLINE Ints broadcast(int32_t a) {
    const int32x4_t quarter = vdupq_n_s32(a);
    return {quarter, quarter, quarter, quarter};
}
SOLITON_INLINE Floats add(Floats a, Floats b) {
    return each_quarter([](float32x4_t a, float32x4_t b) { return vaddq_f32(a, b); }, a, b);
}
SOLITON_INLINE Floats multiply(Floats a, Floats b) {
    return each_quarter([](float32x4_t a, float32x4_t b) { return vmulq_f32(a, b); }, a, b);
}
SOLITON_INLINE Floats divide(Floats a, Floats b) {
    return each_quarter([](float32x4_t a, float32x4_t b) { return vdivq_f32(a, b); }, a, b);
}
// Not vfmaq_f32: gcc takes it for a function that reads memory (the way of rounding) and stores all
// sums of a loop before each.
SOLITON_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
    return each_quarter(
        [](float32x4_t a, float32x4_t b, float32x4_t c) {
            asm("fmla %0.4s, %1.4s, %2.4s" : "+w"(c) : "w"(a), "w"(b));
            return c;
        },
        a, b, c);
}
// Not vminq_f32 and vmaxq_f32, which give a NaN for one.
SOLITON_INLINE Floats smaller(Floats a, Floats b) {
    return each_quarter(
        [](float32x4_t a, float32x4_t b) { return vbslq_f32(vcltq_f32(a, b), a, b); }, a, b);
}
SOLITON_INLINE Floats larger(Floats a, Floats b) {
    return each_quarter(
        [](float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }, a, b);
}
SOLITON_INLINE Ints larger(Ints a, Ints b) {
    return each_quarter([](int32x4_t a, int32x4_t b) { return vmaxq_s32(a, b); }, a, b);
}
SOLITON_INLINE Ints add(Ints a, Ints b) {
    return each_quarter([](int32x4_t a, int32x4_t b) { return vaddq_s32(a, b); }, a, b);
}
SOLITON_INLINE Floats to_floats(Ints a) {
    return each_quarter([](int32x4_t a) { return vcvtq_f32_s32(a); }, a);
}
SOLITON_INLINE Ints round(Floats a) {
    return each_quarter([](float32x4_t a) { return vcvtnq_s32_f32(a); }, a);
}
SOLITON_INLINE Ints magnitude_bits(Floats a) {
    return each_quarter([](float32x4_t a) { return vreinterpretq_s32_f32(vabsq_f32(a)); }, a);
}
SOLITON_INLINE Floats power_of_two(Ints n) {
    return each_quarter(
        [](int32x4_t biased) { return vreinterpretq_f32_s32(vshlq_n_s32(biased, 23)); },
        add(n, broadcast(127)));
}
// 64 bytes.
SOLITON_INLINE Quarters<uint8x16_t> load_line(const uint8_t* at) {
    return {vld1q_u8(at), vld1q_u8(at + 16), vld1q_u8(at + 32), vld1q_u8(at + 48)};
}
SOLITON_INLINE Floats load_float16(const uint8_t* at) {
    const Quarters<uint8x8_t> halves = {vld1_u8(at), vld1_u8(at + 8), vld1_u8(at + 16),
                                        vld1_u8(at + 24)};
    return each_quarter([](uint8x8_t a) { return vcvt_f32_f16(vreinterpret_f16_u8(a)); }, halves);
}
SOLITON_INLINE Floats load_bfloat16(const uint8_t* at, bool second) {
    return each_quarter(
        [=](uint8x16_t bytes) {
            const uint32x4_t pairs = vreinterpretq_u32_u8(bytes);
            return vreinterpretq_f32_u32(second ? vandq_u32(pairs, vdupq_n_u32(0xffff0000))
                                                : vshlq_n_u32(pairs, 16));
        },
        load_line(at));
}
SOLITON_INLINE void store_bytes(int8_t* at, Ints a) {
    const int16x8_t low = vcombine_s16(vmovn_s32(a.first), vmovn_s32(a.second));
    const int16x8_t high = vcombine_s16(vmovn_s32(a.third), vmovn_s32(a.fourth));
    vst1q_s8(at, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}
SOLITON_INLINE int32_t sum(Ints a) {
    return vaddvq_s32(vaddq_s32(vaddq_s32(a.first, a.second), vaddq_s32(a.third, a.fourth)));
}
SOLITON_INLINE int32_t largest(Ints a) {
    return vmaxvq_s32(vmaxq_s32(vmaxq_s32(a.first, a.second), vmaxq_s32(a.third, a.fourth)));
}
SOLITON_INLINE Ints load_ints(const void* at) {
    return each_quarter([](uint8x16_t bytes) { return vreinterpretq_s32_u8(bytes); },
                        load_line(static_cast<const uint8_t*>(at)));
}
SOLITON_INLINE Ints even_bytes(Ints a) {
    return each_quarter(
        [](int32x4_t a) {
            const int16x8_t words = vreinterpretq_s16_s32(a);
            return vreinterpretq_s32_s16(vshrq_n_s16(vshlq_n_s16(words, 8), 8));
        },
        a);
}
SOLITON_INLINE Ints odd_bytes(Ints a) {
    return each_quarter(
        [](int32x4_t a) { return vreinterpretq_s32_s16(vshrq_n_s16(vreinterpretq_s16_s32(a), 8)); },
        a);
}
SOLITON_INLINE Ints multiply_add_words(Ints a, Ints b, Ints c) {
    return each_quarter(
        [](int32x4_t a, int32x4_t b, int32x4_t c) {
            const int16x8_t first = vreinterpretq_s16_s32(a);
            const int16x8_t second = vreinterpretq_s16_s32(b);
            const int32x4_t low = vmull_s16(vget_low_s16(first), vget_low_s16(second));
            return vaddq_s32(c, vpaddq_s32(low, vmull_high_s16(first, second)));
        },
        a, b, c);
}
SOLITON_INLINE void store_words(int16_t* at, Ints a) {
    vst1q_s16(at, vcombine_s16(vmovn_s32(a.first), vmovn_s32(a.second)));
    vst1q_s16(at + 8, vcombine_s16(vmovn_s32(a.third), vmovn_s32(a.fourth)));
}

#else

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
    // Adding 1.5 * 2^23 rounds as wanted and leaves the integer in the low bits.
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
SOLITON_INLINE Floats load_float16(const uint8_t* at) {
    uint16_t halves[kLanes];
    __builtin_memcpy(halves, at, sizeof halves);
    // Exponent and fraction moved into place; the product mends the bias of the exponent, for
    // subnormal numbers too. Finite values only: scales and minima are nothing else.
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

#endif

// The lanes added in a fixed order: halves onto each other.
SOLITON_INLINE float sum(Floats a) {
    float parts[kLanes];
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
