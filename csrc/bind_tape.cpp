// The decoder's ops for engine.native._cpu: a tape, and for each op a method that appends it.
// engine/device/cpu/program.py calls them.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "bind.h"
#include "bind_memory.h"
#include "cpu/attention.h"
#include "cpu/kernels.h"
#include "ops.h"
#include "pool.h"
#include "tape.h"

namespace nb = nanobind;

namespace soliton::bindings {
namespace {

Matrix matrix_at(uintptr_t panels, int64_t n_out, int64_t n_in, Layout layout, bool is_woven,
                 bool is_fetched) {
    return {at<const void>(panels), n_out, n_in, layout, is_woven, is_fetched};
}

using Sections = std::vector<Matrix>;

Stack stack_of(const Sections& sections) {
    if (sections.empty() || std::ssize(sections) > kMostSections) {
        throw nb::value_error("a matrix has 1 to 4 sections");
    }
    Stack stack = {};
    std::ranges::copy(sections, stack.sections);
    stack.n_sections = std::ssize(sections);
    return stack;
}

int64_t scratch_bytes(const Sections& sections, int64_t max_rows) {
    return linear_scratch_bytes(stack_of(sections), max_rows);
}

Xielu xielu_of(float positive, float negative, float beta, float eps) {
    return {positive, negative, beta, eps};
}

Norm norm_at(uintptr_t weight, uintptr_t bias, float eps, bool is_centered) {
    return {at<const float>(weight), at<const float>(bias), eps, is_centered};
}

void append_embed(Tape& tape, const Matrix& table, uintptr_t out, float scale,
                  uintptr_t positions) {
    tape.append<&embed>("embed", EmbedArgs{.table = table,
                                           .scale = scale,
                                           .positions = at<const float>(positions),
                                           .out = at<float>(out)});
}

void append_norm_linear(Tape& tape, uintptr_t residual, uintptr_t norm, float eps,
                        const Sections& sections, uintptr_t bias, uintptr_t out, Epilogue epilogue,
                        uintptr_t scratch, uintptr_t norm_bias, bool is_centered, float scale,
                        float softcap, const Xielu& xielu) {
    const Stack matrix = stack_of(sections);
    tape.append<&norm_linear>("norm_linear",
                              NormLinearArgs{
                                  .residual = at<const float>(residual),
                                  .norm = norm_at(norm, norm_bias, eps, is_centered),
                                  .matrix = matrix,
                                  .bias = at<const float>(bias),
                                  .out = at<float>(out),
                                  .epilogue = epilogue,
                                  .scale = scale,
                                  .softcap = softcap,
                                  .xielu = xielu,
                                  .scratch = at<void>(scratch),
                              },
                              static_cast<size_t>(linear_worker_bytes(matrix)));
}

void append_linear(Tape& tape, uintptr_t x, const Sections& sections, uintptr_t bias,
                   uintptr_t residual, uintptr_t out, uintptr_t scratch, float scale) {
    const Stack matrix = stack_of(sections);
    tape.append<&linear>("linear",
                         LinearArgs{
                             .x = at<const float>(x),
                             .matrix = matrix,
                             .bias = at<const float>(bias),
                             .residual = at<const float>(residual),
                             .scale = scale,
                             .out = at<float>(out),
                             .scratch = at<void>(scratch),
                         },
                         static_cast<size_t>(linear_worker_bytes(matrix)));
}

void append_add_norm(Tape& tape, uintptr_t x, const Norm& norm, uintptr_t residual, float scale,
                     uintptr_t factor, uintptr_t out, int64_t dim, int64_t n_parts) {
    tape.append<&add_norm>("add_norm",
                           AddNormArgs{
                               .x = at<const float>(x),
                               .norm = norm,
                               .residual = at<const float>(residual),
                               .scale = scale,
                               .factor = at<const float>(factor),
                               .out = at<float>(out),
                               .dim = dim,
                               .n_parts = n_parts,
                           },
                           static_cast<size_t>(add_norm_worker_bytes(dim)));
}

void append_times(Tape& tape, uintptr_t x, uintptr_t others, int64_t dim, int64_t pitch) {
    tape.append<&times>(
        "times",
        TimesArgs{
            .x = at<float>(x), .others = at<const float>(others), .dim = dim, .pitch = pitch});
}

void append_heads(Tape& tape, uintptr_t qkv, int64_t n_heads, int64_t n_kv_heads, int64_t head_dim,
                  const Norm& q_norm, const Norm& k_norm, const Norm& v_norm, bool has_keys,
                  bool over_all, uintptr_t cos, uintptr_t sin, int64_t rotary_half,
                  uintptr_t q_scales) {
    tape.append<&heads>("heads", HeadsArgs{
                                     .qkv = at<float>(qkv),
                                     .n_heads = n_heads,
                                     .n_kv_heads = n_kv_heads,
                                     .head_dim = head_dim,
                                     .q_norm = q_norm,
                                     .k_norm = k_norm,
                                     .v_norm = v_norm,
                                     .has_keys = has_keys,
                                     .over_all = over_all,
                                     .cos = at<const float>(cos),
                                     .sin = at<const float>(sin),
                                     .rotary_half = rotary_half,
                                     .q_scales = at<const float>(q_scales),
                                 });
}

AttentionArgs attention_of(uintptr_t qkv, uintptr_t k_cache, uintptr_t v_cache, uintptr_t k_scales,
                           uintptr_t v_scales, KvType k_type, KvType v_type, int64_t n_heads,
                           int64_t n_kv_heads, int64_t head_dim, int64_t max_seq_len,
                           uintptr_t q_norm, uintptr_t k_norm, float eps, uintptr_t cos,
                           uintptr_t sin, int64_t rotary_half, int64_t window, float scale,
                           uintptr_t scratch, uintptr_t out, float softcap, uintptr_t sinks,
                           bool stores, uintptr_t common_keys) {
    return {
        .qkv = at<const float>(qkv),
        .k_cache = at<void>(k_cache),
        .v_cache = at<void>(v_cache),
        .k_scales = at<void>(k_scales),
        .v_scales = at<void>(v_scales),
        .k_type = k_type,
        .v_type = v_type,
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
        .common_keys = at<const float>(common_keys),
        .stores = stores,
        .scratch = at<float>(scratch),
        .out = at<float>(out),
    };
}

void append_attention(Tape& tape, const AttentionArgs& args) {
    tape.append<&attention>("attention", args, sizeof(AttentionWork));
}

void append_branch_attention(Tape& tape, const AttentionArgs& args, uintptr_t fork, uintptr_t rows,
                             uintptr_t k_tails, uintptr_t v_tails, uintptr_t k_tail_scales,
                             uintptr_t v_tail_scales, int64_t tail_len) {
    tape.append<&branch_attention>("branch_attention",
                                   BranchAttentionArgs{
                                       .attention = args,
                                       .fork = at<const int64_t>(fork),
                                       .rows = at<const BranchPlace>(rows),
                                       .k_tails = at<void>(k_tails),
                                       .v_tails = at<void>(v_tails),
                                       .k_tail_scales = at<void>(k_tail_scales),
                                       .v_tail_scales = at<void>(v_tail_scales),
                                       .tail_len = tail_len,
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

bool run_tape(Tape& tape, uintptr_t state) {
    const nb::gil_scoped_release unlocked;
    return tape.run(*at<const StepState>(state));
}

// Where a pass writes the logits of its only row, (n,).
bool run_tape_and_guess(Tape& tape, uintptr_t state, uintptr_t logits, int64_t n) {
    const nb::gil_scoped_release unlocked;
    const StepState& run = *at<const StepState>(state);
    const bool is_whole = tape.run(run);
    if (is_whole && threads() > 1) {  // alone, nobody could begin it
        constexpr size_t kWords = sizeof(StepState) / sizeof(int64_t);
        alignas(StepState) int64_t next[kWords + 1] = {};
        next[0] = run.pos + 1;
        next[1] = 1;
        next[kWords] = cpu_kernels().first_largest(at<const float>(logits), n);
        tape.begin(*reinterpret_cast<const StepState*>(next), false);
    }
    return is_whole;
}

// Holds the interpreter's lock: it takes a microsecond, giving the lock away may take more.
void begin_tape(Tape& tape, uintptr_t state) {
    tape.begin(*at<const StepState>(state));
}

std::vector<int64_t> profile_tape(Tape& tape, uintptr_t state) {
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
        .value("SOFTCAP", Epilogue::kSoftcap)
        .value("XIELU", Epilogue::kXielu);
    nb::class_<Xielu>(module, "Xielu")
        .def(nb::new_(&xielu_of), nb::kw_only(), "positive"_a, "negative"_a, "beta"_a, "eps"_a);
    nb::class_<Norm>(module, "Norm")
        .def(nb::new_(&norm_at), nb::kw_only(), "weight"_a, "bias"_a, "eps"_a, "is_centered"_a);
    nb::enum_<KvType>(module, "KvType")
        .value("F32", KvType::kF32)
        .value("BF16", KvType::kBf16)
        .value("INT8", KvType::kInt8)
        .value("INT4", KvType::kInt4);
    nb::class_<Matrix>(module, "Matrix")
        .def(nb::new_(&matrix_at), nb::kw_only(), "panels"_a, "n_out"_a, "n_in"_a, "layout"_a,
             "is_woven"_a, "is_fetched"_a = false);
    module.def("linear_scratch_bytes", &scratch_bytes, "sections"_a, "max_rows"_a);
    module.def("attention_scratch_floats", &attention_scratch_floats, "n_heads"_a, "head_dim"_a,
               "max_seq_len"_a);

    nb::class_<AttentionArgs>(module, "Attention")
        .def(nb::new_(&attention_of), nb::kw_only(), "qkv"_a, "k_cache"_a, "v_cache"_a,
             "k_scales"_a, "v_scales"_a, "k_type"_a, "v_type"_a, "n_heads"_a, "n_kv_heads"_a,
             "head_dim"_a, "max_seq_len"_a, "q_norm"_a, "k_norm"_a, "eps"_a, "cos"_a, "sin"_a,
             "rotary_half"_a, "window"_a, "scale"_a, "scratch"_a, "out"_a, "softcap"_a = 0.0f,
             "sinks"_a = 0, "stores"_a = true, "common_keys"_a = 0);

    // Ops take keywords only, because addresses are easy to mix up.
    nb::class_<Tape>(module, "Tape")
        .def(nb::init<>())
        .def("embed", &append_embed, nb::kw_only(), "table"_a, "out"_a, "scale"_a = 1.0f,
             "positions"_a = 0)
        .def("norm_linear", &append_norm_linear, nb::kw_only(), "residual"_a, "norm"_a, "eps"_a,
             "sections"_a, "bias"_a, "out"_a, "epilogue"_a, "scratch"_a, "norm_bias"_a = 0,
             "is_centered"_a = false, "scale"_a = 1.0f, "softcap"_a = 0.0f, "xielu"_a = Xielu{})
        .def("linear", &append_linear, nb::kw_only(), "x"_a, "sections"_a, "bias"_a, "residual"_a,
             "out"_a, "scratch"_a, "scale"_a = 1.0f)
        .def("add_norm", &append_add_norm, nb::kw_only(), "x"_a, "norm"_a, "residual"_a, "scale"_a,
             "factor"_a, "out"_a, "dim"_a, "n_parts"_a)
        .def("times", &append_times, nb::kw_only(), "x"_a, "others"_a, "dim"_a, "pitch"_a)
        .def("heads", &append_heads, nb::kw_only(), "qkv"_a, "n_heads"_a, "n_kv_heads"_a,
             "head_dim"_a, "q_norm"_a, "k_norm"_a, "v_norm"_a, "has_keys"_a, "over_all"_a, "cos"_a,
             "sin"_a, "rotary_half"_a, "q_scales"_a)
        .def("attention", &append_attention, "args"_a)
        .def("branch_attention", &append_branch_attention, "args"_a, nb::kw_only(), "fork"_a,
             "rows"_a, "k_tails"_a, "v_tails"_a, "k_tail_scales"_a, "v_tail_scales"_a, "tail_len"_a)
        .def("read", &append_read, nb::kw_only(), "words"_a, "n_words"_a, "piece_words"_a, "sums"_a)
        .def("run", &run_tape, "state"_a)
        .def("run_and_guess", &run_tape_and_guess, "state"_a, "logits"_a, "n"_a)
        .def("begin", &begin_tape, "state"_a)
        .def_static("drop_begun", &drop_begun)
        .def("profile", &profile_tape, "state"_a)
        .def("names", &tape_names)
        .def("__len__", &Tape::size);
}

}  // namespace soliton::bindings
