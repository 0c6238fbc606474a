#include "bind_ngram.h"

#include <nanobind/stl/vector.h>

#include <cstdint>
#include <vector>

#include "ngram_index.h"

namespace nb = nanobind;

namespace soliton::bindings {
namespace {

// (match length, draft)
nb::tuple find(const NgramIndex& index, int n) {
    const NgramIndex::Found found = index.find(n);
    return nb::make_tuple(found.match_length, nb::tuple(nb::cast(found.draft)));
}

}  // namespace

void bind_ngram_index(nb::module_& module) {
    using namespace nb::literals;
    // Every call is short, so all of them keep the interpreter's lock.
    nb::class_<NgramIndex>(module, "NgramIndex")
        .def(nb::init<int64_t>(), "recent_bytes"_a)
        .def("begin",
             [](NgramIndex& index, const std::vector<int32_t>& tokens) { index.begin(tokens); })
        .def("append", &NgramIndex::append)
        .def("rollback", &NgramIndex::rollback)
        .def("find", &find)
        .def("keep", &NgramIndex::keep)
        .def("recent_size", &NgramIndex::recent_size)
        .def("recent_bytes", &NgramIndex::recent_bytes)
        .def("__len__", &NgramIndex::size);
}

}  // namespace soliton::bindings
