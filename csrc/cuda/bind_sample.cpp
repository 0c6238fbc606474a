// The sampler of engine.native._cuda: turns a request's settings into what the kernels take, and
// their report into the fields of a SampleResult. engine/device/cuda/sampler.py calls it.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../exclusive.h"
#include "bind.h"
#include "device_sampler.h"

namespace nb = nanobind;

namespace soliton::cuda::bindings {
namespace {

// A sampler together with its result and the claim of the thread that uses it.
struct OwnedSampler {
    OwnedSampler(int64_t vocab_size, int64_t max_context, uintptr_t memory, uintptr_t report,
                 nb::object owners)
        : memory_owners(std::move(owners)),
          sampler(vocab_size, max_context, at<void>(memory), at<SampleReport>(report)) {}

    Exclusive use() { return {is_used, "the sampler is in use in another thread"}; }

    nb::object memory_owners;  // before the sampler, so that its memory is released after it
    DeviceSampler sampler;
    DeviceResult result = {};
    std::atomic<bool> is_used = false;
};

// The parameter that a kernel takes: for min-p a difference of logits instead of a share.
double for_kernel(FilterKind kind, double parameter, double rate) {
    return kind == FilterKind::kMinP ? std::log(parameter) / rate : parameter;
}

void set(OwnedSampler& self, bool greedy, double temperature,
         const std::vector<std::tuple<FilterKind, bool, double>>& filters, int32_t n_top,
         int64_t n_prompt, double repetition_penalty, double frequency_penalty,
         double presence_penalty, int64_t repetition_range, std::vector<int32_t> bias_ids,
         std::vector<float> bias_deltas) {
    const Exclusive use = self.use();
    if (filters.size() > kMostFilters || n_top < 0 || n_top > kMostTop) {
        const std::string message = "the device's sampler takes at most " +
                                    std::to_string(kMostFilters) + " filters, got " +
                                    std::to_string(filters.size()) + ", and n_top from 0 to " +
                                    std::to_string(kMostTop) + ", got " + std::to_string(n_top);
        throw nb::value_error(message.c_str());
    }
    if (bias_ids.size() != bias_deltas.size()) {
        throw nb::value_error("bias_ids and bias_deltas: expected the same size");
    }
    DeviceSettings settings = {
        .greedy = greedy,
        .rate = 1.0 / temperature,
        .filters = {},
        .n_top = n_top,
        .n_prompt = n_prompt,
        .repetition_penalty = repetition_penalty,
        .frequency_penalty = frequency_penalty,
        .presence_penalty = presence_penalty,
        .repetition_range = repetition_range,
        .bias_ids = std::move(bias_ids),
        .bias_deltas = std::move(bias_deltas),
    };
    for (const auto& [kind, is_tempered, parameter] : filters) {
        const double rate = is_tempered ? settings.rate : 1.0;
        if (kind == FilterKind::kMinP && !(std::log(parameter) > kLowestExponent)) {
            continue;  // it keeps all tokens
        }
        settings.filters.push_back({kind, is_tempered, for_kernel(kind, parameter, rate)});
    }
    self.sampler.set(std::move(settings));
}

bool begin(OwnedSampler& self, uintptr_t logits, double u, nb::handle context, nb::handle mask,
           nb::handle banned_ids, uintptr_t state, uintptr_t stream) {
    const Exclusive use = self.use();
    const BufferView context_view(context, 'i');
    const BufferView banned_view(banned_ids, 'i');
    std::optional<BufferView> mask_view;
    if (!mask.is_none()) {
        mask_view.emplace(mask, 'i');
    }
    if (!context_view.is_vector() || !banned_view.is_vector() ||
        (mask_view && !mask_view->is_vector((self.sampler.vocab_size() + 31) / 32))) {
        return false;
    }
    const DeviceArgs args = {
        .logits = at<const float>(logits),
        .u = u,
        .context = context_view.items<const int32_t>(),
        .mask = mask_view ? mask_view->items<const int32_t>() : std::span<const int32_t>(),
        .banned_ids = banned_view.items<const int32_t>(),
        .state = at<StepState>(state),
    };
    // A copy of a long list, which is not pinned, may wait until the stream has run.
    const nb::gil_scoped_release unlocked;
    return self.sampler.begin(args, stream_at(stream));
}

void copy_logits(OwnedSampler& self, uintptr_t logits, uintptr_t host, uintptr_t stream) {
    const Exclusive use = self.use();
    const nb::gil_scoped_release unlocked;
    self.sampler.copy_logits(at<const float>(logits), at<float>(host), stream_at(stream));
}

void wait(OwnedSampler& self) {
    const Exclusive use = self.use();
    const nb::gil_scoped_release unlocked;
    self.sampler.wait();
}

// The tuple of number(token) for the most likely tokens.
template <typename Number>
nb::tuple tuple_of(const std::vector<DeviceResult::Top>& top, Number number) {
    nb::object tuple = nb::steal(PyTuple_New(std::ssize(top)));
    if (!tuple.is_valid()) {
        throw nb::python_error();
    }
    for (Py_ssize_t i = 0; i < std::ssize(top); ++i) {
        PyTuple_SET_ITEM(tuple.ptr(), i, nb::cast(number(top[i])).release().ptr());
    }
    return nb::borrow<nb::tuple>(tuple);
}

// The fields of engine/sampling/request.py's SampleResult.
nb::object result(OwnedSampler& self) {
    const Exclusive use = self.use();
    DeviceResult& out = self.result;
    bool is_drawn = false;
    {
        const nb::gil_scoped_release unlocked;
        self.sampler.wait();
        is_drawn = self.sampler.read(out);
    }
    if (!is_drawn) {
        return nb::none();
    }
    return nb::make_tuple(out.token_id, out.p_raw, out.p_sampled, out.logprob_raw,
                          tuple_of(out.top, [](const auto& top) { return top.id; }),
                          tuple_of(out.top, [](const auto& top) { return top.logprob_raw; }),
                          tuple_of(out.top, [](const auto& top) { return top.p_sampled; }),
                          out.rank, out.entropy, out.margin, out.kept_mass, nb::make_tuple());
}

}  // namespace

void bind_sampler(nb::module_& module) {
    using namespace nb::literals;
    module.attr("LARGEST_VOCABULARY") = kLargestVocabulary;
    module.attr("report_bytes") = sizeof(SampleReport);
    module.def("sampler_bytes", &device_sampler_bytes, "vocab_size"_a, "max_context"_a);
    nb::enum_<FilterKind>(module, "Filter")
        .value("TOP_K", FilterKind::kTopK)
        .value("TOP_P", FilterKind::kTopP)
        .value("MIN_P", FilterKind::kMinP);
    nb::class_<OwnedSampler>(module, "Sampler")
        .def(nb::init<int64_t, int64_t, uintptr_t, uintptr_t, nb::object>(), "vocab_size"_a,
             "max_context"_a, "memory"_a, "report"_a, "owners"_a)
        .def("set", &set, nb::kw_only(), "greedy"_a, "temperature"_a, "filters"_a, "n_top"_a,
             "n_prompt"_a, "repetition_penalty"_a, "frequency_penalty"_a, "presence_penalty"_a,
             "repetition_range"_a, "bias_ids"_a, "bias_deltas"_a)
        .def("begin", &begin, "logits"_a, "u"_a, "context"_a, "mask"_a.none(), "banned_ids"_a,
             "state"_a, "stream"_a)
        .def("copy_logits", &copy_logits, "logits"_a, "host"_a, "stream"_a)
        .def("wait", &wait)
        .def("result", &result);
}

}  // namespace soliton::cuda::bindings
