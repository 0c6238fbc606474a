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

float decay_of(float a, float dt_bias, float a_log) {
    const double x = double{a} + double{dt_bias};
    const double softplus = x > 20.0 ? x : std::log1p(std::exp(x));
    return static_cast<float>(std::exp(-std::exp(double{a_log}) * softplus));
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
          parts_{{head * args.k_dim, 0, args.k_dim},
                 {(args.n_k_heads + head) * args.k_dim, args.k_dim, args.k_dim},
                 {2 * args.n_k_heads * args.k_dim + head * group_of(args) * args.v_dim,
                  2 * args.k_dim, group_of(args) * args.v_dim}},
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

    // The states of the own value heads in a slot.
    int64_t state_floats() const { return group_of(args_) * args_.k_dim * args_.v_dim; }
    int64_t state_at() const { return (args_.kernel - 1) * n_all_ + head_ * state_floats(); }

    void begin() {
        const float* source = walk_.source();
        for (int64_t i = 0; i < args_.kernel - 1; ++i) {
            float* row = window_row(walk_.begin() + i + 1);
            source == nullptr ? (void)std::fill_n(row, n_, 0.0f)
                              : copy_own(source + i * n_all_, row);
        }
        float* target = walk_.target();
        if (source == nullptr) {
            std::fill_n(target + state_at(), state_floats(), 0.0f);
        } else if (source != target) {
            std::copy_n(source + state_at(), state_floats(), target + state_at());
        }
    }

    // The own channels of a row with all of them.
    void copy_own(const float* all, float* own) const {
        for (const Part& part : parts_) {
            std::copy_n(all + part.all, part.n, own + part.own);
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
            const int64_t head = head_ * group_of(args_) + i;
            kernels.delta_step(delta(x, head, i));
            if (!is_logged) {
                finish(pos, x, head);
            }
        }
    }

    // Of x and of out.
    int64_t row_width() const { return n_all_ + args_.n_v_heads * (args_.v_dim + 2); }

    void log(const float* x, float* logged) const {
        for (const Part& part : parts_) {
            std::copy_n(x + part.all, part.n, logged + part.all);
        }
        const int64_t first = n_all_ + head_ * group_of(args_);
        std::copy_n(x + first, group_of(args_), logged + first);
        std::copy_n(x + first + args_.n_v_heads, group_of(args_), logged + first + args_.n_v_heads);
    }

    void mix(int64_t pos) {
        for (const Part& part : parts_) {
            ConvRow conv = {};
            for (int64_t i = 0; i < args_.kernel; ++i) {
                conv.rows[i] = window_row(pos + 1 + i) + part.own;
            }
            conv.kernel = args_.kernel;
            conv.weights = args_.conv + part.all;
            conv.pitch = n_all_;
            conv.n = part.n;
            conv.is_silu = true;
            conv.out = mixed_ + part.own;
            cpu_kernels().conv_row(conv);
        }
    }

    DeltaStep delta(const float* x, int64_t head, int64_t i) const {
        const float* b = x + n_all_;
        const float* a = b + args_.n_v_heads;
        return {
            .state = walk_.target() + state_at() + i * args_.k_dim * args_.v_dim,
            .q = mixed_,
            .k = mixed_ + args_.k_dim,
            .v = mixed_ + 2 * args_.k_dim + i * args_.v_dim,
            .k_dim = args_.k_dim,
            .v_dim = args_.v_dim,
            .decay = decay_of(a[head], args_.dt_bias[head], args_.a_log[head]),
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
            for (const Part& part : parts_) {
                std::copy_n(row + part.own, part.n, slot + i * n_all_ + part.all);
            }
        }
        const float* target = walk_.target();
        if (slot != target) {
            std::copy_n(target + state_at(), state_floats(), slot + state_at());
        }
    }

    const DeltaNetArgs& args_;
    const Walk& walk_;
    const int64_t head_;
    const int64_t n_;
    const int64_t n_all_;
    const Part parts_[3];
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
