// Which thread multiplies which rows by which panels, and how the rows are prepared. Compiled for
// the baseline; the arithmetic is in cpu/linear.cpp, cpu/rms_norm.cpp and cpu/quantize_row.cpp.
//
// Every thread prepares few rows for itself, which is faster than waiting for the shares of others.
// Many rows are prepared in a separate region. The results are the same, because a prepared row
// depends on that row alone. The sections of a matrix share one preparation and one region.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cpu/kernels.h"
#include "fetcher.h"
#include "norm.h"
#include "ops.h"
#include "pool.h"
#include "prepared_row.h"

namespace soliton {
namespace {

constexpr int64_t kFewRows = 16;
// Several chunks per thread, so that the others take over the rest of one that is delayed or
// slower.
constexpr int64_t kMostChunksPerThread = 8;
// A processor notices only after some lines that memory is read in sequence. Panels of codes that
// are shorter than this are read from several places of a thread's share at once, so that each of
// these streams is long.
constexpr int64_t kShortPanelBytes = 24 * 1024;

// Some units of a section: see MultiplyArgs.
struct Units {
    int64_t begin;
    int64_t end;
    int64_t pitch = 0;
    int64_t last = 0;
};

std::span<const Matrix> sections_of(const Stack& matrix) {
    return {matrix.sections, static_cast<size_t>(matrix.n_sections)};
}

// The rows of the sections before section `index`.
int64_t rows_before(const Stack& matrix, int64_t index) {
    int64_t n_out = 0;
    for (int64_t i = 0; i < index; ++i) {
        n_out += matrix.sections[i].n_out;
    }
    return n_out;
}

int64_t width_of(const Stack& matrix) {
    return rows_before(matrix, matrix.n_sections);
}

// A product with all sections of a matrix.
struct Product {
    const Stack& matrix;
    const std::byte* x;  // rows, prepared if need be
    int64_t row_bytes;   // from one row of x to the next
    int64_t floats_at;   // bytes from the begin of a row to its floats
    int64_t n_rows;
    const float* bias;  // of all sections, as out is
    float* out;
    int64_t out_pitch;  // floats from one row of out to the next
    Epilogue epilogue;
    float scale;
    float softcap;
    Xielu xielu;
    const float* residual;  // added to out, with rows like it, or null

    // Whether gate and up are two sections: they are in different layouts.
    bool is_apart() const { return is_gated(epilogue) && matrix.n_sections > 1; }

    // Parts whose panels take turns.
    int64_t n_parts() const { return is_gated(epilogue) && !is_apart() ? 2 : 1; }

    // The sections that are shared out each by itself: up goes with gate.
    std::span<const Matrix> shared_sections() const {
        return sections_of(matrix).first(is_apart() ? 1 : matrix.n_sections);
    }

    // Where some units of a section lie.
    Reading reading(int64_t index, const Units& units) const {
        const Matrix& section = matrix.sections[index];
        const int64_t unit_bytes = n_parts() * panel_bytes(section.layout, section.n_in);
        return {.begin = static_cast<const std::byte*>(section.panels) + units.begin * unit_bytes,
                .n_places = units.pitch == 0 ? 1 : kPanelsAtOnce,
                .pitch = units.pitch * unit_bytes,
                .n_bytes = (units.end - units.begin) * unit_bytes};
    }

    // Some units of a section, and of up if the section is gate.
    void multiply(int64_t index, const Units& units) const {
        const Finish alone = n_parts() == 2 ? Finish::kGateAndUp : Finish::kStore;
        MultiplyArgs chunk = args(index, units, alone);
        if (is_apart()) {
            chunk.epilogue = Epilogue::kNone;  // it follows when there are both
        }
        cpu_kernels().multiply_units(chunk);
        if (is_apart()) {
            cpu_kernels().multiply_units(args(index + 1, units, Finish::kUp));
        }
        if (residual != nullptr) {
            add_residual(chunk, units.begin, units.end);
            for (int64_t i = 1; i < kPanelsAtOnce && units.pitch != 0; ++i) {
                const int64_t further = i * units.pitch;
                add_residual(chunk, std::min(units.begin + further, units.last),
                             std::min(units.end + further, units.last));
            }
        }
    }

  private:
    MultiplyArgs args(int64_t index, const Units& units, Finish finish) const {
        const Matrix& section = matrix.sections[index];
        const int64_t column = rows_before(matrix, index);
        return {
            .matrix = section,
            .x = is_quantized(section.layout) ? x : x + floats_at,
            .row_bytes = row_bytes,
            .n_rows = n_rows,
            .bias = bias == nullptr ? nullptr : bias + column,
            .out = finish == Finish::kUp ? out : out + column,
            .out_pitch = out_pitch,
            .finish = finish,
            .epilogue = epilogue,
            .scale = scale,
            .softcap = softcap,
            .xielu = xielu,
            .begin_unit = units.begin,
            .end_unit = units.end,
            .stream_pitch = units.pitch,
            .last_unit = units.last,
        };
    }

    // Adds the residual to some of what a chunk has written.
    void add_residual(const MultiplyArgs& chunk, int64_t begin_unit, int64_t end_unit) const {
        const int64_t begin = begin_unit * kPanelRows;
        const int64_t end = std::min(end_unit * kPanelRows, chunk.matrix.n_out);
        const float* added = residual + (chunk.out - out);
        for (int64_t row = 0; row < n_rows; ++row) {
            for (int64_t i = row * out_pitch + begin; i < row * out_pitch + end; ++i) {
                chunk.out[i] = added[i] + chunk.out[i];
            }
        }
    }
};

// How the units of a matrix are cut into chunks. Of every section, each thread has as many units as
// the others, or as many bundles of panels that are multiplied at once, give or take one. Part of a
// bundle takes as long as all of it, or longer, so chunks begin where bundles begin.
class Cut {
  public:
    Cut(const Product& product, int64_t n_threads) : n_threads_(n_threads) {
        const int64_t n_parts = product.n_parts();
        const std::span<const Matrix> sections = product.shared_sections();
        const int64_t most = kMostChunksPerThread / std::ssize(sections);
        for (const Matrix& matrix : sections) {
            const bool has_few_rows = product.n_rows <= kFewRows;
            const bool in_bundles = is_quantized(matrix.layout) && has_few_rows;
            Section& section = sections_[n_sections_++];
            section.n_units = panels_for(matrix.n_out / n_parts);
            section.in_streams = in_bundles && product.n_rows == 1 && !product.is_apart() &&
                                 !matrix.is_woven &&
                                 panel_bytes(matrix.layout, matrix.n_in) < kShortPanelBytes;
            section.at_once = section.in_streams ? kPanelsAtOnce
                              : in_bundles       ? kPanelsAtOnce / n_parts
                              : has_few_rows     ? 1
                                                 : kTilePanels / n_parts;
            const int64_t each = section.at_once * n_threads;
            section.per_thread = std::clamp((section.n_units + each - 1) / each, int64_t{1}, most);
            per_thread_ += section.per_thread;
        }
    }

    int64_t n_chunks() const { return per_thread_ * n_threads_; }

    void multiply(const Product& product, int64_t i) const {
        const int64_t thread = i / per_thread_;
        int64_t at = i % per_thread_;
        int64_t index = 0;
        while (at >= sections_[index].per_thread) {
            at -= sections_[index++].per_thread;
        }
        product.multiply(index, units(sections_[index], thread, at));
    }

    // Gives `readings` what a thread reads.
    void expect(const Product& product, int64_t thread, Readings& readings) const {
        for (int64_t index = 0; index < n_sections_; ++index) {
            const Section& section = sections_[index];
            for (int64_t at = 0; at < section.per_thread && !readings.is_over(); ++at) {
                readings.add(product.reading(index, units(section, thread, at)));
            }
        }
    }

  private:
    struct Section {
        int64_t n_units;
        bool in_streams;
        int64_t at_once;     // a power of two
        int64_t per_thread;  // chunks
    };

    // The first unit of a thread's chunk `at`. Where its last chunk ends, the next thread's begins.
    int64_t begin(const Section& section, int64_t thread, int64_t at) const {
        const int64_t n_bundles = (section.n_units + section.at_once - 1) / section.at_once;
        const int64_t first = n_bundles * thread / n_threads_;
        const int64_t last = n_bundles * (thread + 1) / n_threads_;
        const int64_t bundle = first + (last - first) * at / section.per_thread;
        return std::min(bundle * section.at_once, section.n_units);
    }

    // What a thread's chunk `at` multiplies.
    Units units(const Section& section, int64_t thread, int64_t at) const {
        return section.in_streams ? streams(section, thread, at) : neighbours(section, thread, at);
    }

    Units neighbours(const Section& section, int64_t thread, int64_t at) const {
        return {.begin = begin(section, thread, at), .end = begin(section, thread, at + 1)};
    }

    // Units from each quarter of a thread's share. The next chunk goes on in every quarter.
    Units streams(const Section& section, int64_t thread, int64_t at) const {
        const int64_t first = section.n_units * thread / n_threads_;
        const int64_t last = section.n_units * (thread + 1) / n_threads_;
        const int64_t pitch = (last - first + kPanelsAtOnce - 1) / kPanelsAtOnce;
        return {.begin = first + pitch * at / section.per_thread,
                .end = first + pitch * (at + 1) / section.per_thread,
                .pitch = pitch,
                .last = last};
    }

    std::array<Section, kMostSections> sections_ = {};
    int64_t n_sections_ = 0;
    int64_t n_threads_;
    int64_t per_thread_ = 0;  // chunks of all sections
};

// The product of the rows in product.x. Calls `before_chunk()` before each chunk.
template <typename BeforeChunk>
void multiply(const Product& product, Worker& worker, BeforeChunk before_chunk) {
    const Cut cut(product, worker.count);
    worker.share(cut.n_chunks(), [&](int64_t i) {
        before_chunk();
        cut.multiply(product, i);
    });
}

// The product of rows that `prepare(row, target)` writes.
template <typename Prepare>
void multiply_prepared(Product product, const PreparedRow& form, std::byte* shared, Worker& worker,
                       Prepare prepare) {
    product.row_bytes = form.n_bytes();
    product.floats_at = form.code_bytes;
    if (product.n_rows > kFewRows) {
        product.x = shared;
        worker.share(product.n_rows,
                     [&](int64_t row) { prepare(row, shared + row * form.n_bytes()); });
        multiply(product, worker, [] {});
        return;
    }
    // Worker::scratch holds one row of floats, then the prepared rows.
    std::byte* rows = worker.scratch + float_row_bytes(product.matrix.sections[0].n_in);
    product.x = rows;
    bool are_ready = false;
    multiply(product, worker, [&] {
        for (int64_t row = 0; row < product.n_rows && !are_ready; ++row) {
            prepare(row, rows + row * form.n_bytes());
        }
        are_ready = true;
    });
}

// Without its rows, which are prepared first.
Product product_of(const NormLinearArgs& args, const StepState& state) {
    return {
        .matrix = args.matrix,
        .x = nullptr,
        .row_bytes = 0,
        .floats_at = 0,
        .n_rows = state.n_rows,
        .bias = args.bias,
        .out = args.out,
        .out_pitch = width_of(args.matrix) / (is_gated(args.epilogue) ? 2 : 1),
        .epilogue = args.epilogue,
        .scale = args.scale,
        .softcap = args.softcap,
        .xielu = args.xielu,
        .residual = nullptr,
    };
}

Product product_of(const LinearArgs& args, const StepState& state) {
    return {
        .matrix = args.matrix,
        .x = reinterpret_cast<const std::byte*>(args.x),
        .row_bytes = args.matrix.sections[0].n_in * int64_t{sizeof(float)},
        .floats_at = 0,
        .n_rows = state.n_rows,
        .bias = args.bias,
        .out = args.out,
        .out_pitch = width_of(args.matrix),
        .epilogue = Epilogue::kNone,
        .scale = args.scale,
        .softcap = 0.0f,
        .xielu = {},
        .residual = args.residual,
    };
}

}  // namespace

int64_t linear_scratch_bytes(const Stack& matrix, int64_t max_rows) {
    return max_rows * PreparedRow(sections_of(matrix)).n_bytes();
}

int64_t linear_worker_bytes(const Stack& matrix) {
    return float_row_bytes(matrix.sections[0].n_in) +
           kFewRows * PreparedRow(sections_of(matrix)).n_bytes();
}

void norm_linear(const NormLinearArgs& args, const StepState& state, Worker& worker) {
    const int64_t dim = args.matrix.sections[0].n_in;
    const PreparedRow form(sections_of(args.matrix));
    multiply_prepared(product_of(args, state), form, static_cast<std::byte*>(args.scratch), worker,
                      [&](int64_t row, std::byte* target) {
                          float* normed = form.has_floats()
                                              ? form.floats(target)
                                              : reinterpret_cast<float*>(worker.scratch);
                          norm_row(args.norm, args.residual + row * dim, dim, normed);
                          if (form.has_codes()) {
                              cpu_kernels().quantize_row(normed, dim, target);
                          }
                      });
}

void linear(const LinearArgs& args, const StepState& state, Worker& worker) {
    const int64_t dim = args.matrix.sections[0].n_in;
    const PreparedRow form(sections_of(args.matrix));
    const Product product = product_of(args, state);
    if (!form.has_codes()) {
        multiply(product, worker, [] {});
        return;
    }
    multiply_prepared(product, form, static_cast<std::byte*>(args.scratch), worker,
                      [&](int64_t row, std::byte* target) {
                          const float* x = args.x + row * dim;
                          cpu_kernels().quantize_row(x, dim, target);
                          if (form.has_floats()) {
                              std::copy_n(x, dim, form.floats(target));
                          }
                      });
}

void expect(const NormLinearArgs& args, const StepState& state, const Worker& worker,
            Readings& readings) {
    const Product product = product_of(args, state);
    Cut(product, worker.count).expect(product, worker.index, readings);
}

void expect(const LinearArgs& args, const StepState& state, const Worker& worker,
            Readings& readings) {
    const Product product = product_of(args, state);
    Cut(product, worker.count).expect(product, worker.index, readings);
}

}  // namespace soliton
