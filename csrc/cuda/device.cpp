#include "device.h"

#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace soliton::cuda {
namespace {

cudaError_t ask(int index, Device* device) {
    int values[5];
    const cudaDeviceAttr attributes[] = {cudaDevAttrMultiProcessorCount,
                                         cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                         cudaDevAttrMaxSharedMemoryPerMultiprocessor,
                                         cudaDevAttrL2CacheSize, cudaDevAttrComputeCapabilityMajor};
    for (int i = 0; i < 5; ++i) {
        const cudaError_t error = cudaDeviceGetAttribute(&values[i], attributes[i], index);
        if (error != cudaSuccess) {
            return error;
        }
    }
    constexpr int kHopper = 9;
    *device = {values[0], static_cast<size_t>(values[1]), static_cast<size_t>(values[2]),
               static_cast<size_t>(values[3]), values[4] >= kHopper};
    return cudaSuccess;
}

// The limit holds for static and dynamic shared memory together.
cudaError_t raise_limits(const void* kernel, const Device& device) {
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    if (error == cudaSuccess) {
        error = cudaFuncSetAttribute(
            kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
            static_cast<int>(device.max_shared_bytes - attributes.sharedSizeBytes));
    }
    if (error == cudaSuccess) {
        // The same for all kernels: to change its division between shared memory and L1, a
        // multiprocessor must first finish the running kernel, so launches would not overlap.
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                     cudaSharedmemCarveoutMaxShared);
    }
    return error;
}

// What is known of devices and kernels, for all threads.
class Known {
  public:
    cudaError_t device(const Device** device, int* index) {
        cudaError_t error = cudaGetDevice(index);
        if (error != cudaSuccess) {
            return error;
        }
        const std::scoped_lock lock(mutex_);
        const auto [found, is_new] = devices_.try_emplace(*index);
        if (is_new && (error = ask(*index, &found->second)) != cudaSuccess) {
            devices_.erase(found);
            return error;
        }
        *device = &found->second;
        return cudaSuccess;
    }

    cudaError_t prepare(const void* kernel, const Device& device, int index) {
        const std::scoped_lock lock(mutex_);
        if (prepared_.contains({index, kernel})) {
            return cudaSuccess;
        }
        const cudaError_t error = raise_limits(kernel, device);
        if (error == cudaSuccess) {
            prepared_.emplace(index, kernel);
        }
        return error;
    }

  private:
    std::mutex mutex_;
    std::map<int, Device> devices_;
    std::set<std::pair<int, const void*>> prepared_;
};

Known& known() {
    static Known instance;
    return instance;
}

}  // namespace

cudaError_t current_device(const Device** device) {
    int index = 0;
    return known().device(device, &index);
}

cudaError_t prepare_kernel(const void* kernel, const Device** device) {
    int index = 0;
    const cudaError_t error = known().device(device, &index);
    return error == cudaSuccess ? known().prepare(kernel, **device, index) : error;
}

}  // namespace soliton::cuda
