// The parts of the Python module engine.native._cpu. Each registers its types and functions.
#pragma once

#include <nanobind/nanobind.h>

namespace soliton::bindings {

void bind_loading(nanobind::module_& module);  // packing and reading weights
void bind_tape(nanobind::module_& module);     // the decoder's ops; after bind_loading, for Layout
void bind_experts(nanobind::module_& module);  // after bind_tape
void bind_recurrent(nanobind::module_& module);  // after bind_tape
void bind_sampler(nanobind::module_& module);
void bind_ngram_index(nanobind::module_& module);

}  // namespace soliton::bindings
