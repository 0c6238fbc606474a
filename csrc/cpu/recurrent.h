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

}  // namespace soliton
