// Small kernels, correct ones and ones with a mistake that the emulator must report, for
// tests/engine/device/test_cuda_emulator.py. Prints a line per kernel: its name, and the sum of its
// output or the error.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "common.cuh"

namespace soliton::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void reverse(float* out, bool with_barrier) {
    wait_for_previous_launch();
    __shared__ float values[kThreads];
    values[threadIdx.x] = static_cast<float>(threadIdx.x + 1);
    if (with_barrier) {
        __syncthreads();
    }
    out[blockIdx.x * kThreads + threadIdx.x] = values[kThreads - 1 - threadIdx.x];
}

__global__ void neighbours(float* out, bool with_barrier) {
    wait_for_previous_launch();
    auto* values = shared_memory<float>();
    values[threadIdx.x] = static_cast<float>(threadIdx.x);
    if (with_barrier) {
        __syncwarp();
    }
    out[threadIdx.x] = values[threadIdx.x ^ 1];
}

__global__ void copy(float* out, const float* in, bool with_wait, bool with_barrier) {
    wait_for_previous_launch();
    auto* values = shared_memory<float>();
    copy_async(values + 4 * threadIdx.x, in + 4 * threadIdx.x, threadIdx.x != 5);
    commit_copies();
    if (with_wait) {
        wait_for_copies<0>();
    }
    if (with_barrier) {
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i) {
        const int at = 4 * (kThreads - 1 - static_cast<int>(threadIdx.x)) + i;
        out[at] = values[at];
    }
}

__global__ void divergent(float* out) {
    wait_for_previous_launch();
    if (threadIdx.x < 64) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    out[threadIdx.x] = 1;
}

__global__ void half_of_a_warp(float* out) {
    wait_for_previous_launch();
    float value = 1;
    if (threadIdx.x % 32 < 16) {
        value = sum_of_warp(value);
    } else {
        __syncthreads();
    }
    out[threadIdx.x] = value;
}

__global__ void beyond(float* out, int i) {
    wait_for_previous_launch();
    auto* values = shared_memory<float>();
    values[i] = 1;
    out[threadIdx.x] = 1;
}

__global__ void beyond_static(float* out, int i) {
    wait_for_previous_launch();
    __shared__ float values[kThreads];
    values[i + static_cast<int>(threadIdx.x)] = 1;
    out[threadIdx.x] = values[threadIdx.x];
}

__global__ void words(float* out, int i) {
    wait_for_previous_launch();
    const uint4 value = *reinterpret_cast<const uint4*>(out + i);
    out[threadIdx.x] = static_cast<float>(value.x);
}

__global__ void without_wait(float* out) {
    out[threadIdx.x] = 1;
}

__global__ void sums(float* out) {
    wait_for_previous_launch();
    const float sum = sum_of_warp(static_cast<float>(threadIdx.x));
    const float largest = max_of_warp(static_cast<float>(threadIdx.x));
    const unsigned odd = __ballot_sync(kAllLanes, threadIdx.x % 2);
    const float below = __shfl_up_sync(kAllLanes, sum, 1);
    out[threadIdx.x] = sum + largest + static_cast<float>(__popc(odd)) + below +
                       static_cast<float>(__any_sync(kAllLanes, threadIdx.x == 1)) +
                       static_cast<float>(__all_sync(kAllLanes, threadIdx.x < 32));
}

// (16, 16) A with A[i][j] = i - 2 j, (16, 8) B with B[i][j] = i j + 1: in float16, with B loaded by
// load_transposed.
__global__ void product(float* out) {
    wait_for_previous_launch();
    __shared__ __align__(16) __half columns[4][8][8];  // tiles of B, two of them unused
    const int lane = static_cast<int>(threadIdx.x);
    for (int i = lane; i < 256; i += kWarp) {
        const int tile = i / 64;
        const int row = i / 8 % 8 + tile * 8;
        columns[tile][i / 8 % 8][i % 8] = __float2half(static_cast<float>(row * (i % 8) + 1));
    }
    __syncwarp();
    uint32_t tiles[4];
    load_transposed(tiles, columns[lane / 8][lane % 8]);
    const int g = lane / 4;
    const int t = lane % 4;
    uint32_t a[4];
    for (int i = 0; i < 4; ++i) {
        const int row = g + i % 2 * 8;
        const int column = 2 * t + i / 2 * 8;
        const auto value = [&](int at) {
            return uint32_t{__half_as_ushort(__float2half(static_cast<float>(row - 2 * at)))};
        };
        a[i] = value(column) | value(column + 1) << 16;
    }
    const uint32_t b[2] = {tiles[0], tiles[1]};
    float d[4] = {};
    multiply_f16(d, a, b);
    for (int i = 0; i < 4; ++i) {
        out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
    }
}

// The last block adds up the counts of all blocks.
__global__ void last_block(float* out, unsigned* counter) {
    wait_for_previous_launch();
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        out[blockIdx.x] = static_cast<float>(blockIdx.x + 1);
        __threadfence();
        is_last = atomicAdd(counter, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last && threadIdx.x == 0) {
        float sum = 0;
        for (unsigned i = 0; i < gridDim.x; ++i) {
            sum += out[i];
        }
        out[gridDim.x] = sum;
    }
}

// The output depends on which warp comes first; every order is allowed.
__global__ void who_is_first(float* out) {
    wait_for_previous_launch();
    __shared__ unsigned n;
    if (threadIdx.x == 0) {
        n = 0;
    }
    __syncthreads();
    out[threadIdx.x] = static_cast<float>(atomicAdd(&n, 1u));
}

__global__ void doubled(float* out, const float* in, bool waits_first) {
    __shared__ float value[kThreads];
    if (waits_first) {
        wait_for_previous_launch();
    }
    value[threadIdx.x] = 2 * in[threadIdx.x];
    wait_for_previous_launch();
    out[threadIdx.x] = value[threadIdx.x];
}

void print(const char* name, cudaError_t error, const float* values, int n) {
    if (error != cudaSuccess) {
        std::printf("%s: %s\n", name, cudaGetErrorString(error));
        return;
    }
    double sum = 0;
    for (int i = 0; i < n; ++i) {
        sum += (i + 1.0) * double{values[i]};
    }
    std::printf("%s: %.9g\n", name, sum);
}

// Two launches, the second of which reads what the first one writes, replayed as a graph.
cudaError_t chain(float* out, bool waits_first, bool overlaps) {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStreamCreate(&stream);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    const LaunchAt at = {stream, overlaps};
    launch(reverse, 1, kThreads, 0, at, out, true);
    launch(doubled, 1, kThreads, 0, at, out + kThreads, out, waits_first);
    launch(doubled, 1, kThreads, 0, at, out, out + kThreads, waits_first);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphDestroy(graph);
    const cudaError_t error = cudaGraphLaunch(exec, nullptr);
    cudaGraphExecDestroy(exec);
    cudaStreamDestroy(stream);
    return error;
}

}  // namespace
}  // namespace soliton::cuda

int main() {
    using namespace soliton::cuda;
    constexpr int kFloats = 4 * kThreads;
    float* out;
    float* in;
    unsigned* counter;
    cudaMalloc(&out, kFloats * sizeof *out);
    cudaMalloc(&in, kFloats * sizeof *in);
    cudaMalloc(&counter, sizeof *counter);
    for (int i = 0; i < kFloats; ++i) {
        in[i] = static_cast<float>(i);
    }
    cudaMemset(counter, 0, sizeof *counter);
    constexpr size_t kShared = kFloats * sizeof(float);
    const LaunchAt stream = {nullptr, true};

    const auto tell = [&](const char* name, cudaError_t error, int n) {
        print(name, error, out, n);
        cudaMemset(out, 0xff, kFloats * sizeof *out);
    };
    tell("reverse", launch(reverse, 3, kThreads, 0, stream, out, true), 3 * kThreads);
    tell("reverse without barrier", launch(reverse, 3, kThreads, 0, stream, out, false),
         3 * kThreads);
    tell("neighbours", launch(neighbours, 1, kThreads, kShared, stream, out, true), kThreads);
    tell("neighbours without barrier", launch(neighbours, 1, kThreads, kShared, stream, out, false),
         kThreads);
    tell("copy", launch(copy, 1, kThreads, kShared, stream, out, in, true, true), kFloats);
    tell("copy without wait", launch(copy, 1, kThreads, kShared, stream, out, in, false, true),
         kFloats);
    tell("copy without barrier", launch(copy, 1, kThreads, kShared, stream, out, in, true, false),
         kFloats);
    tell("copy beyond", launch(copy, 1, kThreads, kShared - 16, stream, out, in, true, true),
         kFloats);
    tell("copy misaligned", launch(copy, 1, kThreads, kShared, stream, out, in + 1, true, true),
         kFloats);
    tell("divergent", launch(divergent, 1, kThreads, 0, stream, out), kThreads);
    tell("half of a warp", launch(half_of_a_warp, 1, kThreads, 0, stream, out), kThreads);
    tell("beyond", launch(beyond, 1, kThreads, 512, stream, out, 128), kThreads);
    tell("before", launch(beyond, 1, kThreads, 512, stream, out, -1), kThreads);
    tell("beyond static", launch(beyond_static, 1, kThreads, 0, stream, out, 1), kThreads);
    tell("global beyond", launch(reverse, 5, kThreads, 0, stream, out, true), kThreads);
    tell("words misaligned", launch(words, 1, kThreads, 0, stream, out, 1), kThreads);
    tell("without wait", launch(without_wait, 1, kThreads, 0, stream, out), kThreads);
    tell("without wait, one by one", launch(without_wait, 1, kThreads, 0, {nullptr}, out),
         kThreads);
    cudaFuncSetAttribute(beyond, cudaFuncAttributeMaxDynamicSharedMemorySize, 59999);
    tell("too much shared memory", launch(beyond, 1, kThreads, 60000, stream, out, 0), kThreads);
    cudaFuncSetAttribute(beyond, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000);
    tell("much shared memory", launch(beyond, 1, kThreads, 60000, stream, out, 14999), kThreads);
    tell("sums", launch(sums, 1, kThreads, 0, stream, out), kThreads);
    tell("product", launch(product, 1, kWarp, 0, stream, out), 128);
    tell("last block", launch(last_block, 7, kThreads, 0, stream, out, counter), 8);
    tell("who is first", launch(who_is_first, 1, kThreads, 0, stream, out), kThreads);
    tell("chain", chain(out, true, true), 2 * kThreads);
    tell("chain that reads early", chain(out, false, true), 2 * kThreads);
    tell("chain that reads early, one by one", chain(out, false, false), 2 * kThreads);
    return 0;
}
