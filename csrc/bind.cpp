// The Python module engine._native: addresses and numbers in, nothing checked here (the callers in
// engine/ have checked everything).
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <vector>

#include "cpu/attention.h"
#include "cpu/kernels.h"
#include "layout.h"
#include "loading.h"
#include "pool.h"
#include "tape.h"

namespace nb = nanobind;

namespace soliton::bindings {
namespace {

template <typename T>
T* at(uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

// By the buffer protocol: ndarray.ctypes.data, measured, takes more than ten times as long.
uintptr_t address(nb::handle array) {
    Py_buffer view;
    if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_STRIDED_RO) != 0) {
        throw nb::python_error();
    }
    const auto address = reinterpret_cast<uintptr_t>(view.buf);
    PyBuffer_Release(&view);
    return address;
}

// Row and column of the first weight that is not finite, row -1 when there is none.
std::tuple<int64_t, int64_t> pack(uintptr_t rows, SourceType source, int64_t n_in, Layout layout,
                                  uintptr_t panels, int64_t begin_panel, int64_t end_panel) {
    const PackArgs args = {
        .rows = at<const int64_t>(rows),
        .source = source,
        .n_in = n_in,
        .layout = layout,
        .panels = at<void>(panels),
        .begin_panel = begin_panel,
        .end_panel = end_panel,
    };
    const nb::gil_scoped_release unlocked;
    const WeightIndex bad = pack_on_all_threads(args);
    return {bad.row, bad.column};
}

uint64_t checksum(uintptr_t bytes, int64_t n_bytes) {
    const nb::gil_scoped_release unlocked;
    return checksum_on_all_threads(at<const std::byte>(bytes), n_bytes);
}

using SampleTuple = std::tuple<int, int64_t, double, double, double, std::vector<int32_t>,
                               std::vector<double>, std::vector<double>>;

SampleTuple sample(uintptr_t logits, uintptr_t work, int64_t vocab_size, double temperature,
                   int64_t top_k, double top_p, double min_p, double u, double repetition_penalty,
                   uintptr_t repetition_ids, int64_t n_repetition_ids, uintptr_t delta_ids,
                   uintptr_t deltas, int64_t n_deltas, int64_t n_top) {
    const SampleArgs args = {
        .logits = at<const float>(logits),
        .work = at<float>(work),
        .vocab_size = vocab_size,
        .temperature = temperature,
        .top_k = top_k,
        .top_p = top_p,
        .min_p = min_p,
        .u = u,
        .repetition_penalty = static_cast<float>(repetition_penalty),
        .repetition_ids = at<const int32_t>(repetition_ids),
        .n_repetition_ids = n_repetition_ids,
        .delta_ids = at<const int32_t>(delta_ids),
        .deltas = at<const float>(deltas),
        .n_deltas = n_deltas,
        .n_top = n_top,
    };
    const size_t room = static_cast<size_t>(n_top < vocab_size ? n_top : vocab_size);
    std::vector<int32_t> top_ids(room);
    std::vector<double> top_logprobs(room);
    std::vector<double> top_p_sampled(room);
    SampleOutput out = {};
    out.top_ids = top_ids.data();
    out.top_logprobs_raw = top_logprobs.data();
    out.top_p_sampled = top_p_sampled.data();
    Status status;
    {
        const nb::gil_scoped_release unlocked;
        status = soliton::sample(args, out);
    }
    const size_t n_written = static_cast<size_t>(out.n_top);
    top_ids.resize(n_written);
    top_logprobs.resize(n_written);
    top_p_sampled.resize(n_written);
    return {status,          out.token_id, out.p_raw,    out.p_sampled,
            out.logprob_raw, top_ids,      top_logprobs, top_p_sampled};
}

Matrix matrix_at(uintptr_t panels, int64_t n_out, int64_t n_in, Layout layout) {
    return {at<const void>(panels), n_out, n_in, layout};
}

void append_embed(Tape& tape, uintptr_t panels, int64_t n_out, int64_t n_in, Layout layout,
                  uintptr_t out) {
    tape.append<&embed>("embed", EmbedArgs{
                                     .table = matrix_at(panels, n_out, n_in, layout),
                                     .out = at<float>(out),
                                 });
}

void append_norm_linear(Tape& tape, uintptr_t residual_in, uintptr_t branch, uintptr_t residual_out,
                        uintptr_t norm, float eps, uintptr_t panels, int64_t n_out, int64_t n_in,
                        Layout layout, uintptr_t bias, uintptr_t out, Epilogue epilogue,
                        uintptr_t scratch) {
    tape.append<&norm_linear>("norm_linear",
                              NormLinearArgs{
                                  .residual_in = at<const float>(residual_in),
                                  .branch = at<const float>(branch),
                                  .residual_out = at<float>(residual_out),
                                  .norm = at<const float>(norm),
                                  .eps = eps,
                                  .matrix = matrix_at(panels, n_out, n_in, layout),
                                  .bias = at<const float>(bias),
                                  .out = at<float>(out),
                                  .epilogue = epilogue,
                                  .scratch = at<void>(scratch),
                              },
                              static_cast<size_t>(linear_worker_bytes(n_in)));
}

void append_linear(Tape& tape, uintptr_t x, uintptr_t panels, int64_t n_out, int64_t n_in,
                   Layout layout, uintptr_t bias, uintptr_t out, uintptr_t scratch) {
    tape.append<&linear>("linear",
                         LinearArgs{
                             .x = at<const float>(x),
                             .matrix = matrix_at(panels, n_out, n_in, layout),
                             .bias = at<const float>(bias),
                             .out = at<float>(out),
                             .scratch = at<void>(scratch),
                         },
                         static_cast<size_t>(linear_worker_bytes(n_in)));
}

void append_attention(Tape& tape, uintptr_t qkv, uintptr_t k_cache, uintptr_t v_cache,
                      uintptr_t k_scales, uintptr_t v_scales, KvType kv, int64_t n_heads,
                      int64_t n_kv_heads, int64_t head_dim, int64_t max_seq_len, uintptr_t q_norm,
                      uintptr_t k_norm, float eps, uintptr_t cos, uintptr_t sin,
                      int64_t rotary_half, int64_t window, float scale, uintptr_t scratch,
                      uintptr_t out) {
    tape.append<&attention>("attention",
                            AttentionArgs{
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
                                .scratch = at<float>(scratch),
                                .out = at<float>(out),
                            },
                            sizeof(AttentionWork));
}

void append_read(Tape& tape, uintptr_t words, int64_t n_words, int64_t piece_words,
                 uintptr_t sums) {
    tape.append<&read_memory>("read", ReadArgs{
                                          .words = at<const uint64_t>(words),
                                          .n_words = n_words,
                                          .piece_words = piece_words,
                                          .sums = at<uint64_t>(sums),
                                      });
}

bool run_tape(const Tape& tape, uintptr_t state) {
    const nb::gil_scoped_release unlocked;
    return tape.run(*at<const StepState>(state));
}

std::vector<int64_t> profile_tape(const Tape& tape, uintptr_t state) {
    std::vector<int64_t> ns(tape.size());
    const nb::gil_scoped_release unlocked;
    tape.run(*at<const StepState>(state), ns.data());
    return ns;
}

std::vector<std::string> tape_names(const Tape& tape) {
    std::vector<std::string> names;
    for (size_t i = 0; i < tape.size(); ++i) {
        names.emplace_back(tape.name(i));
    }
    return names;
}

std::vector<std::string> supported_isas() {
    std::vector<std::string> names;
    for (int i = 0; supported_isa(i) != nullptr; ++i) {
        names.emplace_back(supported_isa(i));
    }
    return names;
}

}  // namespace
}  // namespace soliton::bindings

NB_MODULE(_native, module) {
    namespace bindings = soliton::bindings;
    using namespace nb::literals;

    module.attr("OK") = static_cast<int>(soliton::kOk);
    module.attr("BAD_LOGITS") = static_cast<int>(soliton::kBadLogits);
    module.attr("BAD_ADJUSTED") = static_cast<int>(soliton::kBadAdjusted);
    module.attr("BAD_ID") = static_cast<int>(soliton::kBadId);
    module.def("isa", [] { return soliton::cpu_kernels().isa; });
    module.def("supported_isas", &bindings::supported_isas);
    module.def("select_isa", &soliton::select_isa);
    module.def("address", &bindings::address);
    module.def("sample", &bindings::sample);

    module.def("set_threads", &soliton::set_threads, "count"_a,
               "processors"_a = std::vector<int>());
    module.def("threads", &soliton::threads);

    nb::enum_<soliton::Layout>(module, "Layout")
        .value("F32", soliton::Layout::kF32)
        .value("BF16", soliton::Layout::kBf16)
        .value("Q8", soliton::Layout::kQ8)
        .value("Q4", soliton::Layout::kQ4);
    nb::enum_<soliton::SourceType>(module, "SourceType")
        .value("F32", soliton::SourceType::kF32)
        .value("F16", soliton::SourceType::kF16)
        .value("BF16", soliton::SourceType::kBf16);
    module.def("pack", &bindings::pack, nb::kw_only(), "rows"_a, "source"_a, "n_in"_a, "layout"_a,
               "panels"_a, "begin_panel"_a, "end_panel"_a);
    module.attr("LAYOUT_VERSION") = soliton::kLayoutVersion;
    module.def("checksum", &bindings::checksum, "bytes"_a, "n_bytes"_a);
    nb::enum_<soliton::Epilogue>(module, "Epilogue")
        .value("NONE", soliton::Epilogue::kNone)
        .value("SILU_GATE", soliton::Epilogue::kSiluGate);
    nb::enum_<soliton::KvType>(module, "KvType")
        .value("F32", soliton::KvType::kF32)
        .value("BF16", soliton::KvType::kBf16)
        .value("INT8", soliton::KvType::kInt8);
    module.def("linear_scratch_bytes", &soliton::linear_scratch_bytes, "n_in"_a, "max_rows"_a);
    module.def("attention_scratch_floats", &soliton::attention_scratch_floats, "n_heads"_a,
               "head_dim"_a, "max_seq_len"_a);

    // Ops are appended by keyword: addresses are easily mixed up.
    nb::class_<soliton::Tape>(module, "Tape")
        .def(nb::init<>())
        .def("embed", &bindings::append_embed, nb::kw_only(), "panels"_a, "n_out"_a, "n_in"_a,
             "layout"_a, "out"_a)
        .def("norm_linear", &bindings::append_norm_linear, nb::kw_only(), "residual_in"_a,
             "branch"_a, "residual_out"_a, "norm"_a, "eps"_a, "panels"_a, "n_out"_a, "n_in"_a,
             "layout"_a, "bias"_a, "out"_a, "epilogue"_a, "scratch"_a)
        .def("linear", &bindings::append_linear, nb::kw_only(), "x"_a, "panels"_a, "n_out"_a,
             "n_in"_a, "layout"_a, "bias"_a, "out"_a, "scratch"_a)
        .def("attention", &bindings::append_attention, nb::kw_only(), "qkv"_a, "k_cache"_a,
             "v_cache"_a, "k_scales"_a, "v_scales"_a, "kv"_a, "n_heads"_a, "n_kv_heads"_a,
             "head_dim"_a, "max_seq_len"_a, "q_norm"_a, "k_norm"_a, "eps"_a, "cos"_a, "sin"_a,
             "rotary_half"_a, "window"_a, "scale"_a, "scratch"_a, "out"_a)
        .def("read", &bindings::append_read, nb::kw_only(), "words"_a, "n_words"_a, "piece_words"_a,
             "sums"_a)
        .def("run", &bindings::run_tape, "state"_a)
        .def("profile", &bindings::profile_tape, "state"_a)
        .def("names", &bindings::tape_names)
        .def("__len__", &soliton::Tape::size);
}
