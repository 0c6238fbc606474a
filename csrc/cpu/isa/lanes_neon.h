// The vectors of lanes.h: four registers each.
#pragma once

#include "lanes.h"

namespace soliton::SOLITON_ISA {
namespace {

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
SOLITON_INLINE Floats subtract(Floats a, Floats b) {
    return each_quarter([](float32x4_t a, float32x4_t b) { return vsubq_f32(a, b); }, a, b);
}
SOLITON_INLINE Floats times_power_of_two(Floats a, Floats shifted) {
    return each_quarter(
        [](float32x4_t a, float32x4_t shifted) {
            const int32x4_t power = vshlq_n_s32(vreinterpretq_s32_f32(shifted), 23);
            return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(a), power));
        },
        a, shifted);
}
SOLITON_INLINE Floats multiply(Floats a, Floats b) {
    return each_quarter([](float32x4_t a, float32x4_t b) { return vmulq_f32(a, b); }, a, b);
}
SOLITON_INLINE Floats divide(Floats a, Floats b) {
    return each_quarter([](float32x4_t a, float32x4_t b) { return vdivq_f32(a, b); }, a, b);
}
// Not vfmaq_f32: gcc believes that it reads memory (the rounding mode), and stores all sums of a
// loop before each call.
SOLITON_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
    return each_quarter(
        [](float32x4_t a, float32x4_t b, float32x4_t c) {
            asm("fmla %0.4s, %1.4s, %2.4s" : "+w"(c) : "w"(a), "w"(b));
            return c;
        },
        a, b, c);
}
// Not vminq_f32 and vmaxq_f32, which return NaN if either is NaN.
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
SOLITON_INLINE Ints shift_left(Ints a, int n) {
    return each_quarter([=](int32x4_t a) { return (int32x4_t)((uint32x4_t)a << n); }, a);
}
SOLITON_INLINE Ints shift_right(Ints a, int n) {
    return each_quarter([=](int32x4_t a) { return (int32x4_t)((uint32x4_t)a >> n); }, a);
}
SOLITON_INLINE Ints bits_of(Ints a, Ints mask) {
    return each_quarter([](int32x4_t a, int32x4_t mask) { return vandq_s32(a, mask); }, a, mask);
}
SOLITON_INLINE Floats as_floats(Ints a) {
    return each_quarter([](int32x4_t a) { return vreinterpretq_f32_s32(a); }, a);
}
SOLITON_INLINE Ints widen_bytes(const uint8_t* at) {
    const uint16x8_t low = vmovl_u8(vld1_u8(at));
    const uint16x8_t high = vmovl_u8(vld1_u8(at + 8));
    const auto widened = [](uint16x4_t a) { return vreinterpretq_s32_u32(vmovl_u16(a)); };
    return {widened(vget_low_u16(low)), widened(vget_high_u16(low)), widened(vget_low_u16(high)),
            widened(vget_high_u16(high))};
}
SOLITON_INLINE Ints widen_signed_bytes(const uint8_t* at) {
    const int16x8_t low = vmovl_s8(vreinterpret_s8_u8(vld1_u8(at)));
    const int16x8_t high = vmovl_s8(vreinterpret_s8_u8(vld1_u8(at + 8)));
    return {vmovl_s16(vget_low_s16(low)), vmovl_s16(vget_high_s16(low)),
            vmovl_s16(vget_low_s16(high)), vmovl_s16(vget_high_s16(high))};
}
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
SOLITON_INLINE float sum(Floats a) {
    const float32x4_t four = vaddq_f32(vaddq_f32(a.first, a.third), vaddq_f32(a.second, a.fourth));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
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
SOLITON_INLINE void store_ints(void* at, Ints a) {
    int32_t* words = static_cast<int32_t*>(at);
    vst1q_s32(words, a.first);
    vst1q_s32(words + 4, a.second);
    vst1q_s32(words + 8, a.third);
    vst1q_s32(words + 12, a.fourth);
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
SOLITON_INLINE Ints look_up(const int8_t* table, Ints a) {
    const int8x16_t numbers = vld1q_s8(table);
    return each_quarter(
        [=](int32x4_t a) {
            const uint8x16_t codes = vandq_u8(vreinterpretq_u8_s32(a), vdupq_n_u8(15));
            return vreinterpretq_s32_s8(vqtbl1q_s8(numbers, codes));
        },
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
SOLITON_INLINE uint32_t at_least_bits(Floats a, Floats b) {
    const uint32x4_t bits = {1, 2, 4, 8};
    const auto quarter = [&](float32x4_t a, float32x4_t b) {
        return vaddvq_u32(vandq_u32(vcgeq_f32(a, b), bits));
    };
    return quarter(a.first, b.first) | quarter(a.second, b.second) << 4 |
           quarter(a.third, b.third) << 8 | quarter(a.fourth, b.fourth) << 12;
}
SOLITON_INLINE float largest_lane(Floats a) {
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.first, a.second), vmaxq_f32(a.third, a.fourth)));
}

struct Doubles {
    float64x2_t at[8];
};
SOLITON_INLINE Doubles add(Doubles a, Floats b) {
    const float32x4_t quarters[4] = {b.first, b.second, b.third, b.fourth};
    for (int i = 0; i < 4; ++i) {
        a.at[2 * i] = vaddq_f64(a.at[2 * i], vcvt_f64_f32(vget_low_f32(quarters[i])));
        a.at[2 * i + 1] = vaddq_f64(a.at[2 * i + 1], vcvt_high_f64_f32(quarters[i]));
    }
    return a;
}
SOLITON_INLINE void store(double* at, const Doubles& a) {
    for (int i = 0; i < 8; ++i) {
        vst1q_f64(at + 2 * i, a.at[i]);
    }
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
