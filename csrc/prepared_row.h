// How a row of x is prepared for products with matrices of several layouts. Knows no op.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cpu/linear.h"
#include "layout.h"
#include "ops.h"

namespace soliton {

// A prepared row: its codes if a matrix reads codes, then floats if a matrix reads floats.
struct PreparedRow {
    int64_t code_bytes = 0;
    int64_t float_bytes = 0;

    explicit PreparedRow(std::span<const Matrix> matrices) {
        for (const Matrix& matrix : matrices) {
            if (is_quantized(matrix.layout)) {
                code_bytes = std::max(code_bytes, code_row_bytes(matrix.n_in));
            } else {
                float_bytes = std::max(float_bytes, float_row_bytes(matrix.n_in));
            }
        }
    }

    bool has_codes() const { return code_bytes > 0; }
    bool has_floats() const { return float_bytes > 0; }
    int64_t n_bytes() const { return code_bytes + float_bytes; }
    float* floats(std::byte* row) const { return reinterpret_cast<float*>(row + code_bytes); }
};

}  // namespace soliton
