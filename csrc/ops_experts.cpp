// A mixture of experts: which thread multiplies which rows by which experts. Compiled for the
// baseline; routing.cpp makes the choice, and the arithmetic is in cpu/linear.cpp.
//
// The units of all experts that have rows follow each other in one range, which is cut into chunks:
// first gate and up, then, after one barrier, down by its output columns, so that the chunk that
// has all parts of an output adds them up. A row's parts are added in the order of its choices.
// So the results depend neither on the threads nor on the other rows of the pass.
//
// Every thread chooses and prepares few rows for itself, many are shared out in regions of their
// own.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "cpu/kernels.h"
#include "experts_memory.h"
#include "norm.h"
#include "ops.h"
#include "pool.h"
#include "prepared_row.h"
#include "routing.h"

namespace soliton {
namespace {

constexpr int64_t kUpChunksPerThread = 8;

// Slots of a bank that go through one of its experts.
struct Slots {
    int64_t begin;
    int64_t end;
};

// One pass, as one thread sees it.
class Pass {
  public:
    Pass(const ExpertsArgs& args, const StepState& state, Worker& worker)
        : args_(args), worker_(worker), n_rows_(state.n_rows) {
        auto* shared = static_cast<std::byte*>(args.scratch);
        const RowPlaces& rows = is_few() ? own_.few : all_.many;
        std::byte* base = is_few() ? worker.scratch : shared;
        x_ = base + rows.x;
        choices_ = {reinterpret_cast<Choice*>(base + rows.choices), static_cast<size_t>(n_pairs())};
        codes_ = base + rows.codes;
        shared_codes_ = base + rows.shared_codes;
        inner_ = reinterpret_cast<float*>(shared + all_.inner);
        shared_inner_ = reinterpret_cast<float*>(shared + all_.shared_inner);
    }

    void run() {
        if (!is_few()) {
            worker_.share(n_rows_, [&](int64_t row) {
                prepare(row);
                choose(row);
            });
        }
        const int64_t n_up = n_up_chunks();
        worker_.share(n_up, [&](int64_t i) {
            group();
            begin_up_chunk();
            multiply_gate_up(i, n_up);
        });
        if (!is_few()) {
            worker_.share(n_pairs() + n_shared(), [&](int64_t i) { prepare_inner(i); });
        }
        const int64_t units = panels_for(args_.dim);
        const int64_t width = down_width(units);
        worker_.share((units + width - 1) / width, [&](int64_t i) {
            group();
            begin_down_chunk();
            multiply_down(i * width, std::min(units, (i + 1) * width));
        });
    }

  private:
    bool is_few() const { return n_rows_ <= kFewRows; }
    int64_t n_pairs() const { return n_rows_ * args_.routing.n_used; }
    int64_t n_shared() const { return args_.shared.hidden ? n_rows_ : 0; }

    int64_t n_up_chunks() const {
        const int64_t few = worker_.count * kUpChunksPerThread;
        return is_few() ? few : std::max(few, 2 * std::min(args_.routing.n_experts, n_pairs()));
    }

    // A multiple of the panels that are multiplied at once.
    int64_t down_width(int64_t units) const {
        const int64_t each = units / (2 * worker_.count) / kPanelsAtOnce * kPanelsAtOnce;
        return is_few() ? std::clamp(each, kPanelsAtOnce, kFewRowsPanels) : kManyRowsPanels;
    }

    // A row of x.
    void prepare(int64_t row) {
        auto* normed = reinterpret_cast<float*>(worker_.scratch + own_.normed);
        norm_row(args_.norm, args_.x + row * args_.dim, args_.dim, normed);
        std::byte* target = x_ + row * form_.n_bytes();
        if (form_.has_codes()) {
            cpu_kernels().quantize_row(normed, args_.dim, target);
        }
        if (form_.has_floats()) {
            std::copy_n(normed, args_.dim, form_.floats(target));
        }
    }

    void choose(int64_t row) {
        const auto n_used = static_cast<size_t>(args_.routing.n_used);
        choose_experts(args_.routing, args_.router + row * args_.router_width,
                       {reinterpret_cast<float*>(worker_.scratch + own_.routing),
                        static_cast<size_t>(routing_room(args_.routing))},
                       choices_.subspan(static_cast<size_t>(row) * n_used, n_used));
    }

    // What every chunk needs to know, of the router's numbers alone.
    void group() {
        if (groups_) {
            return;
        }
        for (int64_t row = 0; row < n_rows_ && is_few(); ++row) {
            choose(row);
        }
        groups_.emplace(args_.routing, choices_,
                        reinterpret_cast<int32_t*>(worker_.scratch + own_.groups));
    }

    void begin_up_chunk() {
        for (int64_t row = 0; row < n_rows_ && is_few() && !has_x_; ++row) {
            prepare(row);
        }
        has_x_ = true;
    }

    // The codes of inner row i: those of the pairs in their slots, then those of the shared expert.
    void prepare_inner(int64_t i) {
        const bool is_shared = i >= n_pairs();
        const ExpertBank& bank = is_shared ? args_.shared : args_.routed;
        const PreparedRow form = form_of_inner(bank);
        if (form.has_codes()) {
            const int64_t slot = is_shared ? i - n_pairs() : i;
            const float* inner = (is_shared ? shared_inner_ : inner_) + slot * bank.hidden;
            std::byte* codes = (is_shared ? shared_codes_ : codes_) + slot * form.code_bytes;
            cpu_kernels().quantize_row(inner, bank.hidden, codes);
        }
    }

    void begin_down_chunk() {
        for (int64_t i = 0; i < n_pairs() + n_shared() && is_few() && !has_inner_; ++i) {
            prepare_inner(i);
        }
        has_inner_ = true;
    }

    // Chunk i of n of the range of all units.
    void multiply_gate_up(int64_t i, int64_t n) {
        const std::span<const int32_t> used = groups_->used();
        const int64_t each = panels_for(args_.routed.hidden);
        const int64_t n_routed = std::ssize(used) * each;
        const int64_t n_units = n_routed + panels_for(args_.shared.hidden);
        const auto cut = [&](int64_t at) {
            return std::min(n_units, (n_units * at / n + 1) / 2 * 2);
        };
        int64_t at = cut(i);
        const int64_t end = i + 1 == n ? n_units : cut(i + 1);
        while (at < std::min(end, n_routed)) {
            const int64_t expert = used[static_cast<size_t>(at / each)];
            const int64_t first = at % each;
            const int64_t last = std::min(each, first + end - at);
            gate_up(args_.routed, expert, {groups_->begin(expert), groups_->end(expert)}, first,
                    last);
            at += last - first;
        }
        if (at < end) {
            gate_up(args_.shared, 0, {0, n_rows_}, at - n_routed, end - n_routed);
        }
    }

    // Units [first, last) of gate and up of one expert, for all of its rows.
    void gate_up(const ExpertBank& bank, int64_t expert, Slots slots, int64_t first, int64_t last) {
        const bool has_gates = is_gated(args_.epilogue);
        const bool is_apart = bank.up.n_out > 0;
        const int64_t n_inner = (has_gates ? 2 : 1) * bank.hidden;
        float* inner = &bank == &args_.shared ? shared_inner_ : inner_;
        const float* bias =
            bank.gate_up_bias == nullptr ? nullptr : bank.gate_up_bias + expert * n_inner;
        for (int64_t slot = slots.begin; slot < slots.end; slot += kMostGathered) {
            const int64_t n = std::min(kMostGathered, slots.end - slot);
            const std::byte* x = gathered(bank, slot, n);
            MultiplyArgs args = product(bank.gate, bank.gates[expert], x, n);
            args.bias = bias;
            args.out = inner + slot * bank.hidden;
            args.out_pitch = bank.hidden;
            args.begin_unit = first;
            args.end_unit = last;
            args.finish = has_gates && !is_apart ? Finish::kGateAndUp : Finish::kStore;
            args.epilogue = is_apart ? Epilogue::kNone : args_.epilogue;
            cpu_kernels().multiply_units(args);
            if (is_apart) {
                MultiplyArgs up = product(bank.up, bank.ups[expert], x, n);
                args.matrix = up.matrix;
                args.x = up.x;
                args.bias = bias == nullptr ? nullptr : bias + bank.hidden;
                args.finish = Finish::kUp;
                args.epilogue = args_.epilogue;
                cpu_kernels().multiply_units(args);
            }
        }
    }

    // A product of prepared rows of x.
    MultiplyArgs product(const Matrix& shape, const void* panels, const std::byte* x,
                         int64_t n_rows) const {
        MultiplyArgs args = {};
        args.matrix = shape;
        args.matrix.panels = panels;
        args.x = is_quantized(shape.layout) ? x : x + form_.code_bytes;
        args.row_bytes = form_.n_bytes();
        args.n_rows = n_rows;
        args.scale = 1.0f;
        return args;
    }

    // The rows of x in n slots from `slot` on, one after the other.
    const std::byte* gathered(const ExpertBank& bank, int64_t slot, int64_t n) const {
        const int64_t n_bytes = form_.n_bytes();
        const auto row_of = [&](int64_t at) {
            return &bank == &args_.shared ? at : groups_->pair(at) / args_.routing.n_used;
        };
        const int64_t first = row_of(slot);
        if (row_of(slot + n - 1) - first == n - 1) {
            return x_ + first * n_bytes;
        }
        std::byte* target = worker_.scratch + own_.gathered;
        for (int64_t i = 0; i < n; ++i) {
            std::memcpy(target + i * n_bytes, x_ + row_of(slot + i) * n_bytes,
                        static_cast<size_t>(n_bytes));
        }
        return target;
    }

    // Output columns of panels [first, last) of all rows.
    void multiply_down(int64_t first, int64_t last) {
        const int64_t pitch = (last - first) * kPanelRows;
        auto* products = reinterpret_cast<float*>(worker_.scratch + own_.products);
        for (const int32_t expert : groups_->used()) {
            down(args_.routed, expert, {groups_->begin(expert), groups_->end(expert)}, first, last,
                 products);
        }
        float* of_shared = products + n_pairs() * pitch;
        if (n_shared() > 0) {
            down(args_.shared, 0, {0, n_rows_}, first, last, of_shared);
        }
        const int64_t begin = first * kPanelRows;
        const int64_t n = std::min(args_.dim, last * kPanelRows) - begin;
        for (int64_t row = 0; row < n_rows_; ++row) {
            add_up(row, begin, n, products, of_shared, pitch);
        }
    }

    // Those of one expert, into the rows of its slots.
    void down(const ExpertBank& bank, int64_t expert, Slots slots, int64_t first, int64_t last,
              float* products) const {
        const bool is_shared = &bank == &args_.shared;
        const int64_t pitch = (last - first) * kPanelRows;
        const PreparedRow form = form_of_inner(bank);
        const float* inner = is_shared ? shared_inner_ : inner_;
        const auto* rows = form.has_codes() ? (is_shared ? shared_codes_ : codes_)
                                            : reinterpret_cast<const std::byte*>(inner);
        MultiplyArgs args = {};
        args.matrix = bank.down;
        args.matrix.panels = bank.downs[expert];
        args.row_bytes = form.has_codes() ? form.code_bytes : bank.hidden * int64_t{sizeof(float)};
        args.x = rows + slots.begin * args.row_bytes;
        args.n_rows = slots.end - slots.begin;
        args.bias = bank.down_bias == nullptr ? nullptr : bank.down_bias + expert * args_.dim;
        args.out = products + slots.begin * pitch - first * kPanelRows;
        args.out_pitch = pitch;
        args.scale = 1.0f;
        args.begin_unit = first;
        args.end_unit = last;
        cpu_kernels().multiply_units(args);
    }

    // n outputs of a row from column `begin` on.
    void add_up(int64_t row, int64_t begin, int64_t n, const float* products,
                const float* of_shared, int64_t pitch) const {
        float* out = args_.out + row * args_.dim + begin;
        const int64_t n_used = args_.routing.n_used;
        float* sums = reinterpret_cast<float*>(worker_.scratch + own_.normed);
        for (int64_t j = 0; j < n_used; ++j) {
            const int64_t pair = row * n_used + j;
            const float weight = choices_[static_cast<size_t>(pair)].weight;
            const float* part = products + groups_->slot(pair) * pitch;
            for (int64_t i = 0; i < n; ++i) {
                sums[i] = (j == 0 ? 0.0f : sums[i]) + weight * part[i];
            }
        }
        if (n_shared() > 0) {
            const float* gate = args_.router + row * args_.router_width + args_.routing.n_experts;
            const float weight = args_.has_shared_gate ? sigmoid(*gate) : 1.0f;
            const float* part = of_shared + row * pitch;
            for (int64_t i = 0; i < n; ++i) {
                sums[i] += weight * part[i];
            }
        }
        const float* residual =
            args_.residual == nullptr ? nullptr : args_.residual + row * args_.dim + begin;
        for (int64_t i = 0; i < n; ++i) {
            out[i] = (residual == nullptr ? 0.0f : residual[i]) + args_.scale * sums[i];
        }
    }

    const ExpertsArgs& args_;
    Worker& worker_;
    const int64_t n_rows_;
    const PreparedRow form_ = form_of_x(args_);
    const SharedPlaces all_ = SharedPlaces(args_);
    const WorkerPlaces own_ = WorkerPlaces(args_);
    std::byte* x_;
    std::span<Choice> choices_;
    std::byte* codes_;
    std::byte* shared_codes_;
    float* inner_;
    float* shared_inner_;
    std::optional<Groups> groups_;
    bool has_x_ = false;
    bool has_inner_ = false;
};

}  // namespace

int64_t experts_scratch_bytes(const ExpertsArgs& args) {
    return SharedPlaces(args).room.n_bytes();
}

int64_t experts_worker_bytes(const ExpertsArgs& args) {
    return WorkerPlaces(args).room.n_bytes();
}

void experts(const ExpertsArgs& args, const StepState& state, Worker& worker) {
    Pass(args, state, worker).run();
}

}  // namespace soliton
