// The norm behind a product, added to the residual stream: a block for each row, or for each part
// of it that has a norm of its own. For passes of any number of rows.
#include <cstdint>

#include "common.cuh"
#include "ops.h"

namespace soliton::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

__global__ void __launch_bounds__(kThreads) add_norm_kernel(const AddNormArgs args) {
    allow_next_launch();
    wait_for_previous_launch();
    __shared__ float squares[kWarps];
    const int64_t begin = int64_t{blockIdx.y} * args.dim + int64_t{blockIdx.x} * args.width;
    const auto width = static_cast<int>(args.width);
    const auto thread = static_cast<int>(threadIdx.x);
    float square = 0.0f;
    for (int i = thread; i < width; i += kThreads) {
        const float x = args.x[begin + i];
        square = fmaf(x, x, square);
    }
    square = sum_of_warp(square);
    if (thread % kWarp == 0) {
        squares[thread / kWarp] = square;
    }
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
        sum += squares[warp];
    }
    const float inverse = args.scale / sqrtf(sum / static_cast<float>(width) + args.eps);
    const float factor = args.factor == nullptr ? 1.0f : *args.factor;
    for (int i = thread; i < width; i += kThreads) {
        const float normed = args.x[begin + i] * inverse * args.norm[i];
        const float residual = args.residual == nullptr ? 0.0f : args.residual[begin + i];
        args.out[begin + i] = factor * (residual + normed);
    }
}

}  // namespace

cudaError_t add_norm(const AddNormArgs& args, const Pass& pass) {
    const dim3 grid(static_cast<unsigned>(args.dim / args.width),
                    static_cast<unsigned>(pass.n_rows));
    return launch(add_norm_kernel, grid, dim3(kThreads), 0, {pass.stream, pass.overlaps}, args);
}

}  // namespace soliton::cuda
