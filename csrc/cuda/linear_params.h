// The arguments of a product's kernel. Owns no code.
#pragma once

#include <cstddef>

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
    bool gated;          // the matrix has gate, then up rows; out is silu(gate) * up
    int part_rows;       // rows of the matrix, or of gate
    int prefetch_bytes;  // of weights, into L2 while the block waits
    SharedPlan shared;
};

}  // namespace soliton::cuda
