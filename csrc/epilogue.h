// What ops make of a product before they store it. Owns the names and numbers; the functions are in
// cpu/functions.h.
#pragma once

#include <cstdint>

namespace soliton {

// What becomes of a product y.
enum class Epilogue : int32_t {
    kNone,
    // Of gate and up rows: the function of the gate, times up.
    kSiluGate,
    kGeluGate,      // x times the normal distribution function
    kGeluTanhGate,  // its approximation by tanh
    // g / (1 + e^(-1.702 g)) * (u + 1) with g = min(gate, 7) and u = up within -7..7.
    kClampedGate,
    // Of every row.
    kGelu,
    kGeluTanh,
    kRelu2,    // max(0, y)^2
    kSoftcap,  // softcap * tanh(y / softcap)
    // Above 0 positive y^2 + beta y, otherwise negative (e^min(y, eps) - 1 - y) + beta y.
    kXielu,
};

// The numbers of kXielu, which each layer learns.
struct Xielu {
    float positive;
    float negative;
    float beta;
    float eps;
};

[[gnu::always_inline]] constexpr inline bool is_gated(Epilogue epilogue) {
    return epilogue >= Epilogue::kSiluGate && epilogue <= Epilogue::kClampedGate;
}

}  // namespace soliton
