// A mixture of experts: which experts a row goes through, and the op of a step. Owns no code.
//
// A pair is a row and one of its experts: pair p is of row p / n_used. In a step, pairs of one
// expert are multiplied together, up to kTogether at a time: a group. All of this happens on the
// device, so a step does not wait for the host, and a graph of it holds for any choice.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "ops.h"

namespace soliton::cuda {

// Of a row: a lane for each.
inline constexpr int64_t kMostUsed = 32;
inline constexpr int64_t kMostExpertGroups = 32;
inline constexpr int kTogether = 4;

// What the numbers of a router say of its experts, as ../ops.h has it.
enum class Scoring : int32_t { kSoftmax, kSigmoid, kChosenSoftmax, kSparseMixer };

// As ../ops.h has it.
struct Routing {
    int64_t n_experts;
    int64_t n_used;  // up to kMostUsed
    Scoring scoring;
    const float* selection_bias;  // (n_experts,) or null
    const float* expert_scales;   // (n_experts,) or null
    int64_t n_groups;             // up to kMostExpertGroups
    int64_t n_groups_used;
    int64_t group_best;
    bool is_renormalized;
    float scale;
    float spread;
};

// The experts and weights (n_rows, n_used) of any number of rows, the best first.
struct RouteArgs {
    const float* router;  // (n_rows, router_width): numbers of the experts first
    int64_t router_width;
    Routing routing;
    int64_t n_rows;
    int32_t* experts;
    float* weights;
};

// The pairs of a step by expert, in device memory. Slots are pairs in that order.
struct PairGroups {
    int32_t* n;        // groups
    int32_t* experts;  // (pairs,): of each group
    int32_t* begins;   // (pairs + 1,): the first slot of each group, then the end
    int32_t* slots;    // (pairs,): the pair of each slot
};

// Feed-forward parts of one shape.
struct ExpertBank {
    const void* const* gate_ups;  // (n,): the weights of each, (2 hidden, dim)
    const void* const* downs;     // (n,): the same, (dim, hidden)
    Layout gate_up_layout;
    Layout down_layout;
    const float* gate_up_bias;  // (n, 2 hidden) or null
    const float* down_bias;     // (n, dim) or null
    int64_t hidden;
};

// What all rows go through.
struct SharedExpert {
    Matrix gate_up;  // (2 hidden, dim); without rows if there is none
    Matrix down;     // (dim, hidden)
    const float* gate_up_bias;
    const float* down_bias;
};

// out = residual + scale * (the weighted sum of the chosen experts, plus what all rows go through).
struct ExpertsArgs {
    const float* x;     // (rows, dim)
    const float* norm;  // (dim,) or null: no norm
    float eps;
    const float* router;  // (rows, router_width): numbers of the experts, then of the shared gate
    int64_t router_width;
    Routing routing;
    ExpertBank routed;
    SharedExpert shared;
    bool has_shared_gate;   // what is shared is multiplied by the sigmoid of its number
    Epilogue epilogue;      // a gated one
    const float* residual;  // (rows, dim) or null: add nothing; not out
    float scale;
    float* out;  // (rows, dim); may be x
    int64_t dim;
    void* scratch;  // experts_scratch_bytes()
};

// Each returns the launch's error. `choose` and `experts` may be captured in a graph.
cudaError_t choose(const RouteArgs& args, const PairGroups& groups, const Pass& pass);
cudaError_t route(const RouteArgs& args, cudaStream_t stream);
cudaError_t experts(const ExpertsArgs& args, const Pass& pass);

int64_t experts_scratch_bytes(int64_t n_used, int64_t hidden, int64_t dim, int64_t shared_hidden);

}  // namespace soliton::cuda
