// The Python module engine.native._cpu: addresses and numbers in, nothing checked here (the callers
// in engine/ have checked everything).
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <iterator>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bind_ngram.h"
#include "cpu/attention.h"
#include "cpu/kernels.h"
#include "cpu/sample/sample.h"
#include "exclusive.h"
#include "layout.h"
#include "loading.h"
#include "philox.h"
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

// What an array of numpy holds, while this lives; nothing if it is not what is wanted.
class Array {
  public:
    // `format`: of one item, as the struct module writes it. size -1: any; else (size,).
    Array(nb::handle array, char format, int64_t size, bool writable = false) {
        const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
        if (PyObject_GetBuffer(array.ptr(), &view_, flags) != 0) {
            PyErr_Clear();
            view_.obj = nullptr;
            return;
        }
        is_right_ = view_.format != nullptr && view_.format[0] == format &&
                    view_.format[1] == '\0' &&
                    (size < 0 || (view_.ndim == 1 && view_.shape[0] == size));
    }
    ~Array() { PyBuffer_Release(&view_); }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;

    bool is_right() const { return is_right_; }
    int64_t size() const { return view_.len / view_.itemsize; }
    template <typename T>
    T* data() const {
        return static_cast<T*>(view_.buf);
    }

    template <typename T>
    static std::vector<T> copy(nb::handle array, char format) {
        std::vector<T> items;
        if (!array.is_none()) {
            const Array view(array, format, -1);
            if (!view.is_right()) {
                throw nb::value_error("an array of another type than expected");
            }
            items.assign(view.data<T>(), view.data<T>() + view.size());
        }
        return items;
    }

  private:
    Py_buffer view_ = {};
    bool is_right_ = false;
};

// A sampler with what its settings point to.
class OwningSampler {
  public:
    struct Arrays {
        std::vector<int32_t> bias_ids;
        std::vector<float> bias_deltas;
        std::vector<int32_t> dry_breakers;
        std::vector<int32_t> stages;
        std::vector<double> parameters;
        std::vector<int32_t> xtc_protected;
    };

    OwningSampler(Arrays arrays, SampleSettings settings)
        : arrays_(std::move(arrays)), sampler_(pointing_to(arrays_, settings)) {}

    Sampler& sampler() { return sampler_; }

    SampleOutput out = {};

    // A sampler and its output are one thread's, from the call to the end of the answer.
    Exclusive use() { return {is_used_, "the sampler is in use in another thread"}; }

  private:
    static SampleSettings pointing_to(const Arrays& arrays, SampleSettings settings) {
        settings.bias_ids = arrays.bias_ids.data();
        settings.bias_deltas = arrays.bias_deltas.data();
        settings.n_biases = std::ssize(arrays.bias_ids);
        settings.dry_breakers = arrays.dry_breakers.empty() ? nullptr : arrays.dry_breakers.data();
        settings.stages = arrays.stages.data();
        settings.parameters = arrays.parameters.data();
        settings.n_stages = std::ssize(arrays.stages);
        settings.xtc_protected =
            arrays.xtc_protected.empty() ? nullptr : arrays.xtc_protected.data();
        return settings;
    }

    Arrays arrays_;
    Sampler sampler_;
    std::atomic<bool> is_used_ = false;
};

void make_sampler(OwningSampler* at, int64_t vocab_size, nb::handle request) {
    const auto integer = [&](const char* name) { return nb::cast<int64_t>(request.attr(name)); };
    const auto number = [&](const char* name) { return nb::cast<double>(request.attr(name)); };
    const auto flag = [&](const char* name) { return nb::cast<bool>(request.attr(name)); };
    const SampleSettings settings = {
        .vocab_size = vocab_size,
        .greedy = flag("greedy"),
        .want_trace = flag("want_trace"),
        .n_top = integer("n_top"),
        .n_prompt = integer("n_prompt"),
        .repetition_penalty = number("repetition_penalty"),
        .frequency_penalty = number("frequency_penalty"),
        .presence_penalty = number("presence_penalty"),
        .repetition_range = integer("repetition_range"),
        .repetition_decay = integer("repetition_decay"),
        .bias_ids = nullptr,
        .bias_deltas = nullptr,
        .n_biases = 0,
        .dry_multiplier = number("dry_multiplier"),
        .dry_base = number("dry_base"),
        .dry_allowed_length = integer("dry_allowed_length"),
        .dry_range = integer("dry_range"),
        .dry_max_ngram = integer("dry_max_ngram"),
        .dry_breakers = nullptr,
        .stages = nullptr,
        .parameters = nullptr,
        .n_stages = 0,
        .xtc_protected = nullptr,
        .skew = number("skew"),
    };
    OwningSampler::Arrays arrays = {
        .bias_ids = Array::copy<int32_t>(request.attr("bias_ids"), 'i'),
        .bias_deltas = Array::copy<float>(request.attr("bias_deltas"), 'f'),
        .dry_breakers = Array::copy<int32_t>(request.attr("dry_breakers"), 'i'),
        .stages = Array::copy<int32_t>(request.attr("stages"), 'i'),
        .parameters = Array::copy<double>(request.attr("parameters"), 'd'),
        .xtc_protected = Array::copy<int32_t>(request.attr("xtc_protected"), 'i'),
    };
    new (at) OwningSampler(std::move(arrays), settings);
}

// A new object; Python has set the error when there is none, which is for want of memory.
PyObject* made(PyObject* object) {
    if (object == nullptr) {
        throw nb::python_error();
    }
    return object;
}

// A tuple of n objects, one made for each i.
template <typename Make>
nb::object tuple_of(size_t n, Make make) {
    nb::object tuple = nb::steal(made(PyTuple_New(static_cast<Py_ssize_t>(n))));
    for (size_t i = 0; i < n; ++i) {
        PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), made(make(i)));
    }
    return tuple;
}

// The fields of engine/sampling/op.py's SampleResult.
nb::object result_of(const SampleOutput& out) {
    const size_t n_top = out.top.size();
    nb::object fields[] = {
        nb::steal(made(PyLong_FromLongLong(out.token_id))),
        nb::steal(made(PyFloat_FromDouble(out.p_raw))),
        nb::steal(made(PyFloat_FromDouble(out.p_sampled))),
        nb::steal(made(PyFloat_FromDouble(out.logprob_raw))),
        tuple_of(n_top, [&](size_t i) { return PyLong_FromLong(out.top[i].id); }),
        tuple_of(n_top, [&](size_t i) { return PyFloat_FromDouble(out.top[i].logprob_raw); }),
        tuple_of(n_top, [&](size_t i) { return PyFloat_FromDouble(out.top[i].p_sampled); }),
        nb::steal(made(PyLong_FromLongLong(out.rank))),
        nb::steal(made(PyFloat_FromDouble(out.entropy))),
        nb::steal(made(PyFloat_FromDouble(out.margin))),
        nb::steal(made(PyFloat_FromDouble(out.kept_mass))),
        tuple_of(out.trace.size(),
                 [&](size_t i) {
                     const SampleTraceStep& step = out.trace[i];
                     return nb::make_tuple(static_cast<int>(step.stage), step.n_removed,
                                           step.removed_argmax)
                         .release()
                         .ptr();
                 }),
    };
    return tuple_of(std::size(fields), [&](size_t i) { return fields[i].release().ptr(); });
}

nb::object sample(OwningSampler& self, nb::handle logits, nb::handle work, double u, double u_xtc,
                  nb::handle context, nb::handle mask, nb::handle banned_ids, double mirostat_mu) {
    const Exclusive use = self.use();
    const int64_t vocab_size = self.sampler().settings().vocab_size;
    const Array logits_view(logits, 'f', vocab_size);
    const Array work_view(work, 'f', vocab_size, true);
    const Array context_view(context, 'i', -1);
    const Array banned_view(banned_ids, 'i', -1);
    std::optional<Array> mask_view;
    if (!mask.is_none()) {
        mask_view.emplace(mask, 'i', (vocab_size + kMaskBits - 1) / kMaskBits);
    }
    if (!logits_view.is_right() || !work_view.is_right() || !context_view.is_right() ||
        !banned_view.is_right() || (mask_view && !mask_view->is_right())) {
        return nb::none();
    }
    const SampleArgs args = {
        .logits = logits_view.data<const float>(),
        .work = work_view.data<float>(),
        .u = u,
        .u_xtc = u_xtc,
        .context = context_view.data<const int32_t>(),
        .n_context = context_view.size(),
        .mask = mask_view ? mask_view->data<const int32_t>() : nullptr,
        .banned_ids = banned_view.data<const int32_t>(),
        .n_banned = banned_view.size(),
        .mirostat_mu = mirostat_mu,
    };
    bool is_drawn;
    {
        const nb::gil_scoped_release unlocked;
        is_drawn = self.sampler().sample(args, self.out);
    }
    return is_drawn ? result_of(self.out) : nb::none();
}

nb::object score(OwningSampler& self, nb::handle logits, int64_t token_id) {
    const Exclusive use = self.use();
    const Array logits_view(logits, 'f', self.sampler().settings().vocab_size);
    if (!logits_view.is_right()) {
        return nb::none();
    }
    bool is_scored;
    {
        const nb::gil_scoped_release unlocked;
        is_scored = self.sampler().score(logits_view.data<const float>(), token_id, self.out);
    }
    return is_scored ? result_of(self.out) : nb::none();
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

NB_MODULE(_cpu, module) {
    namespace bindings = soliton::bindings;
    using namespace nb::literals;

    // What is alive when the process ends is no leak: a request that was never finished.
    nb::set_leak_warnings(false);
    module.def("isa", [] { return soliton::cpu_kernels().isa; });
    module.def("supported_isas", &bindings::supported_isas);
    module.def("select_isa", &soliton::select_isa);
    module.def("address", &bindings::address);
    module.def("uniform", &soliton::uniform, "seed"_a, "position"_a, nb::kw_only(), "purpose"_a = 0,
               "attempt"_a = 0);
    nb::class_<bindings::OwningSampler>(module, "Sampler")
        .def("__init__", &bindings::make_sampler)
        .def("sample", &bindings::sample, "logits"_a, "work"_a, "u"_a, "u_xtc"_a, "context"_a,
             "mask"_a.none(), "banned_ids"_a, "mirostat_mu"_a)
        .def("score", &bindings::score, "logits"_a, "token_id"_a);

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

    bindings::bind_ngram_index(module);
}
