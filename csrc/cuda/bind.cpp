// The Python module engine._cuda: addresses of device memory and numbers in, nothing checked here
// (the callers in engine/ have checked everything). What CUDA refuses is a RuntimeError.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bind_attention.h"
#include "bind_sample.h"
#include "device.h"
#include "layout.h"
#include "ops.h"
#include "prefill.h"
#include "tape.h"

namespace nb = nanobind;

namespace soliton::cuda::bindings {
namespace {

template <typename T>
T* at(uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

Matrix matrix_at(uintptr_t weights, int64_t n_out, int64_t n_in, Layout layout) {
    return {at<const void>(weights), n_out, n_in, layout};
}

void append_embed(Tape& tape, uintptr_t weights, int64_t n_out, int64_t n_in, Layout layout,
                  uintptr_t out) {
    tape.append<&embed>("embed", EmbedArgs{
                                     .table = matrix_at(weights, n_out, n_in, layout),
                                     .out = at<float>(out),
                                 });
}

void append_norm_linear(Tape& tape, uintptr_t residual_in, uintptr_t branch, uintptr_t residual_out,
                        uintptr_t norm, float eps, uintptr_t weights, int64_t n_out, int64_t n_in,
                        Layout layout, uintptr_t bias, uintptr_t out, Epilogue epilogue) {
    tape.append<&norm_linear>("norm_linear", NormLinearArgs{
                                                 .residual_in = at<const float>(residual_in),
                                                 .branch = at<const float>(branch),
                                                 .residual_out = at<float>(residual_out),
                                                 .norm = at<const float>(norm),
                                                 .eps = eps,
                                                 .matrix = matrix_at(weights, n_out, n_in, layout),
                                                 .bias = at<const float>(bias),
                                                 .out = at<float>(out),
                                                 .epilogue = epilogue,
                                             });
}

void append_linear(Tape& tape, uintptr_t x, uintptr_t weights, int64_t n_out, int64_t n_in,
                   Layout layout, uintptr_t bias, uintptr_t out) {
    tape.append<&linear>("linear", LinearArgs{
                                       .x = at<const float>(x),
                                       .matrix = matrix_at(weights, n_out, n_in, layout),
                                       .bias = at<const float>(bias),
                                       .out = at<float>(out),
                                   });
}

void append_attention(Tape& tape, uintptr_t qkv, uintptr_t k_cache, uintptr_t v_cache,
                      uintptr_t k_scales, uintptr_t v_scales, KvType kv, int64_t n_heads,
                      int64_t n_kv_heads, int64_t head_dim, int64_t max_seq_len, uintptr_t q_norm,
                      uintptr_t k_norm, float eps, uintptr_t cos, uintptr_t sin,
                      int64_t rotary_half, int64_t window, float scale, uintptr_t scratch,
                      uintptr_t out) {
    tape.append<&attention>("attention", AttentionArgs{
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
                                             .scratch = at<void>(scratch),
                                             .out = at<float>(out),
                                         });
}

Pass pass_of(uintptr_t state, int n_rows, int64_t max_length, uintptr_t stream) {
    return {at<const StepState>(state), n_rows, max_length,
            at<std::remove_pointer_t<cudaStream_t>>(stream)};
}

void run_tape(const Tape& tape, uintptr_t state, int n_rows, int64_t max_length, uintptr_t stream) {
    const nb::gil_scoped_release unlocked;
    tape.run(pass_of(state, n_rows, max_length, stream));
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

// ---- Of passes of many rows. ----

cudaStream_t stream_at(uintptr_t stream) {
    return at<std::remove_pointer_t<cudaStream_t>>(stream);
}

void run_unpack(uintptr_t weights, int64_t n_out, int64_t n_in, Layout layout, bool gated,
                int64_t begin, int64_t end, uintptr_t out, uintptr_t stream) {
    const UnpackArgs args = {
        .matrix = matrix_at(weights, n_out, n_in, layout),
        .gated = gated,
        .begin = begin,
        .end = end,
        .out = at<void>(out),
    };
    check(unpack(args, stream_at(stream)), "unpack");
}

void run_add_norm(uintptr_t residual_in, uintptr_t branch, uintptr_t residual_out, uintptr_t norm,
                  float eps, int64_t n_rows, int64_t dim, uintptr_t out, uintptr_t stream) {
    const AddNormArgs args = {
        .residual_in = at<const float>(residual_in),
        .branch = at<const float>(branch),
        .residual_out = at<float>(residual_out),
        .norm = at<const float>(norm),
        .eps = eps,
        .n_rows = n_rows,
        .dim = dim,
        .out = at<void>(out),
    };
    check(add_norm(args, stream_at(stream)), "add_norm");
}

void run_silu_gate(uintptr_t gate_up, int64_t n_rows, int64_t width, uintptr_t out,
                   uintptr_t stream) {
    const SiluGateArgs args = {
        .gate_up = at<const void>(gate_up),
        .n_rows = n_rows,
        .width = width,
        .out = at<void>(out),
    };
    check(silu_gate(args, stream_at(stream)), "silu_gate");
}

void bind_prefill(nb::module_& module) {
    using namespace nb::literals;
    module.def("unpack", &run_unpack, nb::kw_only(), "weights"_a, "n_out"_a, "n_in"_a, "layout"_a,
               "gated"_a, "begin"_a, "end"_a, "out"_a, "stream"_a);
    module.def("add_norm", &run_add_norm, nb::kw_only(), "residual_in"_a, "branch"_a,
               "residual_out"_a, "norm"_a, "eps"_a, "n_rows"_a, "dim"_a, "out"_a, "stream"_a);
    module.def("silu_gate", &run_silu_gate, nb::kw_only(), "gate_up"_a, "n_rows"_a, "width"_a,
               "out"_a, "stream"_a);
}

nb::dict properties(int device) {
    cudaDeviceProp found;
    check(cudaGetDeviceProperties(&found, device), "the properties of the device");
    nb::dict result;
    result["name"] = found.name;
    result["major"] = found.major;
    result["minor"] = found.minor;
    result["n_multiprocessors"] = found.multiProcessorCount;
    result["memory_bytes"] = found.totalGlobalMem;
    result["l2_bytes"] = found.l2CacheSize;
    result["max_shared_bytes"] = found.sharedMemPerBlockOptin;
    return result;
}

void bind_tape(nb::module_& module) {
    using namespace nb::literals;
    // Ops are appended by keyword: addresses are easily mixed up.
    nb::class_<Tape>(module, "Tape")
        .def(nb::init<>())
        .def("embed", &append_embed, nb::kw_only(), "weights"_a, "n_out"_a, "n_in"_a, "layout"_a,
             "out"_a)
        .def("norm_linear", &append_norm_linear, nb::kw_only(), "residual_in"_a, "branch"_a,
             "residual_out"_a, "norm"_a, "eps"_a, "weights"_a, "n_out"_a, "n_in"_a, "layout"_a,
             "bias"_a, "out"_a, "epilogue"_a)
        .def("linear", &append_linear, nb::kw_only(), "x"_a, "weights"_a, "n_out"_a, "n_in"_a,
             "layout"_a, "bias"_a, "out"_a)
        .def("attention", &append_attention, nb::kw_only(), "qkv"_a, "k_cache"_a, "v_cache"_a,
             "k_scales"_a, "v_scales"_a, "kv"_a, "n_heads"_a, "n_kv_heads"_a, "head_dim"_a,
             "max_seq_len"_a, "q_norm"_a, "k_norm"_a, "eps"_a, "cos"_a, "sin"_a, "rotary_half"_a,
             "window"_a, "scale"_a, "scratch"_a, "out"_a)
        .def("run", &run_tape, "state"_a, "n_rows"_a, "max_length"_a, "stream"_a)
        .def("replay", &replay_tape, "state"_a, "n_rows"_a, "max_length"_a, "stream"_a)
        .def("profile", &profile_tape, "state"_a, "n_rows"_a, "max_length"_a, "stream"_a)
        .def("names", &tape_names)
        .def("__len__", &Tape::size);
}

}  // namespace
}  // namespace soliton::cuda::bindings

NB_MODULE(_cuda, module) {
    namespace bindings = soliton::cuda::bindings;
    using namespace nb::literals;
    using namespace soliton::cuda;

    // What is alive when the process ends is no leak: a request that was never finished.
    nb::set_leak_warnings(false);
    module.attr("MAX_ROWS") = kMaxRows;
    module.attr("state_bytes") = sizeof(StepState);
    module.def("properties", &bindings::properties, "device"_a);
    nb::enum_<Layout>(module, "Layout")
        .value("BF16", Layout::kBf16)
        .value("Q8", Layout::kQ8)
        .value("Q4", Layout::kQ4);
    nb::enum_<Epilogue>(module, "Epilogue")
        .value("NONE", Epilogue::kNone)
        .value("SILU_GATE", Epilogue::kSiluGate);
    nb::enum_<KvType>(module, "KvType").value("BF16", KvType::kBf16).value("INT8", KvType::kInt8);
    module.def("attention_scratch_bytes", &attention_scratch_bytes, "n_heads"_a, "head_dim"_a,
               "max_seq_len"_a);
    bindings::bind_tape(module);
    bindings::bind_attention(module);
    bindings::bind_prefill(module);
    bindings::bind_sampler(module);
}
