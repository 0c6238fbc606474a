// Mamba 2: a chunk is some heads of a group, for all rows, so that their states stay in the cache
// of one processor; the norm and the gate behind it are an op of their own, because a norm goes
// over all heads of a group. Compiled for the baseline; the arithmetic is in cpu/recurrent.cpp.
//
// Rows are computed one by one, in a prompt as in a single step: the state after a row depends only
// on the rows, not on how they came.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "cpu/kernels.h"
#include "cpu/recurrent.h"
#include "pool.h"
#include "recurrent.h"

namespace soliton {
namespace {

int64_t inner(const Mamba2Args& args) {
    return args.n_heads * args.head_dim;
}
// Channels of the convolution: those of one chunk, and all.
int64_t own_channels(const Mamba2Args& args) {
    return args.chunk_heads * args.head_dim + 2 * args.state_dim;
}
int64_t all_channels(const Mamba2Args& args) {
    return inner(args) + 2 * args.n_groups * args.state_dim;
}
int64_t n_chunks(const Mamba2Args& args) {
    return args.n_heads / args.chunk_heads;
}

// The numbers of own channels begin at `own`, and at `all` among all channels.
struct Part {
    int64_t all;
    int64_t own;
    int64_t n;
};

// One chunk. The window holds the last `kernel` rows of its channels.
class Heads {
  public:
    Heads(const Mamba2Args& args, const Walk& walk, float* scratch, int64_t chunk)
        : args_(args),
          walk_(walk),
          chunk_(chunk),
          first_(chunk * args.chunk_heads),
          n_(own_channels(args)),
          window_(scratch),
          mixed_(window_ + args.kernel * n_),
          out_(mixed_ + n_) {}

    void run() {
        begin();
        for (int64_t pos = walk_.begin(); pos < walk_.end(); ++pos) {
            step(pos);
            walk_.save_at(pos + 1, [&](float* slot) { write(pos + 1, slot); });
        }
        write(walk_.end(), walk_.target());
    }

  private:
    static constexpr int kParts = 3;  // x, B and C

    // Of a position; of pos - kernel + 1 + i, too, for pos + 1 + i.
    float* window_row(int64_t pos) const { return window_ + pos % args_.kernel * n_; }

    Part part(int j) const {
        const int64_t of_heads = args_.chunk_heads * args_.head_dim;
        if (j == 0) {
            return {first_ * args_.head_dim, 0, of_heads};
        }
        const int64_t group = first_ / (args_.n_heads / args_.n_groups);
        const int64_t place = (j - 1) * args_.n_groups + group;
        return {inner(args_) + place * args_.state_dim, of_heads + (j - 1) * args_.state_dim,
                args_.state_dim};
    }

    int64_t state_floats() const { return args_.head_dim * args_.state_dim; }
    int64_t tail_floats() const { return (args_.kernel - 1) * n_; }
    // What of a slot and of a logged row belongs to the chunk.
    float* own_slot(float* slot) const {
        return slot + chunk_ * (tail_floats() + args_.chunk_heads * state_floats());
    }
    int64_t logged_at() const { return chunk_ * (n_ + args_.chunk_heads); }

    void begin() {
        const float* whole = walk_.source();
        const float* source = whole == nullptr ? nullptr : own_slot(const_cast<float*>(whole));
        for (int64_t i = 0; i < args_.kernel - 1; ++i) {
            float* row = window_row(walk_.begin() + i + 1);
            source == nullptr ? (void)std::fill_n(row, n_, 0.0f)
                              : (void)std::copy_n(source + i * n_, n_, row);
        }
        states_ = own_slot(walk_.target()) + tail_floats();
        const int64_t n = args_.chunk_heads * state_floats();
        if (source == nullptr) {
            std::fill_n(states_, n, 0.0f);
        } else if (whole != walk_.target()) {
            std::copy_n(source + tail_floats(), n, states_);
        }
    }

    void step(int64_t pos) {
        float* row = window_row(pos);
        const bool is_logged = walk_.is_logged(pos);
        const float* times = nullptr;  // dt of the own heads
        if (is_logged) {
            const float* logged = walk_.logged(pos) + logged_at();
            std::copy_n(logged, n_, row);
            times = logged + n_;
        } else {
            const float* channels = args_.x + walk_.row(pos) * row_width() + inner(args_);
            for (int j = 0; j < kParts; ++j) {
                const Part own = part(j);
                std::copy_n(channels + own.all, own.n, row + own.own);
            }
            times = channels + all_channels(args_) + first_;
            if (float* logged = walk_.to_log(pos); logged != nullptr) {
                std::copy_n(row, n_, logged + logged_at());
                std::copy_n(times, args_.chunk_heads, logged + logged_at() + n_);
            }
        }
        mix(pos);
        for (int64_t i = 0; i < args_.chunk_heads; ++i) {
            float* out = is_logged ? out_
                                   : args_.out + walk_.row(pos) * inner(args_) +
                                         (first_ + i) * args_.head_dim;
            cpu_kernels().ssm_step(ssm(i, times[i], out));
        }
    }

    int64_t row_width() const { return inner(args_) + all_channels(args_) + args_.n_heads; }

    void mix(int64_t pos) {
        for (int j = 0; j < kParts; ++j) {
            const Part own = part(j);
            ConvRow conv = {};
            for (int64_t i = 0; i < args_.kernel; ++i) {
                conv.rows[i] = window_row(pos + 1 + i) + own.own;
            }
            conv.kernel = args_.kernel;
            conv.weights = args_.conv + own.all;
            conv.pitch = all_channels(args_);
            conv.bias = args_.conv_bias == nullptr ? nullptr : args_.conv_bias + own.all;
            conv.n = own.n;
            conv.is_silu = true;
            conv.out = mixed_ + own.own;
            cpu_kernels().conv_row(conv);
        }
    }

    // Own head i with its number dt of the row.
    SsmStep ssm(int64_t i, float dt, float* out) const {
        const int64_t head = first_ + i;
        const double x = double{dt} * double{args_.dt_scale} + double{args_.dt_bias[head]};
        const double softplus = x > 20.0 ? x : std::log1p(std::exp(x));
        const double time =
            std::min(std::max(softplus, double{args_.dt_min}), double{args_.dt_max});
        const double a = double{args_.a_log[head]};
        const float* b = mixed_ + args_.chunk_heads * args_.head_dim;
        return {
            .state = states_ + i * state_floats(),
            .x = mixed_ + i * args_.head_dim,
            .b = b,
            .c = b + args_.state_dim,
            .head_dim = args_.head_dim,
            .state_dim = args_.state_dim,
            .decay = static_cast<float>(std::exp((args_.is_rate ? a : -std::exp(a)) * time)),
            .time = static_cast<float>(time),
            .skip = args_.skip[head],
            .out = out,
        };
    }

    // What a slot holds of this chunk at position `end`.
    void write(int64_t end, float* slot) const {
        float* own = own_slot(slot);
        for (int64_t i = 0; i < args_.kernel - 1; ++i) {
            std::copy_n(window_row(end + 1 + i), n_, own + i * n_);
        }
        if (slot != walk_.target()) {
            std::copy_n(states_, args_.chunk_heads * state_floats(), own + tail_floats());
        }
    }

    const Mamba2Args& args_;
    const Walk& walk_;
    const int64_t chunk_;
    const int64_t first_;  // of its heads
    const int64_t n_;
    float* const window_;
    float* const mixed_;  // x, B and C after the convolution
    float* const out_;    // (head_dim,), of rows that are not of the pass
    float* states_ = nullptr;
};

}  // namespace

int64_t mamba2_worker_bytes(const Mamba2Args& args) {
    const int64_t floats = (args.kernel + 1) * own_channels(args) + args.head_dim;
    return floats * int64_t{sizeof(float)};
}

void mamba2(const Mamba2Args& args, const StepState& state, Worker& worker) {
    worker.share(n_chunks(args), [&](int64_t chunk) {
        const Walk walk(args.states, state);
        Heads(args, walk, reinterpret_cast<float*>(worker.scratch), chunk).run();
    });
}

int64_t gated_norm_worker_bytes(const GatedNormArgs& args) {
    return args.width / args.n_groups * int64_t{sizeof(float)};
}

void gated_norm(const GatedNormArgs& args, const StepState& state, Worker& worker) {
    const int64_t n = args.width / args.n_groups;
    worker.share(state.n_rows * args.n_groups, [&](int64_t i) {
        const int64_t row = i / args.n_groups;
        const int64_t begin = i % args.n_groups * n;
        const CpuKernels& kernels = cpu_kernels();
        float* x = args.x + row * args.width + begin;
        const float* gate = args.gate + row * args.pitch + begin;
        if (args.gate_scale != 1.0f) {
            float* scaled = reinterpret_cast<float*>(worker.scratch);
            std::transform(gate, gate + n, scaled, [&](float z) { return z * args.gate_scale; });
            gate = scaled;
        }
        const bool has_norm = args.norm != nullptr;
        if (args.is_gate_first || !has_norm) {
            kernels.gate_row(x, gate, n, true, x);
        }
        if (has_norm) {
            kernels.norm_row(x, args.norm + begin, args.eps, n, x);
        }
        if (has_norm && !args.is_gate_first) {
            kernels.gate_row(x, gate, n, true, x);
        }
    });
}

}  // namespace soliton
