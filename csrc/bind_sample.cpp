// The sampler of engine.native._cpu: reads a request's attributes, keeps copies of its arrays, and
// builds the fields of a SampleResult. engine/sampling/op.py calls it.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bind.h"
#include "bind_memory.h"
#include "cpu/sample/sample.h"
#include "exclusive.h"

namespace nb = nanobind;

namespace soliton::bindings {
namespace {

// A sampler together with the arrays that its settings point to.
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

    // One thread at a time, from the call until its result has been built from `out`.
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

// A copy of a numpy array that is an attribute of the request; empty for None.
template <typename T>
std::vector<T> copy_of(nb::handle request, const char* name, char format) {
    const nb::object array = request.attr(name);
    if (array.is_none()) {
        return {};
    }
    const BufferView view(array, format);
    if (!view.is_valid()) {
        const std::string message =
            std::string(name) + ": expected a C-contiguous array of format '" + format + "'";
        throw nb::value_error(message.c_str());
    }
    const std::span<const T> items = view.items<const T>();
    return {items.begin(), items.end()};
}

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
        .bias_ids = copy_of<int32_t>(request, "bias_ids", 'i'),
        .bias_deltas = copy_of<float>(request, "bias_deltas", 'f'),
        .dry_breakers = copy_of<int32_t>(request, "dry_breakers", 'i'),
        .stages = copy_of<int32_t>(request, "stages", 'i'),
        .parameters = copy_of<double>(request, "parameters", 'd'),
        .xtc_protected = copy_of<int32_t>(request, "xtc_protected", 'i'),
    };
    new (at) OwningSampler(std::move(arrays), settings);
}

// Passes a new object on. It is null only when memory is short, and then Python has set the error.
PyObject* made(PyObject* object) {
    if (object == nullptr) {
        throw nb::python_error();
    }
    return object;
}

// The tuple (make(0), ..., make(n - 1)).
template <typename Make>
nb::object tuple_of(size_t n, Make make) {
    nb::object tuple = nb::steal(made(PyTuple_New(static_cast<Py_ssize_t>(n))));
    for (size_t i = 0; i < n; ++i) {
        // Not the macro PyTuple_SET_ITEM: the stable ABI lacks it. This cannot fail for a new
        // tuple.
        PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(i), made(make(i)));
    }
    return tuple;
}

// The fields of engine/sampling/request.py's SampleResult.
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
    const BufferView logits_view(logits, 'f');
    const BufferView work_view(work, 'f', true);
    const BufferView context_view(context, 'i');
    const BufferView banned_view(banned_ids, 'i');
    std::optional<BufferView> mask_view;
    if (!mask.is_none()) {
        mask_view.emplace(mask, 'i');
    }
    if (!logits_view.is_vector(vocab_size) || !work_view.is_vector(vocab_size) ||
        !context_view.is_vector() || !banned_view.is_vector() ||
        (mask_view && !mask_view->is_vector((vocab_size + kMaskBits - 1) / kMaskBits))) {
        return nb::none();
    }
    const std::span<const int32_t> context_ids = context_view.items<const int32_t>();
    const std::span<const int32_t> banned = banned_view.items<const int32_t>();
    const SampleArgs args = {
        .logits = logits_view.items<const float>().data(),
        .work = work_view.items<float>().data(),
        .u = u,
        .u_xtc = u_xtc,
        .context = context_ids.data(),
        .n_context = std::ssize(context_ids),
        .mask = mask_view ? mask_view->items<const int32_t>().data() : nullptr,
        .banned_ids = banned.data(),
        .n_banned = std::ssize(banned),
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
    const BufferView view(logits, 'f');
    if (!view.is_vector(self.sampler().settings().vocab_size)) {
        return nb::none();
    }
    const float* row = view.items<const float>().data();
    bool is_scored;
    {
        const nb::gil_scoped_release unlocked;
        is_scored = self.sampler().score(row, token_id, self.out);
    }
    return is_scored ? result_of(self.out) : nb::none();
}

}  // namespace

void bind_sampler(nb::module_& module) {
    using namespace nb::literals;
    nb::class_<OwningSampler>(module, "Sampler")
        .def("__init__", &make_sampler)
        .def("sample", &sample, "logits"_a, "work"_a, "u"_a, "u_xtc"_a, "context"_a,
             "mask"_a.none(), "banned_ids"_a, "mirostat_mu"_a)
        .def("score", &score, "logits"_a, "token_id"_a);
}

}  // namespace soliton::bindings
