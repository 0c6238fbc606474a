// The properties of a device that determine launches, and what a kernel needs before its first one.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace soliton::cuda {

struct Device {
    int n_multiprocessors;
    size_t max_shared_bytes;             // of a block
    size_t multiprocessor_shared_bytes;  // for all its blocks, including what the system reserves
                                         // in each
    size_t l2_bytes;
    bool can_overlap;  // launches (programmatic dependent launch): compute capability 9.0 or later

    // What each multiprocessor may prefetch, so that all together fill at most half of L2.
    int64_t most_prefetched() const {
        return static_cast<int64_t>(l2_bytes) / 2 / n_multiprocessors;
    }
};

// The current device, queried once.
cudaError_t current_device(const Device** device);

// Prepares a kernel for launches on the current device, once for each of the two: as much dynamic
// shared memory as a block can have, and the shared memory as large as it can be. `device` receives
// the current device.
//
// Both are properties of the kernel, not of a launch, and launches of several sizes are in one
// graph. So they are never lowered.
cudaError_t prepare_kernel(const void* kernel, const Device** device);

}  // namespace soliton::cuda
