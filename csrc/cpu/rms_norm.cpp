// RMSNorm and LayerNorm of a row. Compiled once per instruction set (see kernels.h), with the same
// result in all of them: column k is always added in lane k % 16.
#include "isa/lanes.h"
#include "kernels.h"

namespace soliton::SOLITON_ISA {
namespace {

// Up to 16 columns from k on, then zeros.
SOLITON_INLINE Floats load_columns(const float* row, int64_t k, int64_t n) {
    return n == kLanes ? load(row + k) : load_first(row + k, n);
}

SOLITON_INLINE int64_t columns_from(int64_t k, int64_t dim) {
    return dim - k < kLanes ? dim - k : kLanes;
}

float sum_of(const float* row, int64_t dim) {
    Floats total = broadcast(0.0f);
    for (int64_t k = 0; k < dim; k += kLanes) {
        total = add(total, load_columns(row, k, columns_from(k, dim)));
    }
    return sum(total);
}

// The sum of the squares of row - mean.
float sum_of_squares(const float* row, float mean, int64_t dim) {
    Floats total = broadcast(0.0f);
    for (int64_t k = 0; k < dim; k += kLanes) {
        const int64_t n = columns_from(k, dim);
        Floats x = subtract(load_columns(row, k, n), broadcast(mean));
        if (n < kLanes) {  // columns that are not there add nothing
            float columns[kLanes];
            store(columns, x);
            x = load_first(columns, n);
        }
        total = multiply_add(x, x, total);
    }
    return sum(total);
}

}  // namespace

void norm_row(const float* row, const float* weight, float eps, int64_t dim, float* out) {
    // Four chains; in a single one, each addition would wait for the one before.
    constexpr int kChains = 4;
    Floats squares[kChains] = {broadcast(0.0f), broadcast(0.0f), broadcast(0.0f), broadcast(0.0f)};
    for (int64_t k = 0; k < dim; k += kChains * kLanes) {
        for (int i = 0; i < kChains; ++i) {
            const int64_t column = k + i * kLanes;
            const int64_t n = columns_from(column, dim);
            if (n <= 0) {
                break;
            }
            const Floats x = load_columns(row, column, n);
            squares[i] = multiply_add(x, x, squares[i]);
        }
    }
    const float square = sum(add(add(squares[0], squares[1]), add(squares[2], squares[3])));
    const Floats inverse =
        broadcast(1.0f / __builtin_sqrtf(square / static_cast<float>(dim) + eps));
    for (int64_t k = 0; k < dim; k += kLanes) {
        const int64_t n = columns_from(k, dim);
        const Floats x = multiply(load_columns(row, k, n), inverse);
        if (n == kLanes) {
            store(out + k, multiply(x, load(weight + k)));
        } else {
            store_first(out + k, multiply(x, load_first(weight + k, n)), n);
        }
    }
}

void layer_norm_row(const float* row, const Norm& norm, int64_t dim, float* out) {
    const float count = static_cast<float>(dim);
    const float mean = norm.is_centered ? sum_of(row, dim) / count : 0.0f;
    const float square = sum_of_squares(row, mean, dim) / count;
    const Floats inverse = broadcast(1.0f / __builtin_sqrtf(square + norm.eps));
    for (int64_t k = 0; k < dim; k += kLanes) {
        const int64_t n = columns_from(k, dim);
        const Floats x = subtract(load_columns(row, k, n), broadcast(mean));
        Floats y = multiply(multiply(x, inverse), load_columns(norm.weight, k, n));
        if (norm.bias != nullptr) {
            y = add(y, load_columns(norm.bias, k, n));
        }
        n == kLanes ? store(out + k, y) : store_first(out + k, y, n);
    }
}

}  // namespace soliton::SOLITON_ISA
