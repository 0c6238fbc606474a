// The mixture of experts for engine.native._cpu. engine/device/cpu/experts.py calls it.
#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>

#include "bind.h"
#include "bind_memory.h"
#include "ops.h"
#include "tape.h"

namespace nb = nanobind;

namespace soliton::bindings {
namespace {

Routing routing_of(int64_t n_experts, int64_t n_used, Scoring scoring, uintptr_t selection_bias,
                   uintptr_t expert_scales, int64_t n_groups, int64_t n_groups_used,
                   int64_t group_best, bool is_renormalized, float scale, float spread) {
    return {
        .n_experts = n_experts,
        .n_used = n_used,
        .scoring = scoring,
        .selection_bias = at<const float>(selection_bias),
        .expert_scales = at<const float>(expert_scales),
        .n_groups = n_groups,
        .n_groups_used = n_groups_used,
        .group_best = group_best,
        .is_renormalized = is_renormalized,
        .scale = scale,
        .spread = spread,
    };
}

ExpertBank bank_of(const Matrix& gate, const Matrix& up, const Matrix& down, uintptr_t gates,
                   uintptr_t ups, uintptr_t downs, uintptr_t gate_up_bias, uintptr_t down_bias,
                   int64_t hidden) {
    return {
        .gate = gate,
        .up = up,
        .down = down,
        .gates = at<const void* const>(gates),
        .ups = at<const void* const>(ups),
        .downs = at<const void* const>(downs),
        .gate_up_bias = at<const float>(gate_up_bias),
        .down_bias = at<const float>(down_bias),
        .hidden = hidden,
    };
}

ExpertsArgs experts_of(uintptr_t x, const Norm& norm, uintptr_t router, int64_t router_width,
                       const Routing& routing, const ExpertBank& routed, const ExpertBank& shared,
                       bool has_shared_gate, Epilogue epilogue, uintptr_t residual, float scale,
                       uintptr_t out, int64_t dim, int64_t max_rows) {
    return {
        .x = at<const float>(x),
        .norm = norm,
        .router = at<const float>(router),
        .router_width = router_width,
        .routing = routing,
        .routed = routed,
        .shared = shared,
        .has_shared_gate = has_shared_gate,
        .epilogue = epilogue,
        .residual = at<const float>(residual),
        .scale = scale,
        .out = at<float>(out),
        .dim = dim,
        .max_rows = max_rows,
        .scratch = nullptr,
    };
}

void append_experts(Tape& tape, ExpertsArgs args, uintptr_t scratch) {
    args.scratch = at<void>(scratch);
    tape.append<&experts>("experts", args, static_cast<size_t>(experts_worker_bytes(args)));
}

}  // namespace

void bind_experts(nb::module_& module) {
    using namespace nb::literals;
    nb::enum_<Scoring>(module, "Scoring")
        .value("SOFTMAX", Scoring::kSoftmax)
        .value("SIGMOID", Scoring::kSigmoid)
        .value("CHOSEN_SOFTMAX", Scoring::kChosenSoftmax)
        .value("SPARSE_MIXER", Scoring::kSparseMixer);
    nb::class_<Routing>(module, "Routing")
        .def(nb::new_(&routing_of), nb::kw_only(), "n_experts"_a, "n_used"_a, "scoring"_a,
             "selection_bias"_a, "expert_scales"_a, "n_groups"_a, "n_groups_used"_a, "group_best"_a,
             "is_renormalized"_a, "scale"_a, "spread"_a);
    nb::class_<ExpertBank>(module, "ExpertBank")
        .def(nb::new_(&bank_of), nb::kw_only(), "gate"_a, "up"_a, "down"_a, "gates"_a, "ups"_a,
             "downs"_a, "gate_up_bias"_a, "down_bias"_a, "hidden"_a);
    nb::class_<ExpertsArgs>(module, "Experts")
        .def(nb::new_(&experts_of), nb::kw_only(), "x"_a, "norm"_a, "router"_a, "router_width"_a,
             "routing"_a, "routed"_a, "shared"_a, "has_shared_gate"_a, "epilogue"_a, "residual"_a,
             "scale"_a, "out"_a, "dim"_a, "max_rows"_a)
        .def("scratch_bytes", &experts_scratch_bytes);
    module.def("append_experts", &append_experts, "tape"_a, "args"_a, nb::kw_only(), "scratch"_a);
}

}  // namespace soliton::bindings
