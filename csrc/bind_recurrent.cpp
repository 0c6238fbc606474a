// The ops of recurrent layers for engine.native._cpu. engine/device/cpu/recurrent.py appends them.
#include <cstddef>
#include <cstdint>

#include "bind.h"
#include "bind_memory.h"
#include "cpu/recurrent.h"
#include "recurrent.h"
#include "tape.h"

namespace nb = nanobind;

namespace soliton::bindings {
namespace {

States states_of(uintptr_t slots, int64_t n_state, uintptr_t log, int64_t n_row, int64_t n_logged,
                 uintptr_t words) {
    return {
        .slots = at<float>(slots),
        .n_state = n_state,
        .log = at<float>(log),
        .n_row = n_row,
        .n_logged = n_logged,
        .pass = at<const StatePass>(words),
    };
}

void append_short_conv(Tape& tape, uintptr_t x, const States& states, uintptr_t conv,
                       uintptr_t bias, int64_t kernel, int64_t dim, uintptr_t out) {
    const ShortConvArgs args = {
        .x = at<const float>(x),
        .states = states,
        .conv = at<const float>(conv),
        .bias = at<const float>(bias),
        .kernel = kernel,
        .dim = dim,
        .out = at<float>(out),
    };
    tape.append<&short_conv>("short_conv", args,
                             static_cast<size_t>(short_conv_worker_bytes(args)));
}

void append_delta_net(Tape& tape, uintptr_t x, const States& states, uintptr_t conv, int64_t kernel,
                      int64_t n_k_heads, int64_t n_v_heads, int64_t k_dim, int64_t v_dim,
                      bool takes_turns, uintptr_t a_log, bool is_rate, uintptr_t dt_bias,
                      uintptr_t norm, float eps, uintptr_t out) {
    const DeltaNetArgs args = {
        .x = at<const float>(x),
        .states = states,
        .conv = at<const float>(conv),
        .kernel = kernel,
        .n_k_heads = n_k_heads,
        .n_v_heads = n_v_heads,
        .k_dim = k_dim,
        .v_dim = v_dim,
        .takes_turns = takes_turns,
        .a_log = at<const float>(a_log),
        .is_rate = is_rate,
        .dt_bias = at<const float>(dt_bias),
        .norm = at<const float>(norm),
        .eps = eps,
        .out = at<float>(out),
    };
    tape.append<&delta_net>("delta_net", args, static_cast<size_t>(delta_net_worker_bytes(args)));
}

void append_mamba2(Tape& tape, uintptr_t x, const States& states, uintptr_t conv,
                   uintptr_t conv_bias, int64_t kernel, int64_t n_heads, int64_t n_groups,
                   int64_t head_dim, int64_t state_dim, int64_t chunk_heads, uintptr_t a_log,
                   bool is_rate, uintptr_t dt_bias, float dt_scale, float dt_min, float dt_max,
                   uintptr_t skip, uintptr_t out) {
    const Mamba2Args args = {
        .x = at<const float>(x),
        .states = states,
        .conv = at<const float>(conv),
        .conv_bias = at<const float>(conv_bias),
        .kernel = kernel,
        .n_heads = n_heads,
        .n_groups = n_groups,
        .head_dim = head_dim,
        .state_dim = state_dim,
        .chunk_heads = chunk_heads,
        .a_log = at<const float>(a_log),
        .is_rate = is_rate,
        .dt_bias = at<const float>(dt_bias),
        .dt_scale = dt_scale,
        .dt_min = dt_min,
        .dt_max = dt_max,
        .skip = at<const float>(skip),
        .out = at<float>(out),
    };
    tape.append<&mamba2>("mamba2", args, static_cast<size_t>(mamba2_worker_bytes(args)));
}

void append_gated_norm(Tape& tape, uintptr_t x, uintptr_t gates, int64_t pitch, float gate_scale,
                       uintptr_t norm, int64_t width, int64_t n_groups, bool is_gate_first,
                       float eps) {
    const GatedNormArgs args = {
        .x = at<float>(x),
        .gate = at<const float>(gates),
        .pitch = pitch,
        .gate_scale = gate_scale,
        .norm = at<const float>(norm),
        .width = width,
        .n_groups = n_groups,
        .is_gate_first = is_gate_first,
        .eps = eps,
    };
    tape.append<&gated_norm>("gated_norm", args,
                             static_cast<size_t>(gated_norm_worker_bytes(args)));
}

void append_gate(Tape& tape, uintptr_t x, uintptr_t gates, int64_t width) {
    tape.append<&gate>("gate", GateArgs{
                                   .x = at<float>(x),
                                   .gate = at<const float>(gates),
                                   .width = width,
                               });
}

}  // namespace

void bind_recurrent(nb::module_& module) {
    using namespace nb::literals;
    nb::class_<States>(module, "States")
        .def(nb::new_(&states_of), nb::kw_only(), "slots"_a, "n_state"_a, "log"_a, "n_row"_a,
             "n_logged"_a, "words"_a);
    module.def("append_short_conv", &append_short_conv, "tape"_a, nb::kw_only(), "x"_a, "states"_a,
               "conv"_a, "bias"_a, "kernel"_a, "dim"_a, "out"_a);
    module.def("append_delta_net", &append_delta_net, "tape"_a, nb::kw_only(), "x"_a, "states"_a,
               "conv"_a, "kernel"_a, "n_k_heads"_a, "n_v_heads"_a, "k_dim"_a, "v_dim"_a,
               "takes_turns"_a, "a_log"_a, "is_rate"_a, "dt_bias"_a, "norm"_a, "eps"_a, "out"_a);
    module.def("append_mamba2", &append_mamba2, "tape"_a, nb::kw_only(), "x"_a, "states"_a,
               "conv"_a, "conv_bias"_a, "kernel"_a, "n_heads"_a, "n_groups"_a, "head_dim"_a,
               "state_dim"_a, "chunk_heads"_a, "a_log"_a, "is_rate"_a, "dt_bias"_a, "dt_scale"_a,
               "dt_min"_a, "dt_max"_a, "skip"_a, "out"_a);
    module.def("append_gated_norm", &append_gated_norm, "tape"_a, nb::kw_only(), "x"_a, "gate"_a,
               "pitch"_a, "gate_scale"_a, "norm"_a, "width"_a, "n_groups"_a, "is_gate_first"_a,
               "eps"_a);
    module.def("append_gate", &append_gate, "tape"_a, nb::kw_only(), "x"_a, "gate"_a, "width"_a);
    module.attr("MOST_CONV_ROWS") = kMostConvRows;
    module.attr("MOST_SAVES") = kMostSaves;
}

}  // namespace soliton::bindings
