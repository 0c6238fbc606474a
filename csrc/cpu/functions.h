// Functions of sixteen numbers: activations and their parts. Compiled once per instruction set (see
// kernels.h), with the same result in all of them.
#pragma once

#include "isa/lanes.h"
#include "kernels.h"

namespace soliton::SOLITON_ISA {
namespace {

// Functions of few models are not inlined, so that the loops of the others keep their registers.
#define SOLITON_RARE [[gnu::noinline]] inline

// e^x for x from -87 to 88; infinity from 89 on; e^-87 below -87.
SOLITON_INLINE Floats exponential(Floats x) {
    x = smaller(larger(x, broadcast(-87.0f)), broadcast(89.0f));
    // x = n ln 2 + r, and e^r by its Taylor series, |r| <= ln 2 / 2.
    const Ints n = round(multiply(x, broadcast(0x1.715476p+0f)));
    const Floats whole = to_floats(n);
    Floats r = multiply_add(whole, broadcast(-0x1.62e4p-1f), x);
    r = multiply_add(whole, broadcast(-0x1.7f7d1cp-20f), r);
    Floats p = broadcast(1.0f / 5040);
    p = multiply_add(p, r, broadcast(1.0f / 720));
    p = multiply_add(p, r, broadcast(1.0f / 120));
    p = multiply_add(p, r, broadcast(1.0f / 24));
    p = multiply_add(p, r, broadcast(1.0f / 6));
    p = multiply_add(p, r, broadcast(0.5f));
    p = multiply_add(p, r, broadcast(1.0f));
    p = multiply_add(p, r, broadcast(1.0f));
    return multiply(p, power_of_two(n));
}

SOLITON_INLINE Floats silu(Floats x) {
    const Floats e = exponential(multiply(x, broadcast(-1.0f)));
    return divide(x, add(broadcast(1.0f), e));
}

// tanh(x), to about 1e-7; NaN for NaN.
SOLITON_INLINE Floats hyperbolic_tangent(Floats x) {
    const Floats one = broadcast(1.0f);
    const Floats e = exponential(add(x, x));
    const Floats y = subtract(one, divide(broadcast(2.0f), add(one, e)));
    // `exponential` answers NaN with a number. Of an infinity the product with 0 would be NaN too.
    const Floats finite = smaller(broadcast(0x1p100f), larger(broadcast(-0x1p100f), x));
    return multiply_add(finite, broadcast(0.0f), y);
}

// x times the normal distribution function of x, to about 3e-7. The function is computed from the
// complementary error function, by formula 7.1.26 of Abramowitz and Stegun; or by tanh, as many
// models define it.
SOLITON_RARE Floats gelu(Floats x, bool is_exact) {
    const Floats one = broadcast(1.0f);
    if (!is_exact) {
        const Floats cube = multiply(multiply(x, x), multiply(x, broadcast(0.044715f)));
        // tanh(u) = 2 / (1 + e^(-2 u)) - 1 with u = sqrt(2 / pi) (x + cube).
        const Floats e = exponential(multiply(add(x, cube), broadcast(-1.5957691216f)));
        return divide(x, add(one, e));
    }
    const Floats size = larger(x, multiply(x, broadcast(-1.0f)));
    const Floats z = multiply(size, broadcast(0.70710678119f));
    const Floats t = divide(one, multiply_add(z, broadcast(0.3275911f), one));
    Floats p = broadcast(1.061405429f);
    p = multiply_add(p, t, broadcast(-1.453152027f));
    p = multiply_add(p, t, broadcast(1.421413741f));
    p = multiply_add(p, t, broadcast(-0.284496736f));
    p = multiply_add(p, t, broadcast(0.254829592f));
    const Floats e = exponential(multiply(multiply(z, z), broadcast(-1.0f)));
    const Floats tail = multiply(multiply(p, t), e);
    return multiply_add(multiply(size, broadcast(-0.5f)), tail, larger(broadcast(0.0f), x));
}

// kClampedGate.
SOLITON_RARE Floats clamped_gate(Floats gate, Floats up) {
    const Floats one = broadcast(1.0f);
    gate = smaller(gate, broadcast(7.0f));
    up = smaller(larger(up, broadcast(-7.0f)), broadcast(7.0f));
    const Floats e = exponential(multiply(gate, broadcast(-1.702f)));
    return multiply(divide(gate, add(one, e)), add(up, one));
}

// softcap * tanh(x / softcap).
SOLITON_RARE Floats capped(Floats x, float softcap) {
    const Floats cap = broadcast(softcap);
    return multiply(cap, hyperbolic_tangent(divide(x, cap)));
}

// kXielu.
SOLITON_RARE Floats xielu(Floats x, const Xielu& curve) {
    const Floats zero = broadcast(0.0f);
    const Floats one = broadcast(1.0f);
    const Floats above = larger(zero, x);
    const Floats below = smaller(zero, x);
    // 1 up to 0 and 0 above, where the exponent, which never reaches 0, must not count.
    const Floats is_below = smaller(one, larger(zero, multiply_add(x, broadcast(-0x1p126f), one)));
    const Floats e = exponential(smaller(below, broadcast(curve.eps)));
    const Floats bend = multiply(subtract(subtract(e, one), below), is_below);
    const Floats line = multiply(x, broadcast(curve.beta));
    const Floats lower = multiply_add(bend, broadcast(curve.negative), line);
    return multiply_add(multiply(above, above), broadcast(curve.positive), lower);
}

// The epilogues of single rows.
SOLITON_RARE Floats shaped(Floats y, Epilogue epilogue, float softcap, const Xielu& curve) {
    if (epilogue == Epilogue::kSoftcap) {
        return capped(y, softcap);
    }
    if (epilogue == Epilogue::kXielu) {
        return xielu(y, curve);
    }
    if (epilogue == Epilogue::kRelu2) {
        const Floats positive = larger(broadcast(0.0f), y);
        return multiply(positive, positive);
    }
    return gelu(y, epilogue == Epilogue::kGelu);
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
