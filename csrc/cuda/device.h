// The properties of a device that determine the size of launches.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace soliton::cuda {

struct Device {
    int n_multiprocessors;
    size_t max_shared_bytes;             // for a block that requests it (cudaFuncSetAttribute)
    size_t multiprocessor_shared_bytes;  // for all its blocks, including what the system reserves
                                         // in each
    size_t l2_bytes;
};

// The current device, queried once. Launchers call this every time.
cudaError_t current_device(const Device** device);

}  // namespace soliton::cuda
