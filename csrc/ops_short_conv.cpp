// Short convolutions and gates: which thread computes which channels. Compiled for the baseline;
// the arithmetic is in cpu/recurrent.cpp.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/kernels.h"
#include "cpu/recurrent.h"
#include "pool.h"
#include "recurrent.h"

namespace soliton {
namespace {

constexpr int64_t kChannels = 128;  // of a chunk
constexpr int64_t kGates = 1024;    // numbers of a chunk

// One chunk of channels. The window holds the last `kernel` products of each.
class Channels {
  public:
    Channels(const ShortConvArgs& args, const Walk& walk, float* window, int64_t first)
        : args_(args),
          walk_(walk),
          window_(window),
          first_(first),
          n_(std::min(kChannels, args.dim - first)) {}

    void run() {
        for (int64_t i = 0; i < args_.kernel - 1; ++i) {
            const float* tail = walk_.source();
            float* row = window_row(walk_.begin() + i + 1);
            tail == nullptr ? (void)std::fill_n(row, n_, 0.0f)
                            : (void)std::copy_n(tail + i * args_.dim + first_, n_, row);
        }
        for (int64_t pos = walk_.begin(); pos < walk_.end(); ++pos) {
            float* row = window_row(pos);
            if (walk_.is_logged(pos)) {
                std::copy_n(walk_.logged(pos) + first_, n_, row);
            } else {
                step(pos, row);
            }
            walk_.save_at(pos + 1, [&](float* slot) { write_tail(pos + 1, slot); });
        }
        write_tail(walk_.end(), walk_.target());
    }

  private:
    // Of a position; of pos - kernel + 1 + i, too, for pos + 1 + i.
    float* window_row(int64_t pos) const { return window_ + pos % args_.kernel * kChannels; }

    void step(int64_t pos, float* row) {
        const float* b = args_.x + walk_.row(pos) * 3 * args_.dim + first_;
        const float* c = b + args_.dim;
        const float* x = c + args_.dim;
        for (int64_t i = 0; i < n_; ++i) {
            row[i] = b[i] * x[i];
        }
        if (float* logged = walk_.to_log(pos); logged != nullptr) {
            std::copy_n(row, n_, logged + first_);
        }
        ConvRow conv = {};
        for (int64_t i = 0; i < args_.kernel; ++i) {
            conv.rows[i] = window_row(pos + 1 + i);
        }
        conv.kernel = args_.kernel;
        conv.weights = args_.conv + first_;
        conv.pitch = args_.dim;
        conv.bias = args_.bias == nullptr ? nullptr : args_.bias + first_;
        conv.n = n_;
        conv.out = args_.out + walk_.row(pos) * args_.dim + first_;
        cpu_kernels().conv_row(conv);
        for (int64_t i = 0; i < n_; ++i) {
            conv.out[i] *= c[i];
        }
    }

    void write_tail(int64_t end, float* slot) const {
        for (int64_t i = 0; i < args_.kernel - 1; ++i) {
            std::copy_n(window_row(end + 1 + i), n_, slot + i * args_.dim + first_);
        }
    }

    const ShortConvArgs& args_;
    const Walk& walk_;
    float* const window_;
    const int64_t first_;
    const int64_t n_;
};

}  // namespace

int64_t short_conv_worker_bytes(const ShortConvArgs& args) {
    return args.kernel * kChannels * int64_t{sizeof(float)};
}

void short_conv(const ShortConvArgs& args, const StepState& state, Worker& worker) {
    worker.share((args.dim + kChannels - 1) / kChannels, [&](int64_t i) {
        const Walk walk(args.states, state);
        Channels(args, walk, reinterpret_cast<float*>(worker.scratch), i * kChannels).run();
    });
}

void gate(const GateArgs& args, const StepState& state, Worker& worker) {
    const int64_t n = state.n_rows * args.width;
    worker.share((n + kGates - 1) / kGates, [&](int64_t i) {
        const int64_t begin = i * kGates;
        float* x = args.x + begin;
        cpu_kernels().gate_row(x, args.gate + begin, std::min(kGates, n - begin), false, x);
    });
}

}  // namespace soliton
