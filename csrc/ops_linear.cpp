// Which thread multiplies which rows by which panels, and how the rows are prepared. Compiled for
// the baseline; the arithmetic is in cpu/linear.cpp, cpu/rms_norm.cpp and cpu/quantize_row.cpp.
//
// Every thread prepares few rows for itself, which is faster than waiting for the shares of others.
// Many rows are prepared in a separate region. The results are the same, because a prepared row
// depends on that row alone.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/kernels.h"
#include "ops.h"
#include "pool.h"

namespace soliton {
namespace {

constexpr int64_t kFewRows = 16;
// Several chunks per thread, so that the others take over the rest of one that is delayed or
// slower.
constexpr int64_t kMostChunksPerThread = 8;

// The distance from one prepared row to the next.
int64_t row_bytes(const Matrix& matrix) {
    return is_quantized(matrix.layout) ? code_row_bytes(matrix.n_in) : float_row_bytes(matrix.n_in);
}

int64_t largest_row_bytes(int64_t n_in) {
    return std::max(code_row_bytes(n_in), float_row_bytes(n_in));
}

// Worker::scratch holds one row of floats, then the prepared rows if they are few.
std::byte* own_rows(const Matrix& matrix, const Worker& worker) {
    return worker.scratch + float_row_bytes(matrix.n_in);
}

// How the units of a matrix are cut into chunks. Each thread has as many units as the others;
// within its share, chunks begin where panels begin that are multiplied at once.
class Cut {
  public:
    Cut(const MultiplyArgs& args, int64_t n_threads) {
        const int64_t parts = args.epilogue == Epilogue::kSiluGate ? 2 : 1;
        n_units_ = panels_for(args.matrix.n_out / parts);
        at_once_ =
            is_quantized(args.matrix.layout) && args.n_rows <= kFewRows ? kPanelsAtOnce / parts : 1;
        per_thread_ =
            std::clamp(n_units_ / (at_once_ * n_threads), int64_t{1}, kMostChunksPerThread);
        n_chunks_ = per_thread_ * n_threads;
    }

    int64_t n_chunks() const { return n_chunks_; }

    // The first unit of chunk i.
    int64_t begin(int64_t i) const {
        const int64_t even = n_units_ * i / n_chunks_;
        return i % per_thread_ == 0 ? even : (even + at_once_ / 2) / at_once_ * at_once_;
    }

  private:
    int64_t n_units_;
    int64_t at_once_;
    int64_t per_thread_;
    int64_t n_chunks_;
};

// The product of the prepared rows in args.x. Calls `before_chunk(i)` before each chunk.
template <typename BeforeChunk>
void multiply(const MultiplyArgs& args, Worker& worker, BeforeChunk before_chunk) {
    const Cut cut(args, worker.count);
    worker.share(cut.n_chunks(), [&](int64_t i) {
        before_chunk(i);
        MultiplyArgs part = args;
        part.begin_unit = cut.begin(i);
        part.end_unit = cut.begin(i + 1);
        cpu_kernels().multiply_units(part);
    });
}

// The product of rows that `prepare(row, target, is_first)` writes. At least one of the calls for a
// row has is_first, and two calls with is_first never overlap.
template <typename Prepare>
void multiply_prepared(MultiplyArgs args, std::byte* shared, Worker& worker, Prepare prepare) {
    args.row_bytes = row_bytes(args.matrix);
    if (args.n_rows > kFewRows) {
        args.x = shared;
        worker.share(args.n_rows,
                     [&](int64_t row) { prepare(row, shared + row * args.row_bytes, true); });
        multiply(args, worker, [](int64_t) {});
        return;
    }
    std::byte* rows = own_rows(args.matrix, worker);
    args.x = rows;
    bool are_ready = false;
    multiply(args, worker, [&](int64_t i) {
        for (int64_t row = 0; row < args.n_rows && (i == 0 || !are_ready); ++row) {
            prepare(row, rows + row * args.row_bytes, i == 0);
        }
        are_ready = true;
    });
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
    const bool kept = args.residual_out != nullptr && args.residual_out != args.residual_in;
    const bool quantized = is_quantized(args.matrix.layout);
    const MultiplyArgs product = {
        .matrix = args.matrix,
        .x = nullptr,
        .row_bytes = 0,
        .n_rows = state.n_rows,
        .bias = args.bias,
        .out = args.out,
        .epilogue = args.epilogue,
        .begin_unit = 0,
        .end_unit = 0,
    };
    multiply_prepared(
        product, static_cast<std::byte*>(args.scratch), worker,
        [&](int64_t row, std::byte* target, bool is_first) {
            const int64_t at = row * dim;
            float* normed = reinterpret_cast<float*>(quantized ? worker.scratch : target);
            cpu_kernels().norm_row(args.residual_in + at,
                                   args.branch == nullptr ? nullptr : args.branch + at, args.norm,
                                   args.eps, dim,
                                   kept && is_first ? args.residual_out + at : nullptr, normed);
            if (quantized) {
                cpu_kernels().quantize_row(normed, dim, target);
            }
        });
}

void linear(const LinearArgs& args, const StepState& state, Worker& worker) {
    const int64_t dim = args.matrix.n_in;
    const MultiplyArgs product = {
        .matrix = args.matrix,
        .x = reinterpret_cast<const std::byte*>(args.x),
        .row_bytes = dim * int64_t{sizeof(float)},
        .n_rows = state.n_rows,
        .bias = args.bias,
        .out = args.out,
        .epilogue = Epilogue::kNone,
        .begin_unit = 0,
        .end_unit = 0,
    };
    if (is_quantized(args.matrix.layout)) {
        multiply_prepared(product, static_cast<std::byte*>(args.scratch), worker,
                          [&](int64_t row, std::byte* target, bool) {
                              cpu_kernels().quantize_row(args.x + row * dim, dim, target);
                          });
    } else {
        multiply(product, worker, [](int64_t) {});
    }
}

}  // namespace soliton
