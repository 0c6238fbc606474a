// Replaces CUDA's header of this name to run kernels on a CPU: the keywords, built-in variables and
// functions that kernels use, and the runtime's functions. Devices, streams and events are
// simulated; a launch has finished when it returns.
//
// A file of kernels is compiled with
//   g++ -std=c++20 -x c++ -DSOLITON_CUDA_EMULATED -I tests/native/cuda_emulator -I csrc/cuda
//       -fsanitize=alignment,bounds -fsanitize-undefined-trap-on-error
// and linked with this directory's block.cpp, context.cpp, emulator.cpp and runtime.cpp. Write
// alignas before __shared__, or __align__ after it.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulator.h"

#define __host__
#define __device__
#define __global__
#define __constant__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
// The emulator finds exactly these variables in the module's thread_local storage.
#define __shared__ static thread_local

// ---- Types of several components. ----

#define SOLITON_VECTOR_TYPES(T, name, a2, a4)           \
    struct name##1 {                                    \
        T x;                                            \
    };                                                  \
    struct alignas(a2) name##2 {                        \
        T x, y;                                         \
    };                                                  \
    struct name##3 {                                    \
        T x, y, z;                                      \
    };                                                  \
    struct alignas(a4) name##4 {                        \
        T x, y, z, w;                                   \
    };                                                  \
    inline name##2 make_##name##2(T x, T y) {           \
        return {x, y};                                  \
    }                                                   \
    inline name##3 make_##name##3(T x, T y, T z) {      \
        return {x, y, z};                               \
    }                                                   \
    inline name##4 make_##name##4(T x, T y, T z, T w) { \
        return {x, y, z, w};                            \
    }

SOLITON_VECTOR_TYPES(signed char, char, 2, 4)
SOLITON_VECTOR_TYPES(unsigned char, uchar, 2, 4)
SOLITON_VECTOR_TYPES(short, short, 4, 8)
SOLITON_VECTOR_TYPES(unsigned short, ushort, 4, 8)
SOLITON_VECTOR_TYPES(int, int, 8, 16)
SOLITON_VECTOR_TYPES(unsigned, uint, 8, 16)
SOLITON_VECTOR_TYPES(float, float, 8, 16)
SOLITON_VECTOR_TYPES(double, double, 16, 16)
SOLITON_VECTOR_TYPES(long long, longlong, 16, 16)
SOLITON_VECTOR_TYPES(unsigned long long, ulonglong, 16, 16)
#undef SOLITON_VECTOR_TYPES

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

// Of the running thread; set at every switch.
extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;
inline constexpr int warpSize = 32;

// ---- Where threads meet. ----

inline void __syncthreads(soliton::emulator::Where where = soliton::emulator::Where::current()) {
    soliton::emulator::barrier(where);
}

inline void __syncwarp(unsigned mask = 0xffffffffu,
                       soliton::emulator::Where where = soliton::emulator::Where::current()) {
    soliton::emulator::meet(
        soliton::emulator::Meeting::kSyncWarp, mask, &mask, [](void* const(&)[32]) {}, where);
}

namespace soliton::emulator {

template <typename T>
struct Shuffled {
    T value;
    T result;
    unsigned from;  // the lane whose value to read
};

template <typename T>
T shuffle(unsigned mask, T value, unsigned from, const Where& where) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
    Shuffled<T> mine = {value, value, from};
    meet(
        Meeting::kShuffle, mask, &mine,
        [](void* const(&lanes)[32]) {
            for (void* lane : lanes) {
                if (lane == nullptr) {
                    continue;
                }
                auto* asked = static_cast<Shuffled<T>*>(lane);
                const auto* given = static_cast<const Shuffled<T>*>(lanes[asked->from]);
                if (given == nullptr) {  // the value of a lane outside of the mask is undefined
                    std::memset(static_cast<void*>(&asked->result), 0xff, sizeof asked->result);
                } else {
                    asked->result = given->value;
                }
            }
        },
        where);
    return mine.result;
}

struct Vote {
    bool value;
    unsigned result;
};

inline unsigned ballot(unsigned mask, bool value, const Where& where) {
    Vote mine = {value, 0};
    meet(
        Meeting::kVote, mask, &mine,
        [](void* const(&lanes)[32]) {
            unsigned votes = 0;
            for (unsigned i = 0; i < 32; ++i) {
                if (lanes[i] != nullptr && static_cast<const Vote*>(lanes[i])->value) {
                    votes |= 1u << i;
                }
            }
            for (void* lane : lanes) {
                if (lane != nullptr) {
                    static_cast<Vote*>(lane)->result = votes;
                }
            }
        },
        where);
    return mine.result;
}

}  // namespace soliton::emulator

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              soliton::emulator::Where where = soliton::emulator::Where::current()) {
    const unsigned lane = soliton::emulator::lane();
    const unsigned in_part = static_cast<unsigned>(width) - 1;
    return soliton::emulator::shuffle(
        mask, value, (lane & ~in_part) | (static_cast<unsigned>(source) & in_part), where);
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32,
                  soliton::emulator::Where where = soliton::emulator::Where::current()) {
    const unsigned lane = soliton::emulator::lane();
    const unsigned from = lane ^ static_cast<unsigned>(lanes);
    const unsigned end = (lane / static_cast<unsigned>(width) + 1) * static_cast<unsigned>(width);
    return soliton::emulator::shuffle(mask, value, from < end ? from : lane, where);
}

template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32,
                   soliton::emulator::Where where = soliton::emulator::Where::current()) {
    const unsigned lane = soliton::emulator::lane();
    const unsigned end = (lane / static_cast<unsigned>(width) + 1) * static_cast<unsigned>(width);
    return soliton::emulator::shuffle(mask, value, lane + distance < end ? lane + distance : lane,
                                      where);
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32,
                 soliton::emulator::Where where = soliton::emulator::Where::current()) {
    const unsigned lane = soliton::emulator::lane();
    const unsigned begin = lane / static_cast<unsigned>(width) * static_cast<unsigned>(width);
    return soliton::emulator::shuffle(mask, value,
                                      lane >= begin + distance ? lane - distance : lane, where);
}

inline unsigned __ballot_sync(
    unsigned mask, int value,
    soliton::emulator::Where where = soliton::emulator::Where::current()) {
    return soliton::emulator::ballot(mask, value != 0, where);
}

inline int __any_sync(unsigned mask, int value,
                      soliton::emulator::Where where = soliton::emulator::Where::current()) {
    return soliton::emulator::ballot(mask, value != 0, where) != 0;
}

inline int __all_sync(unsigned mask, int value,
                      soliton::emulator::Where where = soliton::emulator::Where::current()) {
    return soliton::emulator::ballot(mask, value == 0, where) == 0;
}

// ---- Memory. One thread runs at a time, so everything is atomic. ----

inline void __threadfence() {}
inline void __threadfence_block() {}

template <typename T>
T __ldg(const T* address) {
    return *address;
}
template <typename T>
T __ldcg(const T* address) {
    return *address;
}
template <typename T>
T __ldcs(const T* address) {
    return *address;
}
template <typename T>
void __stcg(T* address, T value) {
    *address = value;
}

template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
    const T old = *address;
    *address = old + value;
    return old;
}
template <typename T>
T atomicSub(T* address, std::type_identity_t<T> value) {
    const T old = *address;
    *address = old - value;
    return old;
}
template <typename T>
T atomicExch(T* address, std::type_identity_t<T> value) {
    const T old = *address;
    *address = value;
    return old;
}
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
    const T old = *address;
    if (old == expected) {
        *address = value;
    }
    return old;
}
template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value) {
    const T old = *address;
    *address = std::max(old, value);
    return old;
}
template <typename T>
T atomicMin(T* address, std::type_identity_t<T> value) {
    const T old = *address;
    *address = std::min(old, value);
    return old;
}
template <typename T>
T atomicOr(T* address, std::type_identity_t<T> value) {
    const T old = *address;
    *address = old | value;
    return old;
}
template <typename T>
T atomicAnd(T* address, std::type_identity_t<T> value) {
    const T old = *address;
    *address = old & value;
    return old;
}
inline unsigned atomicInc(unsigned* address, unsigned limit) {
    const unsigned old = *address;
    *address = old >= limit ? 0 : old + 1;
    return old;
}

// ---- Numbers. ----

using std::isfinite;
using std::isinf;
using std::isnan;

template <typename A, typename B>
    requires(std::is_arithmetic_v<A> && std::is_arithmetic_v<B>)
constexpr std::common_type_t<A, B> min(A a, B b) {
    using T = std::common_type_t<A, B>;
    return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <typename A, typename B>
    requires(std::is_arithmetic_v<A> && std::is_arithmetic_v<B>)
constexpr std::common_type_t<A, B> max(A a, B b) {
    using T = std::common_type_t<A, B>;
    return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

inline float rsqrtf(float x) {
    return 1.0f / std::sqrt(x);
}
inline double rsqrt(double x) {
    return 1.0 / std::sqrt(x);
}
inline float __expf(float x) {
    return std::exp(x);
}
inline float __logf(float x) {
    return std::log(x);
}
inline float __log2f(float x) {
    return std::log2(x);
}
inline float __sinf(float x) {
    return std::sin(x);
}
inline float __cosf(float x) {
    return std::cos(x);
}
inline float __powf(float x, float y) {
    return std::pow(x, y);
}
inline float __fdividef(float a, float b) {
    return a / b;
}
inline float __fadd_rn(float a, float b) {
    return a + b;
}
inline float __fsub_rn(float a, float b) {
    return a - b;
}
inline float __fmul_rn(float a, float b) {
    return a * b;
}
inline float __fdiv_rn(float a, float b) {
    return a / b;
}
inline float __fmaf_rn(float a, float b, float c) {
    return std::fma(a, b, c);
}
inline float __frcp_rn(float a) {
    return 1.0f / a;
}
inline float __fsqrt_rn(float a) {
    return std::sqrt(a);
}
inline float __frsqrt_rn(float a) {
    return static_cast<float>(1.0 / std::sqrt(double{a}));
}
inline double __dadd_rn(double a, double b) {
    return a + b;
}
inline double __dsub_rn(double a, double b) {
    return a - b;
}
inline double __dmul_rn(double a, double b) {
    return a * b;
}
inline double __ddiv_rn(double a, double b) {
    return a / b;
}
inline double __fma_rn(double a, double b, double c) {
    return std::fma(a, b, c);
}
inline float __saturatef(float a) {
    return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f;
}

inline int __float_as_int(float a) {
    return std::bit_cast<int>(a);
}
inline unsigned __float_as_uint(float a) {
    return std::bit_cast<unsigned>(a);
}
inline float __int_as_float(int a) {
    return std::bit_cast<float>(a);
}
inline float __uint_as_float(unsigned a) {
    return std::bit_cast<float>(a);
}
inline long long __double_as_longlong(double a) {
    return std::bit_cast<long long>(a);
}
inline double __longlong_as_double(long long a) {
    return std::bit_cast<double>(a);
}
inline int __float2int_rn(float a) {
    return static_cast<int>(std::nearbyint(a));
}
inline int __float2int_rz(float a) {
    return static_cast<int>(a);
}
inline int __float2int_rd(float a) {
    return static_cast<int>(std::floor(a));
}
inline float __int2float_rn(int a) {
    return static_cast<float>(a);
}
inline float __uint2float_rn(unsigned a) {
    return static_cast<float>(a);
}
inline float __double2float_rn(double a) {
    return static_cast<float>(a);
}

inline int __popc(unsigned a) {
    return std::popcount(a);
}
inline int __popcll(unsigned long long a) {
    return std::popcount(a);
}
inline int __clz(int a) {
    return std::countl_zero(static_cast<unsigned>(a));
}
inline int __clzll(long long a) {
    return std::countl_zero(static_cast<unsigned long long>(a));
}
inline int __ffs(int a) {
    return a == 0 ? 0 : std::countr_zero(static_cast<unsigned>(a)) + 1;
}
inline int __ffsll(long long a) {
    return a == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(a)) + 1;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>((uint64_t{a} * b) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<unsigned long long>((Wide{a} * b) >> 64);
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    const uint64_t bytes = (uint64_t{high} << 32) | low;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned nibble = (selector >> (4 * i)) & 0xf;
        unsigned byte = static_cast<unsigned>(bytes >> (8 * (nibble & 7))) & 0xff;
        if ((nibble & 8) != 0) {  // its sign, eight times
            byte = (byte & 0x80) != 0 ? 0xff : 0;
        }
        result |= byte << (8 * i);
    }
    return result;
}
inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; ++i) {
        c += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i));
    }
    return c;
}
inline long long clock64() {
    return 0;
}

// ---- The runtime. ----

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotSupported = 801,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
};

const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

typedef struct EmulatedStream* cudaStream_t;
typedef struct EmulatedEvent* cudaEvent_t;
typedef struct EmulatedGraph* cudaGraph_t;
typedef struct EmulatedGraphExec* cudaGraphExec_t;

enum cudaDeviceAttr {
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem;
    size_t sharedMemPerBlock;
    size_t sharedMemPerBlockOptin;
    size_t sharedMemPerMultiprocessor;
    int multiProcessorCount;
    int major;
    int minor;
    int l2CacheSize;
};

cudaError_t cudaGetDeviceCount(int* n);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4,
};

// The memory is filled with NaN, and an access after its end is an error.
cudaError_t cudaMalloc(void** address, size_t n_bytes);
cudaError_t cudaFree(void* address);
cudaError_t cudaMallocHost(void** address, size_t n_bytes);
cudaError_t cudaFreeHost(void* address);
template <typename T>
cudaError_t cudaMalloc(T** address, size_t n_bytes) {
    return cudaMalloc(reinterpret_cast<void**>(address), n_bytes);
}
template <typename T>
cudaError_t cudaMallocHost(T** address, size_t n_bytes) {
    return cudaMallocHost(reinterpret_cast<void**>(address), n_bytes);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t n_bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n_bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void* to, int value, size_t n_bytes);
cudaError_t cudaMemsetAsync(void* to, int value, size_t n_bytes, cudaStream_t stream = nullptr);

inline constexpr unsigned cudaStreamDefault = 0;
inline constexpr unsigned cudaStreamNonBlocking = 1;
cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);

inline constexpr unsigned cudaEventDefault = 0;
inline constexpr unsigned cudaEventBlockingSync = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end);

enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal = 0,
    cudaStreamCaptureModeThreadLocal = 1,
    cudaStreamCaptureModeRelaxed = 2,
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone = 0,
    cudaStreamCaptureStatusActive = 1,
    cudaStreamCaptureStatusInvalidated = 2,
};
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags = 0);
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};
inline constexpr int cudaSharedmemCarveoutMaxShared = 100;
struct cudaFuncAttributes {
    size_t sharedSizeBytes;
};
// Static shared memory is not counted.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel);
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
template <typename... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute,
                                 int value) {
    return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

namespace soliton::emulator {

// Runs the grid at once or, if the stream is being captured, when its graph runs.
cudaError_t enqueue(const void* kernel, Grid grid, cudaStream_t stream);

}  // namespace soliton::emulator
