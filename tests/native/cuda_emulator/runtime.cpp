// The functions of CUDA's runtime, for one simulated device.
#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "block.h"
#include "cuda_runtime.h"

using soliton::emulator::Grid;

struct EmulatedGraph {
    std::vector<Grid> grids;
};

struct EmulatedGraphExec {
    std::vector<Grid> grids;
};

struct EmulatedStream {
    EmulatedGraph* captured_into = nullptr;
};

struct EmulatedEvent {
    bool has_timing;
    bool is_recorded = false;
    std::chrono::steady_clock::time_point at;
};

namespace {

constexpr int kStaticSharedLimit = 48 * 1024;
constexpr size_t kPage = 4096;

std::mutex mutex;  // guards everything below; one grid runs at a time
cudaError_t last_error = cudaSuccess;
std::string failure_text;
std::map<const void*, size_t> shared_limits;
std::map<void*, std::pair<void*, size_t>> allocations;  // address -> its pages

cudaError_t noted(cudaError_t error) {
    if (error != cudaSuccess) {
        last_error = error;
    }
    return error;
}

cudaError_t failed(const std::string& what) {
    failure_text = "unspecified launch failure: " + what;
    return noted(cudaErrorLaunchFailure);
}

cudaError_t allocate(void** address, size_t n_bytes) {
    const size_t n_kept = (n_bytes + 15) / 16 * 16;
    const size_t n_pages = (n_kept + kPage - 1) / kPage;
    const size_t n_mapped = (n_pages + 2) * kPage;
    void* pages =
        mmap(nullptr, n_mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
        return noted(cudaErrorMemoryAllocation);
    }
    auto* begin = static_cast<std::byte*>(pages);
    std::byte* end = begin + (n_pages + 1) * kPage;
    mprotect(begin, kPage, PROT_NONE);
    mprotect(end, kPage, PROT_NONE);
    *address = end - n_kept;
    std::memset(*address, 0xff, n_kept);
    const std::scoped_lock lock(mutex);
    allocations[*address] = {pages, n_mapped};
    return cudaSuccess;
}

cudaError_t release(void* address) {
    const std::scoped_lock lock(mutex);
    if (address == nullptr) {
        return cudaSuccess;
    }
    const auto found = allocations.find(address);
    if (found == allocations.end()) {
        return noted(cudaErrorInvalidValue);
    }
    munmap(found->second.first, found->second.second);
    allocations.erase(found);
    return cudaSuccess;
}

}  // namespace

namespace soliton::emulator {

cudaError_t enqueue(const void* kernel, Grid grid, cudaStream_t stream) {
    const std::scoped_lock lock(mutex);
    const auto fits = [](const Extent& extent, uint64_t x, uint64_t y, uint64_t z) {
        return extent.count() > 0 && extent.x <= x && extent.y <= y && extent.z <= z;
    };
    if (!fits(grid.grid, 0x7fffffff, 65535, 65535) || !fits(grid.block, 1024, 1024, 64) ||
        grid.block.count() > kMaxThreads) {
        return noted(cudaErrorInvalidConfiguration);
    }
    const auto raised = shared_limits.find(kernel);
    const size_t limit = raised != shared_limits.end() ? raised->second : kStaticSharedLimit;
    if (grid.shared_bytes > limit) {
        return noted(cudaErrorInvalidValue);
    }
    if (stream != nullptr && stream->captured_into != nullptr) {
        stream->captured_into->grids.push_back(std::move(grid));
        return cudaSuccess;
    }
    const std::string failure = run(grid);
    return failure.empty() ? cudaSuccess : failed(failure);
}

}  // namespace soliton::emulator

const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
        case cudaSuccess:
            return "no error";
        case cudaErrorInvalidValue:
            return "invalid argument";
        case cudaErrorMemoryAllocation:
            return "out of memory";
        case cudaErrorInvalidConfiguration:
            return "invalid configuration argument";
        case cudaErrorInvalidDeviceFunction:
            return "invalid device function";
        case cudaErrorNoDevice:
            return "no CUDA-capable device is detected";
        case cudaErrorInvalidDevice:
            return "invalid device ordinal";
        case cudaErrorInvalidResourceHandle:
            return "invalid resource handle";
        case cudaErrorNotReady:
            return "device not ready";
        case cudaErrorLaunchFailure:
            return failure_text.c_str();
        case cudaErrorNotSupported:
            return "operation not supported";
        case cudaErrorStreamCaptureUnsupported:
            return "operation not permitted when stream is capturing";
        case cudaErrorStreamCaptureInvalidated:
            return "operation failed due to a previous error during capture";
    }
    return "unrecognized error code";
}

const char* cudaGetErrorName(cudaError_t error) {
    return cudaGetErrorString(error);
}

cudaError_t cudaGetLastError() {
    return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
    return last_error;
}

cudaError_t cudaGetDeviceCount(int* n) {
    *n = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    return noted(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    if (device != 0) {
        return noted(cudaErrorInvalidDevice);
    }
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "%s", "emulated");
    properties->totalGlobalMem = size_t{1} << 30;
    properties->sharedMemPerBlock = kStaticSharedLimit;
    properties->sharedMemPerBlockOptin = soliton::emulator::kMaxSharedBytes;
    properties->sharedMemPerMultiprocessor = 228 * 1024;
    properties->multiProcessorCount = 4;
    properties->major = 9;
    properties->minor = 0;
    properties->l2CacheSize = 1 << 20;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    cudaDeviceProp properties;
    if (const cudaError_t error = cudaGetDeviceProperties(&properties, device);
        error != cudaSuccess) {
        return error;
    }
    switch (attribute) {
        case cudaDevAttrMaxSharedMemoryPerBlock:
            *value = static_cast<int>(properties.sharedMemPerBlock);
            return cudaSuccess;
        case cudaDevAttrMultiProcessorCount:
            *value = properties.multiProcessorCount;
            return cudaSuccess;
        case cudaDevAttrL2CacheSize:
            *value = properties.l2CacheSize;
            return cudaSuccess;
        case cudaDevAttrComputeCapabilityMajor:
            *value = properties.major;
            return cudaSuccess;
        case cudaDevAttrComputeCapabilityMinor:
            *value = properties.minor;
            return cudaSuccess;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
            *value = static_cast<int>(properties.sharedMemPerMultiprocessor);
            return cudaSuccess;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:
            *value = static_cast<int>(properties.sharedMemPerBlockOptin);
            return cudaSuccess;
    }
    return noted(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceSynchronize() {
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
    return cudaDriverGetVersion(version);
}

cudaError_t cudaMalloc(void** address, size_t n_bytes) {
    return allocate(address, n_bytes);
}

cudaError_t cudaFree(void* address) {
    return release(address);
}

cudaError_t cudaMallocHost(void** address, size_t n_bytes) {
    return allocate(address, n_bytes);
}

cudaError_t cudaFreeHost(void* address) {
    return release(address);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t n_bytes, cudaMemcpyKind) {
    std::memmove(to, from, n_bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n_bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    if (stream != nullptr && stream->captured_into != nullptr) {
        return noted(cudaErrorNotSupported);  // only launches are supported in graphs
    }
    return cudaMemcpy(to, from, n_bytes, kind);
}

cudaError_t cudaMemset(void* to, int value, size_t n_bytes) {
    std::memset(to, value, n_bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t n_bytes, cudaStream_t stream) {
    if (stream != nullptr && stream->captured_into != nullptr) {
        return noted(cudaErrorNotSupported);
    }
    return cudaMemset(to, value, n_bytes);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    *stream = new EmulatedStream();
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    return cudaStreamCreate(stream);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (stream != nullptr && stream->captured_into != nullptr) {
        return noted(cudaErrorStreamCaptureUnsupported);
    }
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return cudaStreamSynchronize(stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    *event = new EmulatedEvent{.has_timing = (flags & cudaEventDisableTiming) == 0, .at = {}};
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
    event->is_recorded = true;
    event->at = std::chrono::steady_clock::now();
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t) {
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t) {
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
    if (!begin->has_timing || !end->has_timing || !begin->is_recorded || !end->is_recorded) {
        return noted(cudaErrorInvalidResourceHandle);
    }
    *ms = std::chrono::duration<float, std::milli>(end->at - begin->at).count();
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    if (stream == nullptr) {  // the default stream cannot be captured
        return noted(cudaErrorStreamCaptureUnsupported);
    }
    if (stream->captured_into != nullptr) {
        return noted(cudaErrorInvalidValue);
    }
    stream->captured_into = new EmulatedGraph();
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    if (stream == nullptr || stream->captured_into == nullptr) {
        return noted(cudaErrorInvalidValue);
    }
    *graph = std::exchange(stream->captured_into, nullptr);
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    *status = stream != nullptr && stream->captured_into != nullptr ? cudaStreamCaptureStatusActive
                                                                    : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
    *exec = new EmulatedGraphExec{graph->grids};
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
    const std::scoped_lock lock(mutex);
    for (size_t i = 0; i < exec->grids.size(); ++i) {
        const Grid* next = i + 1 < exec->grids.size() ? &exec->grids[i + 1] : nullptr;
        const std::string failure = soliton::emulator::run(exec->grids[i], next);
        if (!failure.empty()) {
            return failed(failure);
        }
    }
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    delete exec;
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
    *attributes = {};
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || static_cast<size_t>(value) > soliton::emulator::kMaxSharedBytes) {
            return noted(cudaErrorInvalidValue);
        }
        const std::scoped_lock lock(mutex);
        shared_limits[kernel] = static_cast<size_t>(value);
    }
    return cudaSuccess;
}
