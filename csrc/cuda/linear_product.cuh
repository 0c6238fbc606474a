// What a block does for its panels, when its ring is filled: x into shared memory, the products of
// its warps, and the epilogue. Owns the order of the sums. Knows no launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common.cuh"
#include "epilogue.cuh"
#include "linear_activations.cuh"
#include "linear_params.h"
#include "linear_sums.cuh"
#include "linear_weights.cuh"

namespace soliton::cuda {

// The epilogue: turns the warps' sums of a panel into outputs, with a thread for each number.
template <typename Params>
class PanelEpilogue {
  public:
    __device__ __forceinline__ PanelEpilogue(const Params& params, std::byte* shared)
        : params_(params), shared_(shared) {}

    // Loads what panel `i` is added to, so that its sums do not wait for that.
    __device__ __forceinline__ void begin(int i) {
        if (params_.residual == nullptr) {
            return;
        }
        const int number = number_of(i);
        const int row = row_of(panel_at(params_, i), number);
        if (number < count() && row < params_.part_rows) {
            residual_ = params_.residual[out_index(number, row)];
        }
    }

    // Finishes panel `i`. `partials` are its sums for the sections of pass `pass`.
    __device__ __forceinline__ void end(int i, int pass, int n_sections, const float* partials) {
        const int n_numbers = count();
        const int number = number_of(i);
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
        const int row = row_of(panel, number);
        if (row >= params_.part_rows) {
            return;
        }
        sum *= reinterpret_cast<const float*>(shared_ + params_.shared.inverses)[x_row_of(number)];
        if (params_.bias != nullptr) {
            sum += params_.bias[panel.part * params_.part_rows + row];
        }
        sum *= params_.scale;
        float& out = params_.out[out_index(number, row)];
        if (params_.residual != nullptr) {
            out = residual_ + sum;
        } else if (!params_.gated) {
            out = shaped(params_.epilogue, sum, params_.softcap);
        } else if (panel.part == 0) {
            gate_ = sum;
        } else {
            out = gated(params_.epilogue, gate_, sum);
        }
    }

  private:
    static constexpr int kRows = static_cast<int>(kPanelRows);

    __device__ __forceinline__ int count() const { return kRows * params_.n_rows; }

    // This thread's number of a panel; it may have none. The warps take turns, unit by unit.
    __device__ __forceinline__ int number_of(int i) const {
        const int unit = params_.gated ? i / 2 : i;
        return (static_cast<int>(threadIdx.x) + unit * kWarp) % kLinearThreads;
    }

    __device__ __forceinline__ static int x_row_of(int number) { return number / kRows; }

    __device__ __forceinline__ static int row_of(const Panel& panel, int number) {
        return panel.first_row + number % kRows;
    }

    __device__ __forceinline__ int64_t out_index(int number, int row) const {
        return params_.out_row(x_row_of(number)) * params_.part_rows + row;
    }

    const Params& params_;
    std::byte* shared_;
    float residual_ = 0;
    float gate_ = 0;  // the same thread handles a number of gate and the matching number of up
};

// `batch` has begun with the first items, and the previous launch has ended. kRows: how many there
// are, if it is known; then the addresses of x are.
template <Layout kLayout, int kTiles, int kRows = 0, typename Params, int kItems>
__device__ __forceinline__ void multiply_panels(const Params& params,
                                                WeightStream<kLayout>& weights,
                                                Batch<kItems>& batch, std::byte* shared) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int n_rows = kRows > 0 ? kRows : params.n_rows;
    const int n_sections = sections_for(params.n_in);
    const int n_panels = block_panels(params);
    const int half_bytes = n_rows * kHalfBytes;
    constexpr int kBlocks = step_blocks(kLayout);
    constexpr int kRound = kLinearWarps * kBlocks;
    const int n_rounds = (static_cast<int>(blocks_for(params.n_in)) + kRound - 1) / kRound;
    const int panel_numbers = static_cast<int>(kPanelRows) * n_rows;
    auto* partials = reinterpret_cast<float*>(shared + params.shared.partials);
    const LaneColumns<kTiles> columns(lane, n_rows);
    PanelEpilogue<Params> epilogue(params, shared);

    int turn = 0;  // which half of the partials this panel uses
    for (int pass = 0; pass < params.shared.n_passes; ++pass) {
        const int begin = pass * params.shared.sections_per_pass;
        const int end = min(begin + params.shared.sections_per_pass, n_sections);
        if (pass > 0) {
            batch.begin(params, {begin, 0}, end);
        }
        batch.template prepare_all<kLayout>(params, begin, end, shared);
        __syncthreads();
        if (end == n_sections) {
            invert_norms(params, shared);
        }
        for (int panel = 0; panel < n_panels; ++panel) {
            float* of_panel =
                partials + turn * params.shared.sections_per_pass * kLinearWarps * panel_numbers;
            turn ^= 1;
            epilogue.begin(panel);
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
            epilogue.end(panel, pass, end - begin, of_panel);
        }
        // The next pass's x overwrites this one's, which no warp reads any more: all have met after
        // the last panel.
    }
}

}  // namespace soliton::cuda
