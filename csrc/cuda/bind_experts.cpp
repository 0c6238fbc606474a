// The mixture of experts for engine.native._cuda. engine/device/cuda/experts.py calls it.
#include <cstdint>

#include "bind.h"
#include "experts.h"
#include "tape.h"

namespace nb = nanobind;

namespace soliton::cuda::bindings {
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

ExpertBank bank_of(uintptr_t gate_ups, uintptr_t downs, Layout gate_up_layout, Layout down_layout,
                   uintptr_t gate_up_bias, uintptr_t down_bias, int64_t hidden) {
    return {
        .gate_ups = at<const void* const>(gate_ups),
        .downs = at<const void* const>(downs),
        .gate_up_layout = gate_up_layout,
        .down_layout = down_layout,
        .gate_up_bias = at<const float>(gate_up_bias),
        .down_bias = at<const float>(down_bias),
        .hidden = hidden,
    };
}

SharedExpert shared_of(uintptr_t gate_up, uintptr_t down, Layout gate_up_layout, Layout down_layout,
                       uintptr_t gate_up_bias, uintptr_t down_bias, int64_t hidden, int64_t dim) {
    return {
        .gate_up = {at<const void>(gate_up), 2 * hidden, dim, gate_up_layout},
        .down = {at<const void>(down), dim, hidden, down_layout},
        .gate_up_bias = at<const float>(gate_up_bias),
        .down_bias = at<const float>(down_bias),
    };
}

void append_experts(Tape& tape, uintptr_t x, uintptr_t norm, float eps, uintptr_t router,
                    int64_t router_width, const Routing& routing, const ExpertBank& routed,
                    const SharedExpert& shared, bool has_shared_gate, Epilogue epilogue,
                    uintptr_t residual, float scale, uintptr_t out, int64_t dim,
                    uintptr_t scratch) {
    tape.append<&experts>("experts", ExpertsArgs{
                                         .x = at<const float>(x),
                                         .norm = at<const float>(norm),
                                         .eps = eps,
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
                                         .scratch = at<void>(scratch),
                                     });
}

void run_route(uintptr_t router, int64_t router_width, const Routing& routing, int64_t n_rows,
               uintptr_t experts, uintptr_t weights, uintptr_t stream) {
    const RouteArgs args = {
        .router = at<const float>(router),
        .router_width = router_width,
        .routing = routing,
        .n_rows = n_rows,
        .experts = at<int32_t>(experts),
        .weights = at<float>(weights),
    };
    check(route(args, stream_at(stream)), "route");
}

}  // namespace

void bind_experts(nb::module_& module, nb::class_<Tape>& tape) {
    using namespace nb::literals;
    module.attr("MAX_USED_EXPERTS") = kMostUsed;
    module.attr("MAX_EXPERT_GROUPS") = kMostExpertGroups;
    nb::enum_<Scoring>(module, "Scoring")
        .value("SOFTMAX", Scoring::kSoftmax)
        .value("SIGMOID", Scoring::kSigmoid)
        .value("CHOSEN_SOFTMAX", Scoring::kChosenSoftmax)
        .value("SPARSE_MIXER", Scoring::kSparseMixer);
    // A name of its own each, and made by functions: their fields are read by native code alone.
    nb::class_<Routing>(module, "Routing");
    nb::class_<ExpertBank>(module, "ExpertBank");
    nb::class_<SharedExpert>(module, "SharedExpert");
    module.def("routing", &routing_of, nb::kw_only(), "n_experts"_a, "n_used"_a, "scoring"_a,
               "selection_bias"_a, "expert_scales"_a, "n_groups"_a, "n_groups_used"_a,
               "group_best"_a, "is_renormalized"_a, "scale"_a, "spread"_a);
    module.def("expert_bank", &bank_of, nb::kw_only(), "gate_ups"_a, "downs"_a, "gate_up_layout"_a,
               "down_layout"_a, "gate_up_bias"_a, "down_bias"_a, "hidden"_a);
    module.def("shared_expert", &shared_of, nb::kw_only(), "gate_up"_a, "down"_a,
               "gate_up_layout"_a, "down_layout"_a, "gate_up_bias"_a, "down_bias"_a, "hidden"_a,
               "dim"_a);
    module.def("no_shared_expert", [] { return SharedExpert{}; });
    module.def("experts_scratch_bytes", &experts_scratch_bytes, nb::kw_only(), "n_used"_a,
               "hidden"_a, "dim"_a, "shared_hidden"_a);
    module.def("route", &run_route, nb::call_guard<nb::gil_scoped_release>(), nb::kw_only(),
               "router"_a, "router_width"_a, "routing"_a, "n_rows"_a, "experts"_a, "weights"_a,
               "stream"_a);
    tape.def("experts", &append_experts, nb::kw_only(), "x"_a, "norm"_a, "eps"_a, "router"_a,
             "router_width"_a, "routing"_a, "routed"_a, "shared"_a, "has_shared_gate"_a,
             "epilogue"_a, "residual"_a, "scale"_a, "out"_a, "dim"_a, "scratch"_a);
}

}  // namespace soliton::cuda::bindings
