// Ops for a chunk of the prompt for engine.native._cuda: what torch does not do.
// engine/device/cuda/prefill.py and attention.py call them.
#include <cstdint>

#include "attention.h"
#include "bind.h"
#include "prefill.h"
#include "tape.h"

namespace nb = nanobind;

namespace soliton::cuda::bindings {
namespace {

void run_rope(uintptr_t qkv, uintptr_t k_cache, uintptr_t v_cache, uintptr_t k_scales,
              uintptr_t v_scales, KvType kv, int64_t n_heads, int64_t n_kv_heads, int64_t head_dim,
              int64_t max_seq_len, uintptr_t q_norm, uintptr_t k_norm, float eps, uintptr_t cos,
              uintptr_t sin, int64_t rotary_half, int64_t pos, int64_t n_rows, uintptr_t queries,
              uintptr_t stream) {
    const AttentionArgs args = {
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
        .window = 0,
        .scale = 0.0f,
        .softcap = 0.0f,
        .sinks = nullptr,
        .scratch = nullptr,
        .out = nullptr,
        .next = {},
    };
    check(rope(args, pos, n_rows, at<void>(queries), stream_at(stream)), "rope");
}

void run_unpack_kv(uintptr_t codes, uintptr_t scales, int64_t n_kv_heads, int64_t head_dim,
                   int64_t max_seq_len, int64_t begin, int64_t end, uintptr_t out,
                   uintptr_t stream) {
    const UnpackKvArgs args = {
        .codes = at<const void>(codes),
        .scales = at<const float>(scales),
        .n_kv_heads = n_kv_heads,
        .head_dim = head_dim,
        .max_seq_len = max_seq_len,
        .begin = begin,
        .end = end,
        .out = at<void>(out),
    };
    check(unpack_kv(args, stream_at(stream)), "unpack_kv");
}

void run_unpack(uintptr_t weights, int64_t n_out, int64_t n_in, Layout layout, bool gated,
                int64_t begin, int64_t end, uintptr_t out, uintptr_t stream) {
    const UnpackArgs args = {
        .matrix = {at<const void>(weights), n_out, n_in, layout},
        .gated = gated,
        .begin = begin,
        .end = end,
        .out = at<void>(out),
    };
    check(unpack(args, stream_at(stream)), "unpack");
}

void run_rms_norm(uintptr_t residual, uintptr_t norm, float eps, int64_t n_rows, int64_t dim,
                  uintptr_t out, uintptr_t stream) {
    const RmsNormArgs args = {
        .residual = at<const float>(residual),
        .norm = at<const float>(norm),
        .eps = eps,
        .n_rows = n_rows,
        .dim = dim,
        .out = at<void>(out),
    };
    check(rms_norm(args, stream_at(stream)), "rms_norm");
}

void run_activate(uintptr_t x, int64_t n_rows, int64_t width, Epilogue epilogue, uintptr_t out,
                  uintptr_t stream) {
    const ActivateArgs args = {
        .x = at<const void>(x),
        .n_rows = n_rows,
        .width = width,
        .epilogue = epilogue,
        .out = at<void>(out),
    };
    check(activate(args, stream_at(stream)), "activate");
}

}  // namespace

void bind_prefill(nb::module_& module) {
    using namespace nb::literals;
    const nb::call_guard<nb::gil_scoped_release> unlocked;
    module.def("rope", &run_rope, unlocked, nb::kw_only(), "qkv"_a, "k_cache"_a, "v_cache"_a,
               "k_scales"_a, "v_scales"_a, "kv"_a, "n_heads"_a, "n_kv_heads"_a, "head_dim"_a,
               "max_seq_len"_a, "q_norm"_a, "k_norm"_a, "eps"_a, "cos"_a, "sin"_a, "rotary_half"_a,
               "pos"_a, "n_rows"_a, "queries"_a, "stream"_a);
    module.def("unpack_kv", &run_unpack_kv, unlocked, nb::kw_only(), "codes"_a, "scales"_a,
               "n_kv_heads"_a, "head_dim"_a, "max_seq_len"_a, "begin"_a, "end"_a, "out"_a,
               "stream"_a);
    module.def("unpack", &run_unpack, unlocked, nb::kw_only(), "weights"_a, "n_out"_a, "n_in"_a,
               "layout"_a, "gated"_a, "begin"_a, "end"_a, "out"_a, "stream"_a);
    module.def("rms_norm", &run_rms_norm, unlocked, nb::kw_only(), "residual"_a, "norm"_a, "eps"_a,
               "n_rows"_a, "dim"_a, "out"_a, "stream"_a);
    module.def("activate", &run_activate, unlocked, nb::kw_only(), "x"_a, "n_rows"_a, "width"_a,
               "epilogue"_a, "out"_a, "stream"_a);
}

}  // namespace soliton::cuda::bindings
