// The Python module engine.native._cuda. It takes addresses of device memory and numbers and checks
// nothing: the callers in engine/ have checked everything. An error that CUDA reports becomes a
// RuntimeError.
#include "bind.h"

#include "attention.h"
#include "layout.h"
#include "ops.h"
#include "tape.h"

namespace nb = nanobind;

namespace soliton::cuda::bindings {
namespace {

nb::dict properties(int device) {
    cudaDeviceProp found;
    check(cudaGetDeviceProperties(&found, device), "reading the properties of the device");
    nb::dict result;
    result["name"] = found.name;
    result["major"] = found.major;
    result["minor"] = found.minor;
    result["n_multiprocessors"] = found.multiProcessorCount;
    result["memory_bytes"] = found.totalGlobalMem;
    result["l2_bytes"] = found.l2CacheSize;
    result["max_shared_bytes"] = found.sharedMemPerBlockOptin;
    return result;
}

}  // namespace
}  // namespace soliton::cuda::bindings

NB_MODULE(_cuda, module) {
    using namespace nb::literals;
    using namespace soliton::cuda;

    // An object that is still alive when the process ends, such as an unfinished request's sampler,
    // is not a leak.
    nb::set_leak_warnings(false);
    module.attr("MAX_ROWS") = kMaxRows;
    module.attr("MAX_HEAD_DIM") = kMaxHeadDim;
    module.attr("state_bytes") = sizeof(StepState);
    module.def("properties", &bindings::properties, "device"_a);
    nb::enum_<Layout>(module, "Layout")
        .value("BF16", Layout::kBf16)
        .value("Q8", Layout::kQ8)
        .value("Q4", Layout::kQ4);
    nb::enum_<KvType>(module, "KvType").value("BF16", KvType::kBf16).value("INT8", KvType::kInt8);
    bindings::bind_tape(module);
    bindings::bind_prefill(module);
    bindings::bind_sampler(module);
}
