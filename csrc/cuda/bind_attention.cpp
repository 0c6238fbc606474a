// Attention of a prompt's chunk, for Python: what torch does not do.
#include "bind_attention.h"

#include <cstdint>
#include <type_traits>

#include "attention.h"
#include "tape.h"

namespace nb = nanobind;

namespace soliton::cuda::bindings {
namespace {

template <typename T>
T* at(uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

cudaStream_t stream_at(uintptr_t stream) {
    return at<std::remove_pointer_t<cudaStream_t>>(stream);
}

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
        .scratch = nullptr,
        .out = nullptr,
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

}  // namespace

void bind_attention(nb::module_& module) {
    using namespace nb::literals;
    const nb::call_guard<nb::gil_scoped_release> unlocked;
    module.attr("MAX_HEAD_DIM") = kMaxHeadDim;
    module.def("rope", &run_rope, unlocked, nb::kw_only(), "qkv"_a, "k_cache"_a, "v_cache"_a,
               "k_scales"_a, "v_scales"_a, "kv"_a, "n_heads"_a, "n_kv_heads"_a, "head_dim"_a,
               "max_seq_len"_a, "q_norm"_a, "k_norm"_a, "eps"_a, "cos"_a, "sin"_a, "rotary_half"_a,
               "pos"_a, "n_rows"_a, "queries"_a, "stream"_a);
    module.def("unpack_kv", &run_unpack_kv, unlocked, nb::kw_only(), "codes"_a, "scales"_a,
               "n_kv_heads"_a, "head_dim"_a, "max_seq_len"_a, "begin"_a, "end"_a, "out"_a,
               "stream"_a);
}

}  // namespace soliton::cuda::bindings
