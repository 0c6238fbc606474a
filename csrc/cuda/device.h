// What a device has, as far as launches are sized by it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace soliton::cuda {

struct Device {
    int n_multiprocessors;
    size_t max_shared_bytes;             // of a block that asks for it (cudaFuncSetAttribute)
    size_t multiprocessor_shared_bytes;  // for all its blocks and what the system keeps of each
    size_t l2_bytes;
};

// The current one, asked once. Launchers call this every time.
cudaError_t current_device(const Device** device);

}  // namespace soliton::cuda
