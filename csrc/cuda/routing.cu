// The choice of experts: for a step by one block, which groups its pairs too, and for the rows of a
// prompt by many.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common.cuh"
#include "experts.h"
#include "routing.cuh"

namespace soliton::cuda {
namespace {

constexpr int kChooseWarps = 8;

// `groups.n` is null for rows of a prompt, which any number of blocks share.
__global__ void __launch_bounds__(kChooseWarps* kWarp)
    choose_kernel(const __grid_constant__ RouteArgs args, PairGroups groups) {
    allow_next_launch();
    wait_for_previous_launch();
    const auto n_used = static_cast<int>(args.routing.n_used);
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    auto* room = shared_memory<float>();
    auto* chosen = reinterpret_cast<int32_t*>(room + 2 * args.routing.n_experts * kChooseWarps);
    for (int64_t row = int64_t{blockIdx.x} * kChooseWarps + warp; row < args.n_rows;
         row += int64_t{gridDim.x} * kChooseWarps) {
        RowChoice choice(args.routing, args.router + row * args.router_width,
                         room + 2 * args.routing.n_experts * warp);
        int32_t expert = 0;
        float weight = 0.0f;
        choice.take(expert, weight);
        if (lane < n_used) {
            args.experts[row * n_used + lane] = expert;
            args.weights[row * n_used + lane] = weight;
            if (groups.n != nullptr) {
                chosen[row * n_used + lane] = expert;
            }
        }
        __syncwarp();
    }
    if (groups.n != nullptr) {
        __syncthreads();
        const int n_pairs = static_cast<int>(args.n_rows) * n_used;
        group_pairs(groups, n_pairs, chosen, chosen + n_pairs);
    }
}

int choose_bytes(const Routing& routing, int64_t n_pairs) {
    const int64_t n_words = 2 * routing.n_experts * kChooseWarps + 2 * n_pairs;
    return static_cast<int>(4 * n_words);
}

}  // namespace

cudaError_t choose(const RouteArgs& args, const PairGroups& groups, const Pass& pass) {
    const auto n_bytes =
        static_cast<size_t>(choose_bytes(args.routing, args.n_rows * args.routing.n_used));
    return launch(choose_kernel, dim3(1), dim3(kChooseWarps * kWarp), n_bytes,
                  {pass.stream, pass.overlaps}, args, groups);
}

cudaError_t route(const RouteArgs& args, cudaStream_t stream) {
    if (args.n_rows == 0) {
        return cudaSuccess;
    }
    constexpr int64_t kMostBlocks = 1024;
    const int64_t n_blocks = (args.n_rows + kChooseWarps - 1) / kChooseWarps;
    return launch(choose_kernel, dim3(static_cast<unsigned>(std::min(n_blocks, kMostBlocks))),
                  dim3(kChooseWarps * kWarp), static_cast<size_t>(choose_bytes(args.routing, 0)),
                  {stream}, args, PairGroups{});
}

}  // namespace soliton::cuda
