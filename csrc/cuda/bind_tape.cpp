// A step's ops for engine.native._cuda: a tape, and for each op a method that appends it.
// engine/device/cuda/program.py calls them.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "bind.h"
#include "ops.h"
#include "tape.h"

namespace nb = nanobind;

namespace soliton::cuda::bindings {
namespace {

Matrix matrix_at(uintptr_t weights, int64_t n_out, int64_t n_in, Layout layout) {
    return {at<const void>(weights), n_out, n_in, layout};
}

void append_embed(Tape& tape, uintptr_t weights, int64_t n_out, int64_t n_in, Layout layout,
                  uintptr_t out, float scale) {
    tape.append<&embed>("embed", EmbedArgs{
                                     .table = matrix_at(weights, n_out, n_in, layout),
                                     .out = at<float>(out),
                                     .scale = scale,
                                 });
}

void append_add_norm(Tape& tape, uintptr_t x, uintptr_t norm, float eps, uintptr_t residual,
                     float scale, uintptr_t factor, uintptr_t out, int64_t dim, int64_t width) {
    tape.append<&add_norm>("add_norm", AddNormArgs{
                                           .x = at<const float>(x),
                                           .norm = at<const float>(norm),
                                           .eps = eps,
                                           .residual = at<const float>(residual),
                                           .scale = scale,
                                           .factor = at<const float>(factor),
                                           .out = at<float>(out),
                                           .dim = dim,
                                           .width = width,
                                       });
}

void append_norm_linear(Tape& tape, uintptr_t residual, uintptr_t norm, float eps,
                        uintptr_t weights, int64_t n_out, int64_t n_in, Layout layout,
                        uintptr_t bias, uintptr_t out, Epilogue epilogue, float softcap,
                        float scale) {
    tape.append<&norm_linear>("norm_linear", NormLinearArgs{
                                                 .residual = at<const float>(residual),
                                                 .norm = at<const float>(norm),
                                                 .eps = eps,
                                                 .matrix = matrix_at(weights, n_out, n_in, layout),
                                                 .bias = at<const float>(bias),
                                                 .out = at<float>(out),
                                                 .epilogue = epilogue,
                                                 .softcap = softcap,
                                                 .scale = scale,
                                             });
}

void append_linear(Tape& tape, uintptr_t x, uintptr_t weights, int64_t n_out, int64_t n_in,
                   Layout layout, uintptr_t bias, uintptr_t residual, uintptr_t out, float scale) {
    tape.append<&linear>("linear", LinearArgs{
                                       .x = at<const float>(x),
                                       .matrix = matrix_at(weights, n_out, n_in, layout),
                                       .bias = at<const float>(bias),
                                       .residual = at<const float>(residual),
                                       .out = at<float>(out),
                                       .scale = scale,
                                   });
}

// `next`: (address, number of bytes) of what the next ops read first; as many as there is room for.
void append_attention(Tape& tape, uintptr_t qkv, uintptr_t k_cache, uintptr_t v_cache,
                      uintptr_t k_scales, uintptr_t v_scales, KvType kv, int64_t n_heads,
                      int64_t n_kv_heads, int64_t head_dim, int64_t max_seq_len, uintptr_t q_norm,
                      uintptr_t k_norm, float eps, uintptr_t cos, uintptr_t sin,
                      int64_t rotary_half, int64_t window, float scale, float softcap,
                      uintptr_t sinks, uintptr_t scratch, uintptr_t out,
                      const std::vector<std::pair<uintptr_t, int64_t>>& next) {
    AttentionArgs args = {
        .qkv = at<const float>(qkv),
        .k_cache = at<void>(k_cache),
        .v_cache = at<void>(v_cache),
        .k_scales = at<float>(k_scales),
        .v_scales = at<float>(v_scales),
        .kv = kv,
        .n_heads = n_heads,
        .n_kv_heads = n_kv_heads,
        .head_dim = head_dim,
        .max_seq_len = max_seq_len,
        .q_norm = at<const float>(q_norm),
        .k_norm = at<const float>(k_norm),
        .eps = eps,
        .cos = at<const float>(cos),
        .sin = at<const float>(sin),
        .rotary_half = rotary_half,
        .window = window,
        .scale = scale,
        .softcap = softcap,
        .sinks = at<const float>(sinks),
        .scratch = at<void>(scratch),
        .out = at<float>(out),
        .next = {},
    };
    for (size_t i = 0; i < std::min(next.size(), std::size(args.next)); ++i) {
        args.next[i] = {at<const void>(next[i].first), next[i].second};
    }
    tape.append<&attention>("attention", args);
}

Pass pass_of(uintptr_t state, int n_rows, int64_t max_length, uintptr_t stream) {
    return {
        .state = at<const StepState>(state),
        .n_rows = n_rows,
        .max_length = max_length,
        .stream = stream_at(stream),
        .knobs = knobs(),
    };
}

void run_tape(const Tape& tape, uintptr_t state, int n_rows, int64_t max_length, uintptr_t stream) {
    const nb::gil_scoped_release unlocked;
    tape.run(pass_of(state, n_rows, max_length, stream));
}

void prepare_tape(Tape& tape, uintptr_t state, int n_rows, int64_t max_length, uintptr_t stream) {
    const nb::gil_scoped_release unlocked;
    tape.prepare(pass_of(state, n_rows, max_length, stream));
}

void replay_tape(Tape& tape, uintptr_t state, int n_rows, int64_t max_length, uintptr_t stream) {
    const nb::gil_scoped_release unlocked;
    tape.replay(pass_of(state, n_rows, max_length, stream));
}

std::vector<int64_t> profile_tape(const Tape& tape, uintptr_t state, int n_rows, int64_t max_length,
                                  uintptr_t stream) {
    std::vector<int64_t> ns(tape.size());
    const nb::gil_scoped_release unlocked;
    tape.profile(pass_of(state, n_rows, max_length, stream), ns.data());
    return ns;
}

std::vector<std::string> tape_names(const Tape& tape) {
    std::vector<std::string> names;
    for (size_t i = 0; i < tape.size(); ++i) {
        names.emplace_back(tape.name(i));
    }
    return names;
}

}  // namespace

void bind_tape(nb::module_& module) {
    using namespace nb::literals;
    nb::enum_<Epilogue>(module, "Epilogue")
        .value("NONE", Epilogue::kNone)
        .value("SILU_GATE", Epilogue::kSiluGate)
        .value("GELU_GATE", Epilogue::kGeluGate)
        .value("GELU_TANH_GATE", Epilogue::kGeluTanhGate)
        .value("CLAMPED_GATE", Epilogue::kClampedGate)
        .value("GELU", Epilogue::kGelu)
        .value("GELU_TANH", Epilogue::kGeluTanh)
        .value("RELU2", Epilogue::kRelu2)
        .value("SOFTCAP", Epilogue::kSoftcap);
    module.def("attention_scratch_bytes", &attention_scratch_bytes, "n_heads"_a, "head_dim"_a,
               "max_seq_len"_a);

    // Ops take keywords only, because addresses are easy to mix up.
    auto tape = nb::class_<Tape>(module, "Tape");
    tape.def(nb::init<>())
        .def("embed", &append_embed, nb::kw_only(), "weights"_a, "n_out"_a, "n_in"_a, "layout"_a,
             "out"_a, "scale"_a = 1.0f)
        .def("add_norm", &append_add_norm, nb::kw_only(), "x"_a, "norm"_a, "eps"_a, "residual"_a,
             "scale"_a, "factor"_a, "out"_a, "dim"_a, "width"_a)
        .def("norm_linear", &append_norm_linear, nb::kw_only(), "residual"_a, "norm"_a, "eps"_a,
             "weights"_a, "n_out"_a, "n_in"_a, "layout"_a, "bias"_a, "out"_a, "epilogue"_a,
             "softcap"_a = 0.0f, "scale"_a = 1.0f)
        .def("linear", &append_linear, nb::kw_only(), "x"_a, "weights"_a, "n_out"_a, "n_in"_a,
             "layout"_a, "bias"_a, "residual"_a, "out"_a, "scale"_a = 1.0f)
        .def("attention", &append_attention, nb::kw_only(), "qkv"_a, "k_cache"_a, "v_cache"_a,
             "k_scales"_a, "v_scales"_a, "kv"_a, "n_heads"_a, "n_kv_heads"_a, "head_dim"_a,
             "max_seq_len"_a, "q_norm"_a, "k_norm"_a, "eps"_a, "cos"_a, "sin"_a, "rotary_half"_a,
             "window"_a, "scale"_a, "softcap"_a = 0.0f, "sinks"_a = 0, "scratch"_a, "out"_a,
             "next"_a)
        .def("prepare", &prepare_tape, "state"_a, "n_rows"_a, "max_length"_a, "stream"_a)
        .def("run", &run_tape, "state"_a, "n_rows"_a, "max_length"_a, "stream"_a)
        .def("replay", &replay_tape, "state"_a, "n_rows"_a, "max_length"_a, "stream"_a)
        .def("profile", &profile_tape, "state"_a, "n_rows"_a, "max_length"_a, "stream"_a)
        .def("names", &tape_names)
        .def("__len__", &Tape::size);
    bind_experts(module, tape);
}

}  // namespace soliton::cuda::bindings
