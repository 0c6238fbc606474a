// A mixture of experts for 1 to 16 rows, in four launches and two more for what all rows go
// through:
//
//   choose           one block: a warp for each row chooses, then all threads group the pairs
//   multiply_pairs   gate and up of each group's expert, and the activation: (pairs, hidden)
//   multiply_pairs   down: (pairs, dim)
//   combine          residual + the weighted sum of a row's pairs + what is shared
//
// multiply_pairs is the product of linear.cu with up to kTogether rows, and the bits of a pair do
// not depend on the others of its group:
//
//   grid    (blocks for each group, as many groups as there can be)
//   block   group blockIdx.y: panels blockIdx.x, blockIdx.x + gridDim.x, ... of its expert
//
// It takes 128 registers per thread in every layout, and nothing spills (test_cuda_build.py). Its
// speed has not been measured yet.
//
// Which weights it reads depends on the previous launch, so its ring fills after the wait. An
// expert that more than kTogether rows chose is read again for the next ones, then from L2.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "device.h"
#include "experts.h"
#include "experts_scratch.h"
#include "linear_product.cuh"

namespace soliton::cuda {
namespace {

constexpr int kCombineThreads = 256;
// Thread blocks for each multiprocessor: two fit.
constexpr int kBlocksEach = 2;

// A product of the groups. Of a block's copy, the parts that its group decides are filled in.
struct PairParams : LinearParams {
    const void* const* matrices;  // (n_experts,): the weights of each
    PairGroups groups;
    int pairs_per_x;  // pairs that share a row of x

    // Slots of the group.
    const int32_t* pairs;

    __device__ int64_t x_row(int i) const { return load_fresh(pairs + i) / pairs_per_x; }
    __device__ int64_t out_row(int i) const { return load_fresh(pairs + i); }
};

template <Layout kLayout>
__global__ void __launch_bounds__(kLinearThreads, kBlocksEach)
    multiply_pairs(const __grid_constant__ PairParams recorded) {
    allow_next_launch();
    wait_for_previous_launch();
    const auto group = static_cast<int>(blockIdx.y);
    if (group >= load_fresh(recorded.groups.n)) {
        return;
    }
    PairParams params = recorded;
    const int expert = load_fresh(params.groups.experts + group);
    const int begin = load_fresh(params.groups.begins + group);
    params.n_rows = load_fresh(params.groups.begins + group + 1) - begin;
    params.pairs = params.groups.slots + begin;
    params.weights = static_cast<const std::byte*>(params.matrices[expert]);
    if (params.bias != nullptr) {
        params.bias += int64_t{expert} * params.part_rows * (params.gated ? 2 : 1);
    }
    auto* shared = shared_memory<std::byte>();
    WeightStream<kLayout> weights(params, shared);
    Batch<2> batch;
    batch.begin(params, {0, 0}, params.shared.sections_per_pass);
    multiply_panels<kLayout, 1>(params, weights, batch, shared);
}

struct CombineArgs {
    const float* weights;   // (rows, n_used)
    const float* products;  // (rows, n_used, dim)
    const float* shared;    // (rows, dim) or null
    const float* gate;      // of row 0, the next one's is gate_width further; or null
    int64_t gate_width;
    const float* residual;  // (rows, dim) or null
    float* out;             // (rows, dim)
    float scale;
    int n_used;
    int dim;
};

__global__ void __launch_bounds__(kCombineThreads) combine(const CombineArgs args) {
    allow_next_launch();
    wait_for_previous_launch();
    const int column = static_cast<int>(blockIdx.x * kCombineThreads + threadIdx.x);
    if (column >= args.dim) {
        return;
    }
    const int64_t row = blockIdx.y;
    const int64_t at = row * args.dim + column;
    float sum = 0.0f;
    for (int k = 0; k < args.n_used; ++k) {
        const int64_t pair = row * args.n_used + k;
        sum = fmaf(args.weights[pair], args.products[pair * args.dim + column], sum);
    }
    if (args.shared != nullptr) {
        float weight = 1.0f;
        if (args.gate != nullptr) {
            weight = 1.0f / (1.0f + expf(-args.gate[row * args.gate_width]));
        }
        sum = fmaf(weight, args.shared[at], sum);
    }
    sum *= args.scale;
    args.out[at] = args.residual == nullptr ? sum : args.residual[at] + sum;
}

using Kernel = void (*)(PairParams);

Kernel kernel_for(Layout layout) {
    switch (layout) {
        case Layout::kBf16:
            return multiply_pairs<Layout::kBf16>;
        case Layout::kQ8:
            return multiply_pairs<Layout::kQ8>;
        case Layout::kQ4:
            return multiply_pairs<Layout::kQ4>;
        case Layout::kMxfp4:
            return multiply_pairs<Layout::kMxfp4>;
    }
    return nullptr;
}

// For up to `n_groups` groups of up to `n_rows` pairs.
cudaError_t multiply(PairParams params, Layout layout, int n_groups, int n_rows, const Pass& pass) {
    const Device* device = nullptr;
    if (const cudaError_t error = current_device(&device); error != cudaSuccess) {
        return error;
    }
    const int n_units = static_cast<int>(panels_for(params.part_rows));
    const int n_each = std::max(kBlocksEach * device->n_multiprocessors / n_groups, 1);
    const int n_blocks = std::min(n_units, n_each);
    const int n_panels = (n_units + n_blocks - 1) / n_blocks * (params.gated ? 2 : 1);
    const int half =
        static_cast<int>(device->multiprocessor_shared_bytes) / kBlocksEach - kReservedShared;
    params.shared = plan_for_device(layout, n_rows, sections_for(params.n_in), n_panels, half,
                                    static_cast<int>(device->max_shared_bytes));
    const dim3 grid(static_cast<unsigned>(n_blocks), static_cast<unsigned>(n_groups));
    return launch(kernel_for(layout), grid, dim3(kLinearThreads),
                  static_cast<size_t>(params.shared.n_bytes), {pass.stream, pass.overlaps}, params);
}

// A step of one layer.
class Step {
  public:
    Step(const ExpertsArgs& args, const Pass& pass)
        : args_(args),
          pass_(pass),
          places_(args.routing.n_used, args.routed.hidden, args.dim, args.shared.down.n_in),
          n_pairs_(pass.n_rows * static_cast<int>(args.routing.n_used)) {
        // The first launch is the tape's to decide.
        later_ = pass;
        later_.overlaps = pass.knobs.overlap;
    }

    cudaError_t launch_all() {
        cudaError_t error = launch_choose();
        if (error == cudaSuccess) {
            error = launch_gate_up();
        }
        if (error == cudaSuccess) {
            error = launch_down();
        }
        if (error == cudaSuccess && args_.shared.down.n_out > 0) {
            error = launch_shared();
        }
        return error == cudaSuccess ? launch_combine() : error;
    }

  private:
    template <typename T>
    T* at(int64_t place) const {
        return reinterpret_cast<T*>(static_cast<std::byte*>(args_.scratch) + place);
    }

    PairGroups groups() const {
        return {at<int32_t>(places_.n_groups), at<int32_t>(places_.group_experts),
                at<int32_t>(places_.group_begins), at<int32_t>(places_.slots)};
    }

    cudaError_t launch_choose() const {
        const RouteArgs route = {
            args_.router, args_.router_width,           args_.routing,
            pass_.n_rows, at<int32_t>(places_.experts), at<float>(places_.weights)};
        return choose(route, groups(), pass_);
    }

    cudaError_t launch_product(PairParams params, Layout layout) const {
        params.groups = groups();
        params.scale = 1.0f;
        return multiply(params, layout, n_pairs_, std::min(pass_.n_rows, kTogether), later_);
    }

    cudaError_t launch_gate_up() const {
        PairParams params = {};
        params.x = args_.x;
        params.norm = args_.norm;
        params.eps = args_.eps;
        params.bias = args_.routed.gate_up_bias;
        params.out = at<float>(places_.inner);
        params.n_in = static_cast<int>(args_.dim);
        params.epilogue = args_.epilogue;
        params.gated = true;
        params.part_rows = static_cast<int>(args_.routed.hidden);
        params.matrices = args_.routed.gate_ups;
        params.pairs_per_x = static_cast<int>(args_.routing.n_used);
        return launch_product(params, args_.routed.gate_up_layout);
    }

    cudaError_t launch_down() const {
        PairParams params = {};
        params.x = at<float>(places_.inner);
        params.bias = args_.routed.down_bias;
        params.out = at<float>(places_.products);
        params.n_in = static_cast<int>(args_.routed.hidden);
        params.part_rows = static_cast<int>(args_.dim);
        params.matrices = args_.routed.downs;
        params.pairs_per_x = 1;
        return launch_product(params, args_.routed.down_layout);
    }

    cudaError_t launch_shared() const {
        const SharedExpert& shared = args_.shared;
        const NormLinearArgs gate_up = {.residual = args_.x,
                                        .norm = args_.norm,
                                        .eps = args_.eps,
                                        .matrix = shared.gate_up,
                                        .bias = shared.gate_up_bias,
                                        .out = at<float>(places_.shared_inner),
                                        .epilogue = args_.epilogue};
        const LinearArgs down = {.x = gate_up.out,
                                 .matrix = shared.down,
                                 .bias = shared.down_bias,
                                 .residual = nullptr,
                                 .out = at<float>(places_.shared)};
        const cudaError_t error = norm_linear(gate_up, later_);
        return error == cudaSuccess ? linear(down, later_) : error;
    }

    cudaError_t launch_combine() const {
        const bool has_shared = args_.shared.down.n_out > 0;
        const CombineArgs combined = {
            .weights = at<float>(places_.weights),
            .products = at<float>(places_.products),
            .shared = has_shared ? at<float>(places_.shared) : nullptr,
            .gate = args_.has_shared_gate ? args_.router + args_.routing.n_experts : nullptr,
            .gate_width = args_.router_width,
            .residual = args_.residual,
            .out = args_.out,
            .scale = args_.scale,
            .n_used = static_cast<int>(args_.routing.n_used),
            .dim = static_cast<int>(args_.dim),
        };
        const dim3 grid(static_cast<unsigned>((args_.dim + kCombineThreads - 1) / kCombineThreads),
                        static_cast<unsigned>(pass_.n_rows));
        return launch(combine, grid, dim3(kCombineThreads), 0, {pass_.stream, later_.overlaps},
                      combined);
    }

    const ExpertsArgs& args_;
    const Pass& pass_;
    Pass later_;
    const ExpertsPlaces places_;
    const int n_pairs_;
};

}  // namespace

cudaError_t experts(const ExpertsArgs& args, const Pass& pass) {
    return Step(args, pass).launch_all();
}

int64_t experts_scratch_bytes(int64_t n_used, int64_t hidden, int64_t dim, int64_t shared_hidden) {
    return ExpertsPlaces(n_used, hidden, dim, shared_hidden).n_bytes;
}

}  // namespace soliton::cuda
