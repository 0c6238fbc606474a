// The arguments of a product's kernel. Owns no code.
#pragma once

#include <cstddef>

#include "linear_shape.h"

namespace soliton::cuda {

struct LinearParams {
    const float* x;       // (n_rows, n_in)
    const float* branch;  // (n_rows, n_in), added to x, or null
    float* x_out;         // (n_rows, n_in), their sum, or null
    const float* norm;    // (n_in,): the norm's weight; null: x is not normalised
    float eps;
    const std::byte* weights;  // as layout.h describes
    const float* bias;         // one for each row of the matrix, or null
    float* out;                // (n_rows, part_rows)
    int n_rows;
    int n_in;
    bool gated;     // the matrix has gate, then up rows; out is silu(gate) * up
    int part_rows;  // rows of the matrix, or of gate
    SharedPlan shared;
};

}  // namespace soliton::cuda
