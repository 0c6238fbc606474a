// RMSNorm, alone and fused with the addition before it. Compiled once per instruction set (see
// kernels.h).
//
// Sums are kept in float, whatever the stored type; the result is rounded once.
#include "kernels.h"

namespace soliton::SOLITON_ISA {
namespace {

struct Bfloat16 {
    uint16_t bits;
};

float load(float value) {
    return value;
}

float load(Bfloat16 value) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(value.bits) << 16);
}

void store(float* target, float value) {
    *target = value;
}

void store(Bfloat16* target, float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    // Round to nearest, ties to even. The carry could turn a NaN into infinity, so a NaN is cut
    // instead, kept quiet.
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40u;
    target->bits = static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

template <typename T>
void norm_row(const T* x, const T* weight, T* out, int64_t dim, float eps) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < dim; ++i) {
        const float value = load(x[i]);
        sum += value * value;
    }
    const float inverse = 1.0f / __builtin_sqrtf(sum / static_cast<float>(dim) + eps);
    // out may be x: every step reads and writes one place, so there is nothing to carry over.
#pragma omp simd
    for (int64_t i = 0; i < dim; ++i) {
        store(&out[i], load(x[i]) * inverse * load(weight[i]));
    }
}

template <typename T>
void norm_rows(const RmsNormArgs& args) {
    const T* x = static_cast<const T*>(args.x);
    const T* weight = static_cast<const T*>(args.weight);
    T* out = static_cast<T*>(args.out);
    for (int64_t row = 0; row < args.rows; ++row) {
        norm_row(x + row * args.dim, weight, out + row * args.dim, args.dim, args.eps);
    }
}

template <typename T>
void add_norm_rows(const AddRmsNormArgs& args) {
    const T* x = static_cast<const T*>(args.x);
    const T* weight = static_cast<const T*>(args.weight);
    T* residual = static_cast<T*>(args.residual);
    T* out = static_cast<T*>(args.out);
    for (int64_t row = 0; row < args.rows; ++row) {
        const int64_t at = row * args.dim;
#pragma omp simd
        for (int64_t i = at; i < at + args.dim; ++i) {
            store(&residual[i], load(residual[i]) + load(x[i]));
        }
        norm_row(residual + at, weight, out + at, args.dim, args.eps);
    }
}

}  // namespace

void rms_norm(const RmsNormArgs& args) {
    args.is_bfloat16 ? norm_rows<Bfloat16>(args) : norm_rows<float>(args);
}

void add_rms_norm(const AddRmsNormArgs& args) {
    args.is_bfloat16 ? add_norm_rows<Bfloat16>(args) : add_norm_rows<float>(args);
}

}  // namespace soliton::SOLITON_ISA
