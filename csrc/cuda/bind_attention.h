// The part of the Python module that attention of a prompt's chunk uses.
#pragma once

#include <nanobind/nanobind.h>

namespace soliton::cuda::bindings {

void bind_attention(nanobind::module_& module);

}  // namespace soliton::cuda::bindings
