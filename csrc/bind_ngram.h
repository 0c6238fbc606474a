// The part of the Python module that drafting uses.
#pragma once

#include <nanobind/nanobind.h>

namespace soliton::bindings {

void bind_ngram_index(nanobind::module_& module);

}  // namespace soliton::bindings
