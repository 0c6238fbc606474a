// Reads memory as fast as the device does, for bench/gpu/limits.py. Owns the bound of every decode
// figure: reading only, as a step reads its weights; a copy would be another bound.
#include <cuda_runtime.h>

#include <cstdint>

namespace {

constexpr int kThreads = 512;
constexpr int kBlocksPerProcessor = 4;
constexpr int kLoads = 8;  // of 16 bytes, that a thread has under way

__device__ uint4 load_once(const uint4* address) {
    uint4 value;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(address));
    return value;
}

__global__ void __launch_bounds__(kThreads) read(const uint4* words, int64_t n, unsigned* sum) {
    const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads * kLoads;
    unsigned own = 0;
    for (int64_t begin = static_cast<int64_t>(blockIdx.x) * kThreads * kLoads; begin < n;
         begin += stride) {
        uint4 loaded[kLoads];
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            const int64_t place = begin + i * kThreads + threadIdx.x;
            loaded[i] = place < n ? load_once(words + place) : uint4{};
        }
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            own += loaded[i].x + loaded[i].y + loaded[i].z + loaded[i].w;
        }
    }
    atomicAdd(sum, own);
}

}  // namespace

// Adds the sum of `n_bytes` / 4 words, modulo 2^32, to *sum; returns the error of the launch.
extern "C" __attribute__((visibility("default"))) int read_words(const void* words, int64_t n_bytes,
                                                                 unsigned* sum, int n_processors,
                                                                 cudaStream_t stream) {
    read<<<n_processors * kBlocksPerProcessor, kThreads, 0, stream>>>(
        static_cast<const uint4*>(words), n_bytes / 16, sum);
    return static_cast<int>(cudaGetLastError());
}
