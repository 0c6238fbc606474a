// Products of a matrix with 1 to 16 rows: the weights go through the tensor cores once, at the
// speed of the memory. Owns the kernel and its launch; ops.h defines the ops.
//
// There are as many blocks as multiprocessors. A block has some panels of 16 rows of the matrix,
// and its eight warps share the columns of each (linear_shape.h). Weights start streaming in before
// the previous launch has ended (linear_weights.cuh). Rows of x are prepared once per block, as
// many sections of them as fit (linear_activations.cuh); linear_sums.cuh multiplies both. If less
// than half of a multiprocessor's shared memory is enough, a block requests no more, so that the
// next launch's blocks can start next to it and fetch their weights.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common.cuh"
#include "device.h"
#include "linear_activations.cuh"
#include "linear_params.h"
#include "linear_sums.cuh"
#include "linear_weights.cuh"
#include "ops.h"

namespace soliton::cuda {
namespace {

// Turns the warps' sums of a panel into outputs, with a thread for each number.
class Finish {
  public:
    __device__ __forceinline__ Finish(const LinearParams& params, std::byte* shared)
        : params_(params), shared_(shared) {}

    // `partials` are the panel's, for the sections of pass `pass`.
    __device__ __forceinline__ void panel(int i, int pass, int n_sections, const float* partials) {
        // The warps take turns, unit by unit.
        const int n_numbers = static_cast<int>(kPanelRows) * params_.n_rows;
        const int unit = params_.gated ? i / 2 : i;
        const int number = (static_cast<int>(threadIdx.x) + unit * kWarp) % kLinearThreads;
        if (number >= n_numbers) {
            return;
        }
        const bool many = params_.shared.n_passes > 1;
        float& kept = reinterpret_cast<float*>(
            shared_ + params_.shared.sums)[(many ? i : 0) * n_numbers + number];
        float sum = pass == 0 ? 0 : kept;
        for (int section = 0; section < n_sections; ++section) {
            float of_section = 0;
#pragma unroll
            for (int warp = 0; warp < kLinearWarps; ++warp) {
                of_section += partials[(section * kLinearWarps + warp) * n_numbers + number];
            }
            sum += of_section;
        }
        if (pass < params_.shared.n_passes - 1) {
            kept = sum;
            return;
        }
        const Panel panel = panel_at(params_, i);
        const int x_row = number / static_cast<int>(kPanelRows);
        const int row = panel.first_row + number % static_cast<int>(kPanelRows);
        if (row >= params_.part_rows) {
            return;
        }
        sum *= reinterpret_cast<const float*>(shared_ + params_.shared.inverses)[x_row];
        if (params_.bias != nullptr) {
            sum += params_.bias[panel.part * params_.part_rows + row];
        }
        float* out = params_.out + static_cast<int64_t>(x_row) * params_.part_rows + row;
        if (!params_.gated) {
            *out = sum;
        } else if (panel.part == 0) {
            gate_ = sum;
        } else {
            *out = gate_ / (1.0f + expf(-gate_)) * sum;
        }
    }

  private:
    const LinearParams& params_;
    std::byte* shared_;
    float gate_ = 0;  // the same thread handles a number of gate and the matching number of up
};

// With one tile, two blocks fit into a multiprocessor; with more rows, x is too large for that.
template <Layout kLayout, int kTiles>
__global__ void __launch_bounds__(kLinearThreads, kTiles == 1 ? 2 : 1)
    multiply_rows(const __grid_constant__ LinearParams params) {
    allow_next_launch();
    auto* shared = shared_memory<std::byte>();
    WeightStream<kLayout> weights(params, shared);
    wait_for_previous_launch();

    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int n_rows = params.n_rows;
    const int n_sections = sections_for(params.n_in);
    const int n_panels = block_panels(params);
    const int half_bytes = n_rows * kHalfBytes;
    constexpr int kBlocks = step_blocks(kLayout);
    constexpr int kRound = kLinearWarps * kBlocks;
    const int n_rounds = (static_cast<int>(blocks_for(params.n_in)) + kRound - 1) / kRound;
    const int panel_numbers = static_cast<int>(kPanelRows) * n_rows;
    auto* partials = reinterpret_cast<float*>(shared + params.shared.partials);
    const LaneColumns<kTiles> columns(lane, n_rows);
    Finish finish(params, shared);

    int turn = 0;  // which half of the partials this panel uses
    for (int pass = 0; pass < params.shared.n_passes; ++pass) {
        const int begin = pass * params.shared.sections_per_pass;
        const int end = min(begin + params.shared.sections_per_pass, n_sections);
        prepare_sections<kLayout>(params, begin, end, shared);
        __syncthreads();
        if (end == n_sections) {
            invert_norms(params, shared);
        }
        for (int panel = 0; panel < n_panels; ++panel) {
            float* of_panel =
                partials + turn * params.shared.sections_per_pass * kLinearWarps * panel_numbers;
            turn ^= 1;
            for (int section = begin; section < end; ++section) {
                SectionSums<kLayout, kTiles> sums;
                int block = (section - begin) * kSectionBlocks + warp * kBlocks;
                const int n_steps =
                    min(kSectionBlocks / kRound, n_rounds - section * (kSectionBlocks / kRound));
                for (int step = 0; step < n_steps; ++step) {
                    const LaneWeights<kLayout> taken(weights.take(), lane);
                    __syncwarp();
                    weights.issue();
                    sums.add(taken, shared + params.shared.x + block * 2 * half_bytes, half_bytes,
                             reinterpret_cast<const Group*>(shared + params.shared.groups) +
                                 block * n_rows,
                             n_rows, columns);
                    block += kRound;
                }
                float* own = of_panel + ((section - begin) * kLinearWarps + warp) * panel_numbers;
#pragma unroll
                for (int tile = 0; tile < kTiles; ++tile) {
                    const int row = tile * kTileRows + lane % 4;
                    if (row < n_rows) {
                        own[row * kPanelRows + lane / 4] = sums.sum(tile, 0);
                        own[row * kPanelRows + lane / 4 + 8] = sums.sum(tile, 1);
                    }
                }
            }
            __syncthreads();
            finish.panel(panel, pass, end - begin, of_panel);
        }
        // The next pass's x overwrites this one's, which no warp reads any more: all have met after
        // the last panel.
    }
}

template <Layout kLayout>
void (*kernel_for(int n_rows))(LinearParams) {
    if (n_rows <= kTileRows) {
        return multiply_rows<kLayout, 1>;
    }
    return n_rows <= 2 * kTileRows ? multiply_rows<kLayout, 2> : multiply_rows<kLayout, 4>;
}

void (*kernel_for(Layout layout, int n_rows))(LinearParams) {
    switch (layout) {
        case Layout::kBf16:
            return kernel_for<Layout::kBf16>(n_rows);
        case Layout::kQ8:
            return kernel_for<Layout::kQ8>(n_rows);
        case Layout::kQ4:
            return kernel_for<Layout::kQ4>(n_rows);
    }
    return nullptr;
}

// The parameters for the rows from `begin` on.
LinearParams rows_from(LinearParams params, int begin) {
    const int64_t in = static_cast<int64_t>(begin) * params.n_in;
    params.x += in;
    params.branch += params.branch != nullptr ? in : 0;
    params.x_out += params.x_out != nullptr ? in : 0;
    params.out += static_cast<int64_t>(begin) * params.part_rows;
    return params;
}

cudaError_t launch_rows(const LinearParams& params, Layout layout, int n_blocks, LaunchAt at) {
    return launch(kernel_for(layout, params.n_rows), dim3(static_cast<unsigned>(n_blocks)),
                  dim3(kLinearThreads), static_cast<size_t>(params.shared.n_bytes), at, params);
}

// In one launch if all rows fit into shared memory.
cudaError_t multiply(const LinearParams& params, Layout layout, const Pass& pass) {
    const Device* device = nullptr;
    cudaError_t error = current_device(&device);
    if (error != cudaSuccess) {
        return error;
    }
    constexpr size_t kReserved = 1024;  // what the system reserves in a block's shared memory
    const int half = static_cast<int>(device->multiprocessor_shared_bytes / 2 - kReserved);
    const int most = static_cast<int>(device->max_shared_bytes);
    const int n_units = static_cast<int>(panels_for(params.part_rows));
    const int n_blocks = std::min(n_units, device->n_multiprocessors);
    const int block_panels = (n_units + n_blocks - 1) / n_blocks * (params.gated ? 2 : 1);
    const auto plan_for = [&](int rows) {
        return plan_for_device(layout, rows, sections_for(params.n_in), block_panels, half, most);
    };
    const int n_rows = pass.n_rows;
    int most_rows = n_rows;
    while (most_rows > 1 && plan_for(most_rows).n_bytes > most) {
        most_rows = (most_rows + 1) / 2;
    }
    for (int begin = 0; begin < n_rows && error == cudaSuccess; begin += most_rows) {
        LinearParams part = rows_from(params, begin);
        part.n_rows = std::min(most_rows, n_rows - begin);
        part.shared = plan_for(part.n_rows);
        error = launch_rows(part, layout, n_blocks, {pass.stream, pass.overlaps});
    }
    return error;
}

LinearParams params_for(const Matrix& matrix, bool gated) {
    LinearParams params = {};
    params.weights = static_cast<const std::byte*>(matrix.weights);
    params.n_in = static_cast<int>(matrix.n_in);
    params.gated = gated;
    params.part_rows = static_cast<int>(matrix.n_out) / (gated ? 2 : 1);
    return params;
}

}  // namespace

cudaError_t norm_linear(const NormLinearArgs& args, const Pass& pass) {
    LinearParams params = params_for(args.matrix, args.epilogue == Epilogue::kSiluGate);
    params.x = args.residual_in;
    params.branch = args.branch;
    params.x_out = args.residual_out == args.residual_in ? nullptr : args.residual_out;
    params.norm = args.norm;
    params.eps = args.eps;
    params.bias = args.bias;
    params.out = args.out;
    return multiply(params, args.matrix.layout, pass);
}

cudaError_t linear(const LinearArgs& args, const Pass& pass) {
    LinearParams params = params_for(args.matrix, false);
    params.x = args.x;
    params.bias = args.bias;
    params.out = args.out;
    return multiply(params, args.matrix.layout, pass);
}

}  // namespace soliton::cuda
