#include "device.h"

#include <map>
#include <mutex>

namespace soliton::cuda {
namespace {

cudaError_t ask(int index, Device* device) {
    int values[4];
    const cudaDeviceAttr attributes[] = {
        cudaDevAttrMultiProcessorCount, cudaDevAttrMaxSharedMemoryPerBlockOptin,
        cudaDevAttrMaxSharedMemoryPerMultiprocessor, cudaDevAttrL2CacheSize};
    for (int i = 0; i < 4; ++i) {
        const cudaError_t error = cudaDeviceGetAttribute(&values[i], attributes[i], index);
        if (error != cudaSuccess) {
            return error;
        }
    }
    *device = {values[0], static_cast<size_t>(values[1]), static_cast<size_t>(values[2]),
               static_cast<size_t>(values[3])};
    return cudaSuccess;
}

}  // namespace

cudaError_t current_device(const Device** device) {
    static std::mutex mutex;
    static std::map<int, Device> known;
    int index = 0;
    cudaError_t error = cudaGetDevice(&index);
    if (error != cudaSuccess) {
        return error;
    }
    const std::scoped_lock lock(mutex);
    const auto [found, is_new] = known.try_emplace(index);
    if (is_new && (error = ask(index, &found->second)) != cudaSuccess) {
        known.erase(found);
        return error;
    }
    *device = &found->second;
    return cudaSuccess;
}

}  // namespace soliton::cuda
