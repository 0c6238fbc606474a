// What the kernels of recurrent layers take: one row of one head or of some channels.
#pragma once

#include <cstdint>

namespace soliton {

inline constexpr int64_t kMostConvRows = 8;

// out = the sum over j of rows[j] * weights[j], plus bias; channel by channel.
struct ConvRow {
    const float* rows[kMostConvRows];
    int64_t kernel;        // rows
    const float* weights;  // (kernel, n), pitch floats from row to row
    int64_t pitch;
    const float* bias;  // (n,) or null
    int64_t n;
    bool is_silu;  // of the sum
    float* out;    // (n,)
};

// One row of the delta rule in one head, with k and q as they are: see DeltaNetArgs.
struct DeltaStep {
    float* state;    // (v_dim / 16, k_dim, 16)
    const float* q;  // (k_dim,)
    const float* k;  // (k_dim,)
    const float* v;  // (v_dim,)
    int64_t k_dim;
    int64_t v_dim;
    float decay;
    float beta;
    float* out;  // (v_dim,): q times the new state
};

// One row of Mamba 2 in one head: see Mamba2Args.
struct SsmStep {
    float* state;    // (head_dim / 16, state_dim, 16)
    const float* x;  // (head_dim,)
    const float* b;  // (state_dim,)
    const float* c;  // (state_dim,)
    int64_t head_dim;
    int64_t state_dim;
    float decay;
    float time;  // multiplies x in what goes into the state
    float skip;  // multiplies x in what goes past it
    float* out;  // (head_dim,)
};

}  // namespace soliton
