// Mixtures of experts for cuda_driver.cpp: steps of every scoring and layout, and rows of a prompt.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda_driver_memory.h"
#include "experts.h"
#include "prefill.h"

namespace soliton::cuda {

// Not multiples of the sizes that kernels divide by.
inline constexpr int64_t kExperts = 13;
inline constexpr int64_t kUsed = 3;
inline constexpr int64_t kInputs = 72;
inline constexpr int64_t kInner = 40;

// Addresses of so many matrices, in device memory.
inline const void* const* table(Memory& memory, Layout layout, int64_t n_out, int64_t n_in,
                                bool gated) {
    std::vector<const void*> places;
    for (int64_t i = 0; i < kExperts; ++i) {
        places.push_back(matrix(memory, layout, n_out, n_in, gated).weights);
    }
    const auto n_bytes = static_cast<int64_t>(places.size() * sizeof places[0]);
    return static_cast<const void* const*>(memory.copied(places.data(), n_bytes));
}

inline Routing routing(Memory& memory, Scoring scoring) {
    const bool has_groups = scoring == Scoring::kSigmoid;
    return {
        .n_experts = has_groups ? kExperts - 1 : kExperts,
        .n_used = kUsed,
        .scoring = scoring,
        .selection_bias = has_groups ? memory.floats(kExperts) : nullptr,
        .expert_scales = memory.floats(kExperts),
        .n_groups = has_groups ? 4 : 1,
        .n_groups_used = has_groups ? 2 : 1,
        .group_best = has_groups ? 2 : 1,
        .is_renormalized = scoring == Scoring::kSoftmax,
        .scale = 1.5f,
        .spread = 0.5f,
    };
}

inline ExpertsArgs experts_args(Memory& memory, Layout layout, Scoring scoring, int64_t n_rows) {
    const bool has_shared = scoring == Scoring::kSoftmax && layout != Layout::kMxfp4;
    SharedExpert shared = {};
    if (has_shared) {
        shared = {matrix(memory, layout, 2 * kInner, kInputs, true),
                  matrix(memory, layout, kInputs, kInner), nullptr, memory.floats(kInputs)};
    }
    return {
        .x = memory.floats(n_rows * kInputs),
        .norm = memory.floats(kInputs),
        .eps = 1e-5f,
        .router = memory.floats(n_rows * (kExperts + 1)),
        .router_width = kExperts + 1,
        .routing = routing(memory, scoring),
        .routed = {table(memory, layout, 2 * kInner, kInputs, true),
                   table(memory, layout, kInputs, kInner, false), layout, layout,
                   memory.floats(kExperts * 2 * kInner), memory.floats(kExperts * kInputs), kInner},
        .shared = shared,
        .has_shared_gate = has_shared,
        .epilogue = Epilogue::kClampedGate,
        .residual = memory.floats(n_rows * kInputs),
        .scale = 0.5f,
        .out = memory.floats(n_rows * kInputs),
        .dim = kInputs,
        .scratch =
            memory.zeros(experts_scratch_bytes(kUsed, kInner, kInputs, has_shared ? kInner : 0)),
    };
}

// Two layers one after the other, op by op and as a graph; the norm behind them.
inline void experts_step(Layout layout, Scoring scoring, int n_rows) {
    Memory memory;
    Tape tape;
    const ExpertsArgs args = experts_args(memory, layout, scoring, n_rows);
    tape.append<&experts>("experts", args);
    tape.append<&experts>("experts", args);
    tape.append<&add_norm>("add_norm", AddNormArgs{.x = args.out,
                                                   .norm = memory.floats(kInputs),
                                                   .eps = 1e-5f,
                                                   .residual = args.residual,
                                                   .scale = 0.5f,
                                                   .factor = memory.floats(1),
                                                   .out = memory.floats(n_rows * kInputs),
                                                   .dim = kInputs,
                                                   .width = kInputs});
    const Pass pass = {.state = static_cast<const StepState*>(memory.zeros(sizeof(StepState))),
                       .n_rows = n_rows,
                       .max_length = 1024,
                       .stream = nullptr};
    tape.run(pass);
    wait();
    tape.replay(pass);
    tape.replay(pass);
    wait();
}

inline void experts_of_prompt(Scoring scoring) {
    Memory memory;
    const int64_t n_rows = 37;
    check(route({.router = memory.floats(n_rows * kExperts),
                 .router_width = kExperts,
                 .routing = routing(memory, scoring),
                 .n_rows = n_rows,
                 .experts = static_cast<int32_t*>(memory.zeros(n_rows * kUsed * 4)),
                 .weights = memory.floats(n_rows * kUsed)},
                nullptr),
          "route");
    const Matrix blocks = matrix(memory, Layout::kMxfp4, 2 * kInner, kInputs, true);
    check(unpack({blocks, true, 3, 2 * kInner - 1, memory.bytes((2 * kInner - 4) * kInputs * 2)},
                 nullptr),
          "unpack");
    wait();
}

inline void all_experts(bool is_short) {
    for (const Scoring scoring :
         {Scoring::kSoftmax, Scoring::kSigmoid, Scoring::kChosenSoftmax, Scoring::kSparseMixer}) {
        experts_step(Layout::kBf16, scoring, 3);
        experts_of_prompt(scoring);
    }
    for (const Layout layout : {Layout::kQ8, Layout::kQ4, Layout::kMxfp4}) {
        for (const int n_rows : is_short ? std::vector{5} : std::vector{1, 5, kMaxRows}) {
            experts_step(layout, Scoring::kSoftmax, n_rows);
        }
    }
}

}  // namespace soliton::cuda
