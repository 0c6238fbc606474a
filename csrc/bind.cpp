// The Python module engine.native._cpu. It takes addresses and numbers and checks nothing: the
// callers in engine/ have checked everything.
#include "bind.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cpu/kernels.h"
#include "philox.h"
#include "pool.h"

namespace nb = nanobind;

namespace soliton::bindings {
namespace {

// The buffer protocol, because ndarray.ctypes.data was measured at more than ten times the cost.
uintptr_t address(nb::handle array) {
    Py_buffer view;
    if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_STRIDED_RO) != 0) {
        throw nb::python_error();
    }
    const auto address = reinterpret_cast<uintptr_t>(view.buf);
    PyBuffer_Release(&view);
    return address;
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
    using namespace nb::literals;
    using namespace soliton;

    // An object that is still alive when the process ends, such as an unfinished request's sampler,
    // is not a leak.
    nb::set_leak_warnings(false);
    module.attr("RELEASE") = SOLITON_RELEASE;
    module.def("isa", [] { return cpu_kernels().isa; });
    module.def("supported_isas", &bindings::supported_isas);
    module.def("select_isa", &select_isa);
    module.def("set_threads", &set_threads, "count"_a, "processors"_a = std::vector<int>());
    module.def("threads", &threads);
    module.def("address", &bindings::address);
    module.def("uniform", &uniform, "seed"_a, "position"_a, nb::kw_only(), "purpose"_a = 0,
               "attempt"_a = 0);
    bindings::bind_loading(module);
    bindings::bind_tape(module);
    bindings::bind_experts(module);
    bindings::bind_recurrent(module);
    bindings::bind_sampler(module);
    bindings::bind_ngram_index(module);
}
