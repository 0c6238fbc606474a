// The arithmetic of recurrent layers. Compiled once per instruction set (see kernels.h), with the
// same result in all of them.
#include "recurrent.h"

#include "functions.h"
#include "isa/lanes.h"
#include "kernels.h"

namespace soliton::SOLITON_ISA {
namespace {

// Up to 16 numbers from i on, of n, then zeros.
SOLITON_INLINE Floats load_from(const float* row, int64_t i, int64_t n) {
    return n - i >= kLanes ? load(row + i) : load_first(row + i, n - i);
}

SOLITON_INLINE void store_to(float* row, int64_t i, int64_t n, Floats a) {
    n - i >= kLanes ? store(row + i, a) : store_first(row + i, a, n - i);
}

// x * sigmoid(gate); NaN if the gate is.
SOLITON_INLINE Floats sigmoid_times(Floats x, Floats gate) {
    const Floats e = exponential(multiply(gate, broadcast(-1.0f)));
    const Floats y = divide(x, add(broadcast(1.0f), e));
    const Floats finite = smaller(broadcast(0x1p100f), larger(broadcast(-0x1p100f), gate));
    return multiply_add(finite, broadcast(0.0f), y);
}

float dot(const float* a, const float* b, int64_t n) {
    Floats total = broadcast(0.0f);
    for (int64_t i = 0; i < n; i += kLanes) {
        total = multiply_add(load_from(a, i, n), load_from(b, i, n), total);
    }
    return sum(total);
}

// kCount panels of columns from `column` on, at once: their sums do not wait for each other, and
// they fit into the first cache, so that each is read from memory once.
template <int kCount>
SOLITON_INLINE void step_panels(const DeltaStep& args, int64_t column, float along) {
    constexpr int kChains = 2;
    float* panels[kCount];
    Floats along_k[kCount][kChains];
    Floats along_q[kCount][kChains];
    for (int p = 0; p < kCount; ++p) {
        panels[p] = args.state + (column + p * kLanes) * args.k_dim;
        for (int c = 0; c < kChains; ++c) {
            along_k[p][c] = along_q[p][c] = broadcast(0.0f);
        }
    }
    for (int64_t i = 0; i < args.k_dim; i += kChains) {
        for (int c = 0; c < kChains; ++c) {
            const Floats k = broadcast(args.k[i + c]);
            const Floats q = broadcast(args.q[i + c]);
            for (int p = 0; p < kCount; ++p) {
                const Floats s = load(panels[p] + (i + c) * kLanes);
                along_k[p][c] = multiply_add(s, k, along_k[p][c]);
                along_q[p][c] = multiply_add(s, q, along_q[p][c]);
            }
        }
    }
    const Floats decay = broadcast(args.decay);
    Floats delta[kCount];
    for (int p = 0; p < kCount; ++p) {
        const int64_t at = column + p * kLanes;
        const Floats known = multiply(add(along_k[p][0], along_k[p][1]), decay);
        delta[p] = multiply(subtract(load(args.v + at), known), broadcast(args.beta));
        const Floats old = multiply(add(along_q[p][0], along_q[p][1]), decay);
        store(args.out + at, multiply_add(delta[p], broadcast(along), old));
    }
    for (int64_t i = 0; i < args.k_dim; ++i) {
        const Floats k = broadcast(args.k[i]);
        for (int p = 0; p < kCount; ++p) {
            float* s = panels[p] + i * kLanes;
            store(s, multiply_add(k, delta[p], multiply(load(s), decay)));
        }
    }
}

// kCount panels of a head from column `column` on. A number of the state is read and written once.
template <int kCount>
SOLITON_INLINE void ssm_panels(const SsmStep& args, int64_t column) {
    constexpr int kChains = 2;
    float* panels[kCount];
    Floats inputs[kCount];
    Floats sums[kCount][kChains];
    for (int p = 0; p < kCount; ++p) {
        panels[p] = args.state + (column + p * kLanes) * args.state_dim;
        inputs[p] = multiply(load(args.x + column + p * kLanes), broadcast(args.time));
        for (int c = 0; c < kChains; ++c) {
            sums[p][c] = broadcast(0.0f);
        }
    }
    const Floats decay = broadcast(args.decay);
    for (int64_t i = 0; i < args.state_dim; i += kChains) {
        for (int c = 0; c < kChains; ++c) {
            const Floats in = broadcast(args.b[i + c]);
            const Floats out = broadcast(args.c[i + c]);
            for (int p = 0; p < kCount; ++p) {
                float* s = panels[p] + (i + c) * kLanes;
                const Floats next = multiply_add(in, inputs[p], multiply(load(s), decay));
                store(s, next);
                sums[p][c] = multiply_add(next, out, sums[p][c]);
            }
        }
    }
    for (int p = 0; p < kCount; ++p) {
        const int64_t at = column + p * kLanes;
        const Floats y = add(sums[p][0], sums[p][1]);
        store(args.out + at, multiply_add(load(args.x + at), broadcast(args.skip), y));
    }
}

}  // namespace

void conv_row(const ConvRow& args) {
    for (int64_t i = 0; i < args.n; i += kLanes) {
        Floats y = args.bias == nullptr ? broadcast(0.0f) : load_from(args.bias, i, args.n);
        for (int64_t j = 0; j < args.kernel; ++j) {
            y = multiply_add(load_from(args.rows[j], i, args.n),
                             load_from(args.weights + j * args.pitch, i, args.n), y);
        }
        store_to(args.out, i, args.n, args.is_silu ? silu(y) : y);
    }
}

void unit_row(float* x, int64_t n, float eps, float scale) {
    const Floats factor = broadcast(scale / __builtin_sqrtf(dot(x, x, n) + eps));
    for (int64_t i = 0; i < n; i += kLanes) {
        store_to(x, i, n, multiply(load_from(x, i, n), factor));
    }
}

void delta_step(const DeltaStep& args) {
    const float along = dot(args.q, args.k, args.k_dim);
    int64_t column = 0;
    for (; column + 2 * kLanes <= args.v_dim; column += 2 * kLanes) {
        step_panels<2>(args, column, along);
    }
    if (column < args.v_dim) {
        step_panels<1>(args, column, along);
    }
}

void ssm_step(const SsmStep& args) {
    int64_t column = 0;
    for (; column + 2 * kLanes <= args.head_dim; column += 2 * kLanes) {
        ssm_panels<2>(args, column);
    }
    if (column < args.head_dim) {
        ssm_panels<1>(args, column);
    }
}

void gate_row(const float* x, const float* gate, int64_t n, bool is_silu, float* out) {
    for (int64_t i = 0; i < n; i += kLanes) {
        const Floats own = load_from(gate, i, n);
        const Floats y = sigmoid_times(load_from(x, i, n), own);
        store_to(out, i, n, is_silu ? multiply(y, own) : y);
    }
}

}  // namespace soliton::SOLITON_ISA
