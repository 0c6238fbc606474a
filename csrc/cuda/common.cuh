// What kernels use beyond CUDA C++: warp operations, tensor cores, asynchronous copies, overlapping
// launches. Owns every intrinsic and every line of PTX. Tests run the kernels on a CPU with other
// definitions of the same names (tests/native/cuda_emulator).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "device.h"

namespace soliton::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// Where a launch goes. If it overlaps, it may begin before the previous launch there has ended;
// then the kernel must call wait_for_previous_launch before it reads what the previous one writes.
struct LaunchAt {
    cudaStream_t stream;
    bool overlaps = false;
};

#ifndef SOLITON_CUDA_EMULATED

// The block's dynamic shared memory, aligned to 16 bytes.
template <typename T>
__device__ __forceinline__ T* shared_memory() {
    extern __shared__ uint4 shared_words[];
    return reinterpret_cast<T*>(shared_words);
}

// Waits until the previous launch has ended; its results cannot be read before. Data that does not
// depend on them, such as weights, can.
__device__ __forceinline__ void wait_for_previous_launch() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// From here on, the next launch may begin and run up to its own wait.
__device__ __forceinline__ void allow_next_launch() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Copies 16 bytes into shared memory, bypassing registers and L1; zeros unless `valid`. Complete
// after wait_for_copies.
__device__ __forceinline__ void copy_async(void* shared, const void* global, bool valid = true) {
    const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    const int n_bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(global),
                 "r"(n_bytes)
                 : "memory");
}

__device__ __forceinline__ void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until all but the newest kPending groups that this thread committed are complete, for this
// thread.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Asks for the bytes from `global` on in L2, and does not wait. The address and the number must be
// multiples of 16, and the bytes must exist.
__device__ __forceinline__ void prefetch_l2(const void* global, int n_bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(n_bytes)
                 : "memory");
#else
    constexpr int kLineBytes = 128;
    for (int at = 0; at < n_bytes; at += kLineBytes) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(global) + at));
    }
#endif
}

// Adds 1 and returns the number before. Whoever reads a number this way also sees what those who
// added before it had written, and with a block barrier on either side, what their blocks had.
__device__ __forceinline__ int count_up(int* counter) {
    int before;
    asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(counter)
                 : "memory");
    return before;
}

// d += A B on the tensor cores of a warp: A (16, 16), B (16, 8), d (16, 8) float32. Lane l holds,
// with g = l / 4 and t = l % 4, of A the pairs of columns {2t, 2t + 1} in rows g and g + 8, then
// the pairs {2t + 8, 2t + 9} of both; of B the pairs of rows {2t, 2t + 1}, then {2t + 8, 2t + 9},
// in column g; of d the columns 2t and 2t + 1 in row g, then in row g + 8.
__device__ __forceinline__ void multiply_bf16(float (&d)[4], const uint32_t (&a)[4],
                                              const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same for float16.
__device__ __forceinline__ void multiply_f16(float (&d)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Loads four 8x8 tiles of 16-bit values from shared memory, transposed. Lane l passes the address
// of row l % 8 of tile l / 8, and receives rows {2t, 2t + 1} of column g of tile i.
__device__ __forceinline__ void load_transposed(uint32_t (&tiles)[4], const void* row) {
    const auto from = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
                 : "r"(from)
                 : "memory");
}

// Transposes an 8x8 tile of 16-bit values: before and after, a lane has columns {2t, 2t + 1} of row
// g.
__device__ __forceinline__ uint32_t transpose_tile(uint32_t pair) {
    uint32_t result;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
    return result;
}

// (a & mask) | bits, in one instruction.
template <uint32_t kMask, uint32_t kBits>
__device__ __forceinline__ uint32_t and_or(uint32_t a) {
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(a), "n"(kMask), "n"(kBits));
    return result;
}

// Four of the eight bytes of `low` and `high`, chosen by the nibbles of the selector.
__device__ __forceinline__ uint32_t select_bytes(uint32_t low, uint32_t high, uint32_t selector) {
    return __byte_perm(low, high, selector);
}

// Loads from L2, because L1 may still hold what a launch before the previous one has read there.
template <typename T>
__device__ __forceinline__ T load_fresh(const T* address) {
    return __ldcg(address);
}

// Loads 16 bytes that nothing writes while the kernel runs, bypassing L1.
__device__ __forceinline__ uint4 load_once(const void* address) {
    uint4 value;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(address));
    return value;
}

template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                   LaunchAt at, const Arguments&... arguments) {
    const Device* device = nullptr;
    const cudaError_t error = prepare_kernel(reinterpret_cast<const void*>(kernel), &device);
    if (error != cudaSuccess) {
        return error;
    }
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = at.stream;
    config.attrs = &overlap;
    config.numAttrs = at.overlaps && device->can_overlap ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

#else
#include "emulated_common.h"
#endif

// ---- Built from the above, on GPUs and in the emulator. ----

__device__ __forceinline__ float sum_of_warp(float value) {
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(kAllLanes, value, distance);
    }
    return value;
}

__device__ __forceinline__ float max_of_warp(float value) {
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
        value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
    }
    return value;
}

// Prefetches a share of the bytes into L2: that of caller `i` of `n`.
__device__ __forceinline__ void prefetch_share(const void* global, int64_t n_bytes, int i, int n) {
    constexpr int64_t kPiece = 2048;
    for (int64_t at = int64_t{i} * kPiece; at < n_bytes; at += int64_t{n} * kPiece) {
        const int64_t left = n_bytes - at;
        prefetch_l2(static_cast<const char*>(global) + at,
                    static_cast<int>(left < kPiece ? left : kPiece));
    }
}

}  // namespace soliton::cuda
