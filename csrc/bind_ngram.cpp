// The n-gram index for engine.native._cpu, which engine/draft/ngram.py drafts with.
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <vector>

#include "bind.h"
#include "ngram_index.h"

namespace nb = nanobind;

namespace soliton::bindings {
namespace {

// nanobind's own conversion to a vector would end the process when memory is short.
std::vector<int32_t> ids_of(nb::handle tokens) {
    // A tuple, because the stable ABI has no macros that read any sequence.
    const nb::object sequence = nb::steal(PySequence_Tuple(tokens.ptr()));
    if (!sequence.is_valid()) {
        throw nb::python_error();
    }
    const Py_ssize_t n = PyTuple_Size(sequence.ptr());
    std::vector<int32_t> ids(static_cast<size_t>(n));
    for (Py_ssize_t i = 0; i < n; ++i) {
        const long id = PyLong_AsLong(PyTuple_GetItem(sequence.ptr(), i));
        if (id == -1 && PyErr_Occurred() != nullptr) {
            throw nb::python_error();
        }
        if (id < INT32_MIN || id > INT32_MAX) {
            throw nb::type_error("tokens: a token id does not fit in 32 bits");
        }
        ids[static_cast<size_t>(i)] = static_cast<int32_t>(id);
    }
    return ids;
}

// (match length, whether it is in a recent output, draft), or None if there is no draft. `tokens`
// join the sequence first, in the same call: between two passes of a model the caches are cold, so
// that a call of its own takes microseconds.
nb::object find(NgramIndex& index, int n, nb::handle tokens) {
    index.extend(ids_of(tokens));
    const NgramIndex::Found found = index.find(n);
    if (found.draft.empty()) {
        return nb::none();
    }
    return nb::make_tuple(found.match_length, found.is_recent, nb::tuple(nb::cast(found.draft)));
}

}  // namespace

void bind_ngram_index(nb::module_& module) {
    using namespace nb::literals;
    // Every call is short, so none releases the GIL.
    nb::class_<NgramIndex>(module, "NgramIndex")
        .def(nb::init<int64_t>(), "recent_bytes"_a)
        .def("begin", [](NgramIndex& index, nb::handle tokens) { index.begin(ids_of(tokens)); })
        .def("extend", [](NgramIndex& index, nb::handle tokens) { index.extend(ids_of(tokens)); })
        .def("rollback", &NgramIndex::rollback)
        .def("find", &find, "n"_a, "tokens"_a = nb::make_tuple())
        .def("keep", &NgramIndex::keep)
        .def("recent_size", &NgramIndex::recent_size)
        .def("recent_bytes", &NgramIndex::recent_bytes)
        .def("__len__", &NgramIndex::size);
}

}  // namespace soliton::bindings
