// The Python module engine._native: addresses and numbers in, nothing checked here (engine/ops.py
// is the only caller and has checked everything).
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "cpu/kernels.h"

namespace nb = nanobind;

namespace soliton::bindings {
namespace {

// Below so many elements a norm is over sooner than the interpreter lock is given and taken back.
constexpr int64_t kReleaseLockFrom = 1 << 15;

template <typename T>
T* at(uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

void rms_norm(uintptr_t x, uintptr_t weight, uintptr_t out, int64_t rows, int64_t dim, float eps,
              bool is_bfloat16) {
    const RmsNormArgs args = {
        at<const void>(x), at<const void>(weight), at<void>(out), rows, dim, eps, is_bfloat16,
    };
    std::optional<nb::gil_scoped_release> unlocked;
    if (rows * dim >= kReleaseLockFrom) {
        unlocked.emplace();
    }
    cpu_kernels().rms_norm(args);
}

void add_rms_norm(uintptr_t residual, uintptr_t x, uintptr_t weight, uintptr_t out, int64_t rows,
                  int64_t dim, float eps, bool is_bfloat16) {
    const AddRmsNormArgs args = {
        at<void>(residual),
        at<const void>(x),
        at<const void>(weight),
        at<void>(out),
        rows,
        dim,
        eps,
        is_bfloat16,
    };
    std::optional<nb::gil_scoped_release> unlocked;
    if (rows * dim >= kReleaseLockFrom) {
        unlocked.emplace();
    }
    cpu_kernels().add_rms_norm(args);
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
    module.attr("OK") = static_cast<int>(soliton::kOk);
    module.attr("BAD_LOGITS") = static_cast<int>(soliton::kBadLogits);
    module.attr("BAD_ADJUSTED") = static_cast<int>(soliton::kBadAdjusted);
    module.attr("BAD_ID") = static_cast<int>(soliton::kBadId);
    module.def("isa", [] { return soliton::cpu_kernels().isa; });
    module.def("supported_isas", &soliton::bindings::supported_isas);
    module.def("select_isa", &soliton::select_isa);
    module.def("rms_norm", &soliton::bindings::rms_norm);
    module.def("add_rms_norm", &soliton::bindings::add_rms_norm);
    module.def("sample", &soliton::bindings::sample);
}
