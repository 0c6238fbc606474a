// The sampler in the Python module engine._cuda.
#pragma once

#include <nanobind/nanobind.h>

namespace soliton::cuda::bindings {

void bind_sampler(nanobind::module_& module);

}  // namespace soliton::cuda::bindings
