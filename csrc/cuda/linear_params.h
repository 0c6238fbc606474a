// The arguments of a product's kernel, and where its rows come from and go. Owns no code besides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "linear_shape.h"

namespace soliton::cuda {

struct LinearParams {
    const float* x;     // (n_rows, n_in)
    const float* norm;  // (n_in,): the norm's weight; null: x is not normalised
    float eps;
    const std::byte* weights;  // as layout.h describes
    const float* bias;         // one for each row of the matrix, or null
    const float* residual;     // (n_rows, part_rows), added to the product, or null
    float* out;                // (n_rows, part_rows)
    int n_rows;
    int n_in;
    Epilogue epilogue;
    bool gated;     // the matrix has gate, then up rows
    int part_rows;  // rows of the matrix, or of gate
    float scale;    // of the product and the bias
    float softcap;  // of kSoftcap
    SharedPlan shared;

    // Of row i of the product: its row of x, and of out.
    __device__ int64_t x_row(int i) const { return i; }
    __device__ int64_t out_row(int i) const { return i; }
};

}  // namespace soliton::cuda
