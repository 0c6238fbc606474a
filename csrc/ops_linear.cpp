// Who multiplies which rows by which panels, and what is done to the rows before. Compiled for the
// baseline; the arithmetic is in cpu/linear.cpp, cpu/rms_norm.cpp and cpu/quantize_row.cpp.
//
// Few rows: every thread prepares all of them for itself, which takes less time than to wait for
// another that prepares its share. Many rows: each thread its share, and a barrier. The results are
// the same, since a row's depends on that row alone.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/kernels.h"
#include "ops.h"
#include "pool.h"

namespace soliton {
namespace {

constexpr int64_t kFewRows = 16;
// Work on many rows is claimed in so many pieces per thread, so that one that is held up holds up
// nobody.
constexpr int64_t kPiecesPerThread = 8;

struct Share {
    int64_t begin;
    int64_t end;
};

Share share_of(int64_t n, const Worker& worker) {
    return {n * worker.index / worker.count, n * (worker.index + 1) / worker.count};
}

// From one prepared row to the next.
int64_t row_bytes(const Matrix& matrix) {
    return is_quantized(matrix.layout) ? code_row_bytes(matrix.n_in) : float_row_bytes(matrix.n_in);
}

int64_t largest_row_bytes(int64_t n_in) {
    return std::max(code_row_bytes(n_in), float_row_bytes(n_in));
}

// Worker::scratch: one row of floats, then the prepared rows while they are few.
std::byte* own_rows(const Matrix& matrix, const Worker& worker) {
    return worker.scratch + float_row_bytes(matrix.n_in);
}

// Calls `prepare(row, target)` for the rows, and returns where they lie, row_bytes apart.
template <typename Prepare>
const std::byte* prepared_rows(int64_t n_rows, const Matrix& matrix, void* shared, Worker& worker,
                               Prepare prepare) {
    const bool few = n_rows <= kFewRows;
    std::byte* rows = few ? own_rows(matrix, worker) : static_cast<std::byte*>(shared);
    const Share share = few ? Share{0, n_rows} : share_of(n_rows, worker);
    for (int64_t row = share.begin; row < share.end; ++row) {
        prepare(row, rows + row * row_bytes(matrix));
    }
    if (!few) {
        worker.barrier();
    }
    return rows;
}

void multiply(MultiplyArgs args, Worker& worker) {
    const auto take = [&args](Share units) {
        if (units.begin < units.end) {
            args.begin_unit = units.begin;
            args.end_unit = units.end;
            cpu_kernels().multiply_units(args);
        }
    };
    const int64_t parts = args.epilogue == Epilogue::kSiluGate ? 2 : 1;
    const int64_t n_units = panels_for(args.matrix.n_out / parts);
    if (args.n_rows <= kFewRows) {
        // The same panels in every pass, one after the other: they may still be in a cache near.
        take(share_of(n_units, worker));
        return;
    }
    const int64_t pieces = std::min(n_units, worker.count * kPiecesPerThread);
    for (int64_t i = worker.claim(); i < pieces; i = worker.claim()) {
        take({n_units * i / pieces, n_units * (i + 1) / pieces});
    }
}

}  // namespace

int64_t linear_scratch_bytes(int64_t n_in, int64_t max_rows) {
    return max_rows * largest_row_bytes(n_in);
}

int64_t linear_worker_bytes(int64_t n_in) {
    return float_row_bytes(n_in) + kFewRows * largest_row_bytes(n_in);
}

void norm_linear(const NormLinearArgs& args, const StepState& state, Worker& worker) {
    const int64_t dim = args.matrix.n_in;
    const int64_t n_rows =
        args.last_rows == 0 ? state.n_rows : std::min(args.last_rows, state.n_rows);
    const int64_t skipped = (state.n_rows - n_rows) * dim;
    const bool few = n_rows <= kFewRows;
    const bool kept = args.residual_out != nullptr && args.residual_out != args.residual_in;
    const auto prepare = [&](int64_t row, std::byte* target) {
        const int64_t at = skipped + row * dim;
        const bool mine = kept && (!few || row % worker.count == worker.index);
        const bool quantized = is_quantized(args.matrix.layout);
        float* normed = reinterpret_cast<float*>(quantized ? worker.scratch : target);
        cpu_kernels().norm_row(args.residual_in + at,
                               args.branch == nullptr ? nullptr : args.branch + at, args.norm,
                               args.eps, dim, mine ? args.residual_out + at : nullptr, normed);
        if (quantized) {
            cpu_kernels().quantize_row(normed, dim, target);
        }
    };
    multiply(
        {
            .matrix = args.matrix,
            .x = prepared_rows(n_rows, args.matrix, args.scratch, worker, prepare),
            .row_bytes = row_bytes(args.matrix),
            .n_rows = n_rows,
            .bias = args.bias,
            .out = args.out,
            .epilogue = args.epilogue,
            .begin_unit = 0,
            .end_unit = 0,
        },
        worker);
}

void linear(const LinearArgs& args, const StepState& state, Worker& worker) {
    const int64_t dim = args.matrix.n_in;
    const std::byte* x = reinterpret_cast<const std::byte*>(args.x);
    int64_t stride = dim * int64_t{sizeof(float)};
    if (is_quantized(args.matrix.layout)) {
        stride = row_bytes(args.matrix);
        x = prepared_rows(state.n_rows, args.matrix, args.scratch, worker,
                          [&](int64_t row, std::byte* target) {
                              cpu_kernels().quantize_row(args.x + row * dim, dim, target);
                          });
    }
    multiply(
        {
            .matrix = args.matrix,
            .x = x,
            .row_bytes = stride,
            .n_rows = state.n_rows,
            .bias = args.bias,
            .out = args.out,
            .epilogue = Epilogue::kNone,
            .begin_unit = 0,
            .end_unit = 0,
        },
        worker);
}

}  // namespace soliton
