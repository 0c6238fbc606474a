// The functions that products end with. Owns the arithmetic; ops.h has their names.
#pragma once

#include "common.cuh"
#include "ops.h"

namespace soliton::cuda {

// x times the normal distribution function of x, or its approximation by tanh.
__device__ __forceinline__ float gelu(float x, bool is_exact) {
    if (is_exact) {
        return 0.5f * x * (1.0f + erff(x * 0.70710678119f));
    }
    // tanh(u) = 2 / (1 + e^(-2 u)) - 1 with u = sqrt(2 / pi) (x + 0.044715 x^3).
    const float u = x + 0.044715f * x * x * x;
    return x / (1.0f + expf(-1.5957691216f * u));
}

// Of an epilogue that is gated. A NaN stays one.
__device__ __forceinline__ float gated(Epilogue epilogue, float gate, float up) {
    if (epilogue == Epilogue::kSiluGate) {
        return gate / (1.0f + expf(-gate)) * up;
    }
    if (epilogue == Epilogue::kClampedGate) {
        gate = gate > 7.0f ? 7.0f : gate;
        up = up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up;
        return gate / (1.0f + expf(-1.702f * gate)) * (up + 1.0f);
    }
    return gelu(gate, epilogue == Epilogue::kGeluGate) * up;
}

// Of any other.
__device__ __forceinline__ float shaped(Epilogue epilogue, float y, float softcap) {
    switch (epilogue) {
        case Epilogue::kGelu:
        case Epilogue::kGeluTanh:
            return gelu(y, epilogue == Epilogue::kGelu);
        case Epilogue::kRelu2:
            return y > 0.0f ? y * y : y != y ? y : 0.0f;
        case Epilogue::kSoftcap:
            return softcap * tanhf(y / softcap);
        default:
            return y;
    }
}

}  // namespace soliton::cuda
