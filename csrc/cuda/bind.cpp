// The Python module engine.native._cuda. It takes addresses of device memory and numbers and checks
// nothing: the callers in engine/ have checked everything. An error that CUDA reports becomes a
// RuntimeError.
#include "bind.h"

#include "attention.h"
#include "knobs.h"
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

void set_device(int index) {
    check(cudaSetDevice(index), "choosing the device");
}

void set_knobs(bool overlap, int32_t attention_prefetch_bytes, int32_t q4_blocks,
               int32_t q8_blocks) {
    if (attention_prefetch_bytes < 0) {
        throw nb::value_error("attention_prefetch_bytes must be at least 0");
    }
    for (const int32_t blocks : {q4_blocks, q8_blocks}) {
        if (blocks != 1 && blocks != 2) {
            throw nb::value_error("q4_blocks and q8_blocks must be 1 or 2");
        }
    }
    knobs() = {overlap, attention_prefetch_bytes, q4_blocks, q8_blocks};
}

nb::dict knob_values() {
    nb::dict result;
    result["overlap"] = knobs().overlap;
    result["attention_prefetch_bytes"] = knobs().attention_prefetch_bytes;
    result["q4_blocks"] = knobs().q4_blocks;
    result["q8_blocks"] = knobs().q8_blocks;
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
    module.def("set_device", &bindings::set_device, "index"_a);
    constexpr Knobs kDefaults = {};
    module.def("set_knobs", &bindings::set_knobs, nb::kw_only(), "overlap"_a = kDefaults.overlap,
               "attention_prefetch_bytes"_a = kDefaults.attention_prefetch_bytes,
               "q4_blocks"_a = kDefaults.q4_blocks, "q8_blocks"_a = kDefaults.q8_blocks);
    module.def("knobs", &bindings::knob_values);
    nb::enum_<Layout>(module, "Layout")
        .value("BF16", Layout::kBf16)
        .value("Q8", Layout::kQ8)
        .value("Q4", Layout::kQ4)
        .value("MXFP4", Layout::kMxfp4);
    nb::enum_<KvType>(module, "KvType").value("BF16", KvType::kBf16).value("INT8", KvType::kInt8);
    bindings::bind_tape(module);
    bindings::bind_prefill(module);
    bindings::bind_sampler(module);
}
