// A norm of a row, whichever it is. Knows no op.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/kernels.h"
#include "ops.h"

namespace soliton {

// out (dim,) = norm(row); out may be the row.
inline void norm_row(const Norm& norm, const float* row, int64_t dim, float* out) {
    if (norm.weight == nullptr) {
        std::copy_n(row, dim, out);
    } else if (norm.is_centered || norm.bias != nullptr) {
        cpu_kernels().layer_norm_row(row, norm, dim, out);
    } else {
        cpu_kernels().norm_row(row, norm.weight, norm.eps, dim, out);
    }
}

}  // namespace soliton
