// The arguments of the ops of recurrent layers as plain data, with shapes, and the walk over rows
// that these ops share. `rows` and the rules are those of ops.h.
//
// A recurrent layer keeps a state instead of keys and values. It cannot be cut back, so several
// slots hold states at earlier positions, and a log holds the latest rows: from a slot and the rows
// behind it, every position in between can be computed again, to the bit.
#pragma once

#include <cstdint>

#include "ops.h"

namespace soliton {

inline constexpr int64_t kMostSaves = 2;

// Which states a pass begins and ends with, as words of int64. engine/cache/states.py writes them
// before the pass; all layers share them.
struct StatePass {
    int64_t source;      // the slot to begin with; -1: zeros, at position 0
    int64_t source_pos;  // its position; logged rows lead from there to the begin of the pass
    int64_t target;      // the slot for the state after the last row; may be the source
    int64_t n_saves;     // states on the way that are kept, too
    int64_t save_slots[kMostSaves];
    int64_t save_positions[kMostSaves];
};

// The states of one layer.
struct States {
    float* slots;  // (n_slots, n_state)
    int64_t n_state;
    float* log;  // (n_logged, n_row): the row of position p is at p % n_logged
    int64_t n_row;
    int64_t n_logged;
    const StatePass* pass;  // only chunks may read it
};

// out = c * (the causal convolution of b * x, channel by channel); a row of x is (b, c, x).
// A state is the last kernel - 1 products b * x, (kernel - 1, dim); a logged row is one.
struct ShortConvArgs {
    const float* x;  // (rows, 3 dim)
    States states;
    const float* conv;  // (kernel, dim), the oldest row first
    const float* bias;  // (dim,) or null
    int64_t kernel;
    int64_t dim;
    float* out;  // (rows, dim)
};

// The gated delta rule. A row of x is (q, k, v, b, a, z) with all heads of each. q, k and v go
// through a causal convolution and silu. Then q and k become unit vectors, q divided by
// sqrt(k_dim), and the state S (k_dim, v_dim) of each value head becomes
//
//   S = g S + k (beta (v - k g S)),  g = exp(-exp(a_log) softplus(a + dt_bias)), beta = sigmoid(b)
//
// and out = RMSNorm(q S) * silu(z). Groups of n_v_heads / n_k_heads value heads share a key head:
// those that follow each other, or, if they take turns, every n_k_heads-th.
// A state is the last kernel - 1 rows of (q, k, v), then S of each value head in panels of 16
// columns, (v_dim / 16, k_dim, 16). A logged row is (q, k, v, b, a).
struct DeltaNetArgs {
    const float* x;  // (rows, 2 n_k_heads k_dim + 2 n_v_heads v_dim + 2 n_v_heads)
    States states;
    const float* conv;  // (kernel, 2 n_k_heads k_dim + n_v_heads v_dim)
    int64_t kernel;
    int64_t n_k_heads;
    int64_t n_v_heads;
    int64_t k_dim;  // a multiple of 16
    int64_t v_dim;  // a multiple of 16
    bool takes_turns;
    const float* a_log;    // (n_v_heads,)
    bool is_rate;          // a_log is -exp(a_log)
    const float* dt_bias;  // (n_v_heads,)
    const float* norm;     // (v_dim,)
    float eps;
    float* out;  // (rows, n_v_heads v_dim)
};

// Mamba 2. A row of x is (z, x, B, C, dt): z and x of all heads, B and C of all groups, and a
// number dt of each head. x, B and C go through a causal convolution and silu. Then the state S
// (head_dim, state_dim) of each head becomes
//
//   S = e^(-exp(a_log) t) S + t x B,  t = softplus(dt_scale dt + dt_bias), within the limits
//
// and out = S C + skip x. Heads that follow each other share B and C of a group. z is left to
// GatedNormArgs.
// A chunk is `chunk_heads` heads of a group, and has B and C for itself, so that no chunk reads
// what another one writes: its row is (x of its heads, B, C, dt of its heads). A state is, chunk by
// chunk, the last kernel - 1 rows without dt, then S of each head in panels of 16, (head_dim / 16,
// state_dim, 16). A logged row is the rows of all chunks.
struct Mamba2Args {
    const float* x;  // (rows, 2 n_heads head_dim + 2 n_groups state_dim + n_heads)
    States states;
    const float* conv;       // (kernel, n_heads head_dim + 2 n_groups state_dim)
    const float* conv_bias;  // (n_heads head_dim + 2 n_groups state_dim,) or null
    int64_t kernel;
    int64_t n_heads;
    int64_t n_groups;
    int64_t head_dim;   // a multiple of 16
    int64_t state_dim;  // even
    int64_t chunk_heads;
    const float* a_log;    // (n_heads,)
    bool is_rate;          // a_log is -exp(a_log)
    const float* dt_bias;  // (n_heads,)
    float dt_scale;
    float dt_min;
    float dt_max;
    const float* skip;  // (n_heads,)
    float* out;         // (rows, n_heads head_dim)
};

// x = RMSNorm(x silu(gate_scale gate)), or RMSNorm(x) silu(gate_scale gate) unless the gate comes
// first; group by group. Without a norm, x silu(gate_scale gate).
struct GatedNormArgs {
    float* x;           // (rows, width)
    const float* gate;  // (rows, pitch), of which the first `width` columns count
    int64_t pitch;
    float gate_scale;
    const float* norm;  // (width,) or null
    int64_t width;
    int64_t n_groups;
    bool is_gate_first;
    float eps;
};

// x = x * sigmoid(gate), number by number.
struct GateArgs {
    float* x;           // (rows, width)
    const float* gate;  // (rows, width)
    int64_t width;
};

void short_conv(const ShortConvArgs& args, const StepState& state, Worker& worker);
void delta_net(const DeltaNetArgs& args, const StepState& state, Worker& worker);
void mamba2(const Mamba2Args& args, const StepState& state, Worker& worker);
void gated_norm(const GatedNormArgs& args, const StepState& state, Worker& worker);
void gate(const GateArgs& args, const StepState& state, Worker& worker);

// How large Worker::scratch must be.
int64_t short_conv_worker_bytes(const ShortConvArgs& args);
int64_t delta_net_worker_bytes(const DeltaNetArgs& args);
int64_t mamba2_worker_bytes(const Mamba2Args& args);
int64_t gated_norm_worker_bytes(const GatedNormArgs& args);

// The positions that a chunk goes through: logged ones, then those of the pass.
class Walk {
  public:
    Walk(const States& states, const StepState& state)
        : states_(states), pass_(*states.pass), pos_(state.pos), end_(state.pos + state.n_rows) {}

    int64_t begin() const { return pass_.source_pos; }
    int64_t end() const { return end_; }
    bool is_logged(int64_t pos) const { return pos < pos_; }
    int64_t row(int64_t pos) const { return pos - pos_; }
    const float* logged(int64_t pos) const { return log_row(pos); }
    // Where to log a row of the pass; null: later ones would overwrite it.
    float* to_log(int64_t pos) const {
        return pos >= end_ - states_.n_logged ? log_row(pos) : nullptr;
    }
    // Null: zeros.
    const float* source() const { return pass_.source < 0 ? nullptr : slot(pass_.source); }
    float* target() const { return slot(pass_.target); }
    // Calls save(slot) for the slots that keep the state at `pos`.
    template <typename Save>
    void save_at(int64_t pos, Save&& save) const {
        for (int64_t i = 0; i < pass_.n_saves; ++i) {
            if (pass_.save_positions[i] == pos) {
                save(slot(pass_.save_slots[i]));
            }
        }
    }

  private:
    float* slot(int64_t i) const { return states_.slots + i * states_.n_state; }
    float* log_row(int64_t pos) const {
        return states_.log + pos % states_.n_logged * states_.n_row;
    }

    const States& states_;
    const StatePass& pass_;
    const int64_t pos_;
    const int64_t end_;
};

}  // namespace soliton
