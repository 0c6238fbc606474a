// y = W x for 1 to 16 rows of x: a streaming GEMV on tensor cores, bound by memory bandwidth. Owns
// the kernel, its epilogue and its launch; ops.h defines the ops.
//
//   grid    a thread block for each multiprocessor, at most one for each panel of 16 rows of W
//   block   panels blockIdx.x, blockIdx.x + gridDim.x, ...; 8 warps
//   warp    split-K: every eighth step of a panel's columns, and always the same ones
//
//   griddepcontrol.launch_dependents        the next launch's blocks may start beside these
//   fill the ring: cp.async                 some stages for each warp    (linear_weights.cuh)
//   load the norm's weights
//   griddepcontrol.wait                     from here on x is complete
//   for each pass:                          one, unless x is too large for shared memory
//       shared x = split(x * norm)          16-bit high and low parts    (linear_activations.cuh)
//       __syncthreads
//       for each panel of the block:
//           for each section of 2048 columns:
//               for each of the warp's steps:
//                   cp.async.wait_group     the oldest stage is complete
//                   registers = stage; __syncwarp        WAR: the next line overwrites it
//                   stage = cp.async of the step that is one ring further on
//                   sums += mma(registers, x)            (linear_sums.cuh)
//               partials[section][warp] = sums
//           __syncthreads                   one is enough: there are two buffers of partials
//           epilogue: partials in order, / norm, + bias, silu gate or + residual; one thread each
//
// Shared memory in bytes for one row of 4096 columns, and what is in flight from memory:
//
//             ring                      x   groups  partials   other    total
//   kBf16     8 warps x 4 x 2048   16,384        0     2,048     100   84,068
//   kQ8       8 warps x 4 x 2112   16,384      512     2,048     100   86,628
//   kQ4       8 warps x 4 x 2304   16,384      512     2,048     100   92,772
//
// So two blocks fit into the 228 KB of a Hopper multiprocessor, one of them the next launch's. The
// latency of 4.3 TB/s takes about 29 KB in flight on each of 132 multiprocessors; the ring has 64.
// Up to 4 rows take 128 registers per thread, more take 153 to 225, and nothing spills
// (test_cuda_build.py).
//
// On an H200 (bench/RESULTS.md) a matrix that takes 138 us, the head in 8 bits, is read at 94 % of
// a plain read's bandwidth. Eight warps issue at most 1.8 instructions per cycle, because each
// waits for its own results. kQ8 needs just that much, and kQ4 more: so it has two blocks on a
// multiprocessor (knobs.h), with fewer stages and 80 registers, which leaves room for one of the
// next launch. A step of kQ4 takes about 300 instructions per warp for 2304 bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "device.h"
#include "linear_product.cuh"

namespace soliton::cuda {
namespace {

// With one tile, at least two blocks fit into a multiprocessor; with more rows, x is too large for
// that.
template <Layout kLayout, int kTiles, int kLeastBlocks, int kRows = 0>
__global__ void __launch_bounds__(kLinearThreads, kLeastBlocks)
    multiply_rows(const __grid_constant__ LinearParams params) {
    allow_next_launch();
    auto* shared = shared_memory<std::byte>();
    WeightStream<kLayout> weights(params, shared);
    Batch<kLeastBlocks <= 2 ? 2 : 1> batch;  // as many as there are registers for
    batch.begin(params, {0, 0}, params.shared.sections_per_pass);
    wait_for_previous_launch();
    multiply_panels<kLayout, kTiles, kRows>(params, weights, batch, shared);
}

using Kernel = void (*)(LinearParams);

// Blocks that a multiprocessor has registers for if a launch has two on each: these, and one of the
// next launch. For four blocks the kernel would spill.
constexpr int kCrowdedBlocks = 3;

int blocks_each(Layout layout, const Knobs& knobs) {
    switch (layout) {
        case Layout::kQ4:
            return knobs.q4_blocks;
        case Layout::kQ8:
            return knobs.q8_blocks;
        default:
            return 1;
    }
}

Kernel crowded_kernel(Layout layout, int n_rows) {
    if (layout == Layout::kQ4) {
        return n_rows == 1 ? multiply_rows<Layout::kQ4, 1, kCrowdedBlocks, 1>
                           : multiply_rows<Layout::kQ4, 1, kCrowdedBlocks>;
    }
    return n_rows == 1 ? multiply_rows<Layout::kQ8, 1, kCrowdedBlocks, 1>
                       : multiply_rows<Layout::kQ8, 1, kCrowdedBlocks>;
}

template <Layout kLayout>
Kernel kernel_for(int n_rows) {
    if (n_rows == 1) {
        return multiply_rows<kLayout, 1, 2, 1>;
    }
    if (n_rows <= kTileRows) {
        return multiply_rows<kLayout, 1, 2>;
    }
    return n_rows <= 2 * kTileRows ? multiply_rows<kLayout, 2, 1> : multiply_rows<kLayout, 4, 1>;
}

Kernel kernel_for(Layout layout, int n_rows) {
    switch (layout) {
        case Layout::kBf16:
            return kernel_for<Layout::kBf16>(n_rows);
        case Layout::kQ8:
            return kernel_for<Layout::kQ8>(n_rows);
        case Layout::kQ4:
            return kernel_for<Layout::kQ4>(n_rows);
        case Layout::kMxfp4:
            break;
    }
    return nullptr;
}

// The parameters for the rows from `begin` on.
LinearParams rows_from(LinearParams params, int begin) {
    const int64_t out = static_cast<int64_t>(begin) * params.part_rows;
    params.x += static_cast<int64_t>(begin) * params.n_in;
    params.residual += params.residual != nullptr ? out : 0;
    params.out += out;
    return params;
}

// A launch's kernel, blocks and use of shared memory.
struct Plan {
    Kernel kernel;
    int n_blocks;
    SharedPlan shared;
};

// Needs more shared memory than there is if there are too many rows.
Plan plan_for(const LinearParams& params, Layout layout, int n_rows, const Device& device,
              const Knobs& knobs) {
    const int n_units = static_cast<int>(panels_for(params.part_rows));
    const int n_sections = sections_for(params.n_in);
    const auto blocks_for = [&](int each) {
        return std::min(n_units, device.n_multiprocessors * each);
    };
    const auto panels_of_block = [&](int n_blocks) {
        return (n_units + n_blocks - 1) / n_blocks * (params.gated ? 2 : 1);
    };
    const auto share = [&](int n) {
        return static_cast<int>(device.multiprocessor_shared_bytes) / n - kReservedShared;
    };
    if (n_rows <= kTileRows && blocks_each(layout, knobs) == 2) {
        const int n_blocks = blocks_for(2);
        const SharedPlan shared = plan_for_two(
            layout, n_rows, n_sections, panels_of_block(n_blocks), share(kCrowdedBlocks), share(2));
        if (shared.n_bytes > 0) {
            return {crowded_kernel(layout, n_rows), n_blocks, shared};
        }
    }
    const int n_blocks = blocks_for(1);
    return {kernel_for(layout, n_rows), n_blocks,
            plan_for_device(layout, n_rows, n_sections, panels_of_block(n_blocks), share(2),
                            static_cast<int>(device.max_shared_bytes))};
}

// In one launch if all rows fit into shared memory.
cudaError_t multiply(LinearParams params, Layout layout, const Pass& pass) {
    const Device* device = nullptr;
    cudaError_t error = layout == Layout::kMxfp4 ? cudaErrorInvalidValue : current_device(&device);
    if (error != cudaSuccess) {
        return error;
    }
    const auto plan = [&](int n_rows) {
        return plan_for(params, layout, n_rows, *device, pass.knobs);
    };
    int most_rows = pass.n_rows;
    while (most_rows > 1 &&
           plan(most_rows).shared.n_bytes > static_cast<int>(device->max_shared_bytes)) {
        most_rows = (most_rows + 1) / 2;
    }
    for (int begin = 0; begin < pass.n_rows && error == cudaSuccess; begin += most_rows) {
        LinearParams part = rows_from(params, begin);
        part.n_rows = std::min(most_rows, pass.n_rows - begin);
        const Plan planned = plan(part.n_rows);
        part.shared = planned.shared;
        error = launch(planned.kernel, dim3(static_cast<unsigned>(planned.n_blocks)),
                       dim3(kLinearThreads), static_cast<size_t>(part.shared.n_bytes),
                       {pass.stream, pass.overlaps}, part);
    }
    return error;
}

LinearParams params_for(const Matrix& matrix, Epilogue epilogue, float scale) {
    LinearParams params = {};
    params.weights = static_cast<const std::byte*>(matrix.weights);
    params.n_in = static_cast<int>(matrix.n_in);
    params.epilogue = epilogue;
    params.gated = is_gated(epilogue);
    params.part_rows = static_cast<int>(matrix.n_out) / (params.gated ? 2 : 1);
    params.scale = scale;
    return params;
}

}  // namespace

cudaError_t norm_linear(const NormLinearArgs& args, const Pass& pass) {
    LinearParams params = params_for(args.matrix, args.epilogue, args.scale);
    params.x = args.residual;
    params.norm = args.norm;
    params.eps = args.eps;
    params.bias = args.bias;
    params.out = args.out;
    params.softcap = args.softcap;
    return multiply(params, args.matrix.layout, pass);
}

cudaError_t linear(const LinearArgs& args, const Pass& pass) {
    LinearParams params = params_for(args.matrix, Epilogue::kNone, args.scale);
    params.x = args.x;
    params.bias = args.bias;
    params.residual = args.residual;
    params.out = args.out;
    return multiply(params, args.matrix.layout, pass);
}

}  // namespace soliton::cuda
