// Gated delta nets: a chunk is a key head with the value heads that share it, for all rows, so that
// their states stay in the cache of one processor and no barrier is needed. Compiled for the
// baseline; the arithmetic is in cpu/recurrent.cpp.
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

constexpr float kUnitEps = 1e-6f;

int64_t group_of(const DeltaNetArgs& args) {
    return args.n_v_heads / args.n_k_heads;
}

// Channels of the convolution: those of one chunk, and all.
int64_t own_channels(const DeltaNetArgs& args) {
    return 2 * args.k_dim + group_of(args) * args.v_dim;
}
int64_t all_channels(const DeltaNetArgs& args) {
    return own_channels(args) * args.n_k_heads;
}

// A part of a row: where it begins among all channels and among the chunk's own, and its length.
struct Part {
    int64_t all;
    int64_t own;
    int64_t n;
};

float decay_of(float a, float dt_bias, float a_log, bool is_rate) {
    const double x = double{a} + double{dt_bias};
    const double softplus = x > 20.0 ? x : std::log1p(std::exp(x));
    const double rate = is_rate ? double{a_log} : -std::exp(double{a_log});
    return static_cast<float>(std::exp(rate * softplus));
}

float beta_of(float b) {
    return static_cast<float>(1.0 / (1.0 + std::exp(-double{b})));
}

// One chunk. The window holds the last `kernel` rows of its channels.
class KeyHead {
  public:
    KeyHead(const DeltaNetArgs& args, const Walk& walk, float* scratch, int64_t head)
        : args_(args),
          walk_(walk),
          head_(head),
          n_(own_channels(args)),
          n_all_(all_channels(args)),
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
    // Of a position; of pos - kernel + 1 + i, too, for pos + 1 + i.
    float* window_row(int64_t pos) const { return window_ + pos % args_.kernel * n_; }

    // Own value head i, among all.
    int64_t value_head(int64_t i) const {
        return args_.takes_turns ? i * args_.n_k_heads + head_ : head_ * group_of(args_) + i;
    }

    // q, k, then the values of each value head.
    int64_t n_parts() const { return 2 + group_of(args_); }
    Part part(int64_t j) const {
        const int64_t of_keys = args_.n_k_heads * args_.k_dim;
        if (j < 2) {
            return {j * of_keys + head_ * args_.k_dim, j * args_.k_dim, args_.k_dim};
        }
        return {2 * of_keys + value_head(j - 2) * args_.v_dim,
                2 * args_.k_dim + (j - 2) * args_.v_dim, args_.v_dim};
    }

    int64_t state_floats() const { return args_.k_dim * args_.v_dim; }
    // Where the state of own value head i is in a slot.
    int64_t state_at(int64_t i) const {
        return (args_.kernel - 1) * n_all_ + value_head(i) * state_floats();
    }

    void begin() {
        const float* source = walk_.source();
        for (int64_t i = 0; i < args_.kernel - 1; ++i) {
            float* row = window_row(walk_.begin() + i + 1);
            source == nullptr ? (void)std::fill_n(row, n_, 0.0f)
                              : copy_own(source + i * n_all_, row);
        }
        float* target = walk_.target();
        for (int64_t i = 0; i < group_of(args_) && source != target; ++i) {
            float* state = target + state_at(i);
            source == nullptr ? (void)std::fill_n(state, state_floats(), 0.0f)
                              : (void)std::copy_n(source + state_at(i), state_floats(), state);
        }
    }

    // The own channels of a row with all of them.
    void copy_own(const float* all, float* own) const {
        for (int64_t j = 0; j < n_parts(); ++j) {
            const Part own_part = part(j);
            std::copy_n(all + own_part.all, own_part.n, own + own_part.own);
        }
    }

    void step(int64_t pos) {
        const bool is_logged = walk_.is_logged(pos);
        const float* x = is_logged ? walk_.logged(pos) : args_.x + walk_.row(pos) * row_width();
        copy_own(x, window_row(pos));
        if (float* logged = is_logged ? nullptr : walk_.to_log(pos); logged != nullptr) {
            log(x, logged);
        }
        mix(pos);
        const CpuKernels& kernels = cpu_kernels();
        float* q = mixed_;
        float* k = mixed_ + args_.k_dim;
        kernels.unit_row(q, args_.k_dim, kUnitEps,
                         1.0f / std::sqrt(static_cast<float>(args_.k_dim)));
        kernels.unit_row(k, args_.k_dim, kUnitEps, 1.0f);
        for (int64_t i = 0; i < group_of(args_); ++i) {
            const int64_t head = value_head(i);
            kernels.delta_step(delta(x, head, i));
            if (!is_logged) {
                finish(pos, x, head);
            }
        }
    }

    // Of x and of out.
    int64_t row_width() const { return n_all_ + args_.n_v_heads * (args_.v_dim + 2); }

    void log(const float* x, float* logged) const {
        for (int64_t j = 0; j < n_parts(); ++j) {
            const Part own_part = part(j);
            std::copy_n(x + own_part.all, own_part.n, logged + own_part.all);
        }
        for (int64_t i = 0; i < group_of(args_); ++i) {
            const int64_t b = n_all_ + value_head(i);
            const int64_t a = b + args_.n_v_heads;
            logged[b] = x[b];
            logged[a] = x[a];
        }
    }

    void mix(int64_t pos) {
        for (int64_t j = 0; j < n_parts(); ++j) {
            const Part own_part = part(j);
            ConvRow conv = {};
            for (int64_t i = 0; i < args_.kernel; ++i) {
                conv.rows[i] = window_row(pos + 1 + i) + own_part.own;
            }
            conv.kernel = args_.kernel;
            conv.weights = args_.conv + own_part.all;
            conv.pitch = n_all_;
            conv.n = own_part.n;
            conv.is_silu = true;
            conv.out = mixed_ + own_part.own;
            cpu_kernels().conv_row(conv);
        }
    }

    DeltaStep delta(const float* x, int64_t head, int64_t i) const {
        const float* b = x + n_all_;
        const float* a = b + args_.n_v_heads;
        return {
            .state = walk_.target() + state_at(i),
            .q = mixed_,
            .k = mixed_ + args_.k_dim,
            .v = mixed_ + 2 * args_.k_dim + i * args_.v_dim,
            .k_dim = args_.k_dim,
            .v_dim = args_.v_dim,
            .decay = decay_of(a[head], args_.dt_bias[head], args_.a_log[head], args_.is_rate),
            .beta = beta_of(b[head]),
            .out = out_,
        };
    }

    void finish(int64_t pos, const float* x, int64_t head) const {
        const float* z = x + n_all_ + 2 * args_.n_v_heads + head * args_.v_dim;
        float* out = args_.out + (walk_.row(pos) * args_.n_v_heads + head) * args_.v_dim;
        cpu_kernels().norm_row(out_, args_.norm, args_.eps, args_.v_dim, out);
        cpu_kernels().gate_row(out, z, args_.v_dim, true, out);
    }

    // What a slot holds of this chunk at position `end`.
    void write(int64_t end, float* slot) const {
        for (int64_t i = 0; i < args_.kernel - 1; ++i) {
            const float* row = window_row(end + 1 + i);
            for (int64_t j = 0; j < n_parts(); ++j) {
                const Part own_part = part(j);
                std::copy_n(row + own_part.own, own_part.n, slot + i * n_all_ + own_part.all);
            }
        }
        const float* target = walk_.target();
        for (int64_t i = 0; i < group_of(args_) && slot != target; ++i) {
            std::copy_n(target + state_at(i), state_floats(), slot + state_at(i));
        }
    }

    const DeltaNetArgs& args_;
    const Walk& walk_;
    const int64_t head_;
    const int64_t n_;
    const int64_t n_all_;
    float* const window_;
    float* const mixed_;  // q, k and v after the convolution
    float* const out_;    // (v_dim,)
};

}  // namespace

int64_t delta_net_worker_bytes(const DeltaNetArgs& args) {
    const int64_t floats = (args.kernel + 1) * own_channels(args) + args.v_dim;
    return floats * int64_t{sizeof(float)};
}

void delta_net(const DeltaNetArgs& args, const StepState& state, Worker& worker) {
    worker.share(args.n_k_heads, [&](int64_t head) {
        const Walk walk(args.states, state);
        KeyHead(args, walk, reinterpret_cast<float*>(worker.scratch), head).run();
    });
}

}  // namespace soliton
