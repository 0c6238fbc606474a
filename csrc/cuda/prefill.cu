// The work between two matrix products of a pass of many rows, each in a single pass over memory:
// norm of the residual stream, and the activation of the feed-forward. Sums are float32.
#include <cstdint>

#include "common.cuh"
#include "epilogue.cuh"
#include "prefill.h"

namespace soliton::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

struct Quad {
    float values[4];
};

// Four of n values from `first` on, where first < n; zeros beyond the end. Rows with n % 4 == 0 are
// aligned.
__device__ __forceinline__ Quad load_quad(const float* row, int64_t first, int64_t n) {
    if (n % 4 == 0) {
        const float4 four = *reinterpret_cast<const float4*>(row + first);
        return {{four.x, four.y, four.z, four.w}};
    }
    Quad quad = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (first + i < n) {
            quad.values[i] = row[first + i];
        }
    }
    return quad;
}

__device__ __forceinline__ float from_bits(uint32_t bits) {
    return __bfloat162float(__ushort_as_bfloat16(static_cast<unsigned short>(bits)));
}

__device__ __forceinline__ Quad load_quad(const __nv_bfloat16* row, int64_t first, int64_t n) {
    if (n % 4 == 0) {
        const uint2 bits = *reinterpret_cast<const uint2*>(row + first);
        return {{from_bits(bits.x), from_bits(bits.x >> 16), from_bits(bits.y),
                 from_bits(bits.y >> 16)}};
    }
    Quad quad = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (first + i < n) {
            quad.values[i] = __bfloat162float(row[first + i]);
        }
    }
    return quad;
}

__device__ __forceinline__ uint32_t to_bits(float a, float b) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(a)) |
           uint32_t{__bfloat16_as_ushort(__float2bfloat16_rn(b))} << 16;
}

__device__ __forceinline__ void store_quad(const Quad& quad, __nv_bfloat16* row, int64_t first,
                                           int64_t n) {
    if (n % 4 == 0) {
        *reinterpret_cast<uint2*>(row + first) = {to_bits(quad.values[0], quad.values[1]),
                                                  to_bits(quad.values[2], quad.values[3])};
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (first + i < n) {
            row[first + i] = __float2bfloat16_rn(quad.values[i]);
        }
    }
}

// A block for each row. A thread keeps up to kKept quads of the row in registers and reads the rest
// again.
constexpr int kKept = 4;

__global__ void __launch_bounds__(kThreads) norm_rows(const RmsNormArgs args) {
    wait_for_previous_launch();
    __shared__ float squares[kWarps];
    const int64_t row = blockIdx.x;
    const float* residual = args.residual + row * args.dim;
    auto* out = static_cast<__nv_bfloat16*>(args.out) + row * args.dim;
    const int64_t first = 4 * static_cast<int64_t>(threadIdx.x);
    Quad kept[kKept];
    float square = 0;
    const auto take = [&](int64_t i) {
        const Quad quad = load_quad(residual, i, args.dim);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            square = fmaf(quad.values[j], quad.values[j], square);
        }
        return quad;
    };
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
        const int64_t i = first + k * 4 * kThreads;
        if (i < args.dim) {
            kept[k] = take(i);
        }
    }
    for (int64_t i = first + kKept * 4 * kThreads; i < args.dim; i += 4 * kThreads) {
        take(i);
    }
    square = sum_of_warp(square);
    if (threadIdx.x % kWarp == 0) {
        squares[threadIdx.x / kWarp] = square;
    }
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
        sum += squares[warp];
    }
    const float inverse = 1.0f / sqrtf(sum / static_cast<float>(args.dim) + args.eps);
    const auto give = [&](Quad quad, int64_t i) {
        const Quad norm = load_quad(args.norm, i, args.dim);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            quad.values[j] *= inverse * norm.values[j];
        }
        store_quad(quad, out, i, args.dim);
    };
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
        const int64_t i = first + k * 4 * kThreads;
        if (i < args.dim) {
            give(kept[k], i);
        }
    }
    for (int64_t i = first + kKept * 4 * kThreads; i < args.dim; i += 4 * kThreads) {
        give(load_quad(residual, i, args.dim), i);
    }
}

__global__ void __launch_bounds__(kThreads) activate_rows(const ActivateArgs args) {
    wait_for_previous_launch();
    const int64_t first = 4 * (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x);
    if (first >= args.width) {
        return;
    }
    const bool has_gate = is_gated(args.epilogue);
    for (int64_t row = blockIdx.y; row < args.n_rows; row += gridDim.y) {
        const auto* x =
            static_cast<const __nv_bfloat16*>(args.x) + (has_gate ? 2 : 1) * row * args.width;
        const Quad gate = load_quad(x, first, args.width);
        Quad result = has_gate ? load_quad(x + args.width, first, args.width) : gate;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            result.values[j] = has_gate ? gated(args.epilogue, gate.values[j], result.values[j])
                                        : shaped(args.epilogue, gate.values[j], 0.0f);
        }
        store_quad(result, static_cast<__nv_bfloat16*>(args.out) + row * args.width, first,
                   args.width);
    }
}

}  // namespace

cudaError_t rms_norm(const RmsNormArgs& args, cudaStream_t stream) {
    if (args.n_rows == 0) {
        return cudaSuccess;
    }
    return launch(norm_rows, dim3(static_cast<unsigned>(args.n_rows)), dim3(kThreads), 0, {stream},
                  args);
}

cudaError_t activate(const ActivateArgs& args, cudaStream_t stream) {
    if (args.n_rows == 0) {
        return cudaSuccess;
    }
    constexpr int64_t kMostBlocks = 65535;  // in y
    const int64_t columns = (args.width + 4 * kThreads - 1) / (4 * kThreads);
    const int64_t rows = args.n_rows < kMostBlocks ? args.n_rows : kMostBlocks;
    return launch(activate_rows, dim3(static_cast<unsigned>(columns), static_cast<unsigned>(rows)),
                  dim3(kThreads), 0, {stream}, args);
}

}  // namespace soliton::cuda
