// Ops for a pass of many rows, whose matrix products and attention come from a library: rows of
// quantised matrices as bfloat16, and the work between two products in a single pass over memory.
// Owns no code.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "ops.h"

namespace soliton::cuda {

// Rows [begin, end) of a quantised matrix as bfloat16, rounded to nearest.
struct UnpackArgs {
    Matrix matrix;
    bool gated;  // packed as gate and up, each starting with a new panel
    int64_t begin;
    int64_t end;
    void* out;  // bfloat16 (end - begin, n_in)
};

// out = rms_norm(residual).
struct RmsNormArgs {
    const float* residual;  // (n_rows, dim)
    const float* norm;      // (dim,)
    float eps;
    int64_t n_rows;
    int64_t dim;
    void* out;  // bfloat16 (n_rows, dim)
};

// out = the epilogue of x: of gate, then up, or of each number.
struct ActivateArgs {
    const void* x;  // bfloat16 (n_rows, width), gated (n_rows, 2 width)
    int64_t n_rows;
    int64_t width;  // of out
    Epilogue epilogue;
    void* out;  // bfloat16 (n_rows, width)
};

// Each returns the launch's error.
cudaError_t unpack(const UnpackArgs& args, cudaStream_t stream);
cudaError_t rms_norm(const RmsNormArgs& args, cudaStream_t stream);
cudaError_t activate(const ActivateArgs& args, cudaStream_t stream);

}  // namespace soliton::cuda
