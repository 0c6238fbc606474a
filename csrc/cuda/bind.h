// The parts of the Python module engine.native._cuda. Each registers its types and functions.
#pragma once

#include <cuda_runtime.h>
#include <nanobind/nanobind.h>

#include <cstdint>
#include <type_traits>

#include "../bind_memory.h"
#include "tape.h"

namespace soliton::cuda::bindings {

using soliton::bindings::at;
using soliton::bindings::BufferView;

// torch passes its stream as an address.
inline cudaStream_t stream_at(uintptr_t address) {
    return at<std::remove_pointer_t<cudaStream_t>>(address);
}

void bind_tape(nanobind::module_& module);                                   // a step's ops
void bind_experts(nanobind::module_& module, nanobind::class_<Tape>& tape);  // one more of them
void bind_prefill(nanobind::module_& module);  // ops for a chunk of the prompt
void bind_sampler(nanobind::module_& module);

}  // namespace soliton::cuda::bindings
