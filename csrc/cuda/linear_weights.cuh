// Streams a warp's weights from device memory into its own ring of stages in shared memory, a step
// in each stage. cp.async fills the ring ahead of the multiplication, across panels without a
// bubble; as no other warp reads a ring, it needs no block barrier. Owns the order in which a warp
// sees its weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common.cuh"
#include "linear_params.h"

namespace soliton::cuda {

// The panels of a thread block: those of the units blockIdx.x, blockIdx.x + gridDim.x, ... A unit
// is one panel, or a panel of gate and the matching one of up.
__device__ __forceinline__ int block_panels(const LinearParams& params) {
    const int n_units = static_cast<int>(panels_for(params.part_rows));
    const int grid = static_cast<int>(gridDim.x);
    const int own_units = (n_units - static_cast<int>(blockIdx.x) + grid - 1) / grid;
    return params.gated ? 2 * own_units : own_units;
}

struct Panel {
    int part;       // 1 for up
    int first_row;  // in its part
};

__device__ __forceinline__ Panel panel_at(const LinearParams& params, int i) {
    const int part = params.gated ? i % 2 : 0;
    const int unit = params.gated ? i / 2 : i;
    return {part, static_cast<int>(blockIdx.x + unit * gridDim.x) * static_cast<int>(kPanelRows)};
}

template <Layout kLayout>
class WeightStream {
  public:
    static constexpr int kBlocks = step_blocks(kLayout);

    __device__ __forceinline__ WeightStream(const LinearParams& params, std::byte* ring)
        : params_(params),
          ring_(ring + static_cast<int>(threadIdx.x) / kWarp * params.shared.stages * kStepBytes) {
        n_panels_ = block_panels(params);
        next_ = {.pass = 0,
                 .panel = 0,
                 .step = 0,
                 .end = min(pass_steps(), panel_steps()),
                 .left = n_panels_ * panel_steps()};
        go_to_panel();
        for (int i = 0; i < params.shared.stages; ++i) {
            issue();
        }
    }

    // The oldest stage, for all lanes; valid until issue().
    __device__ __forceinline__ const std::byte* take() {
        if (params_.shared.stages == stream_stages(kLayout)) {
            wait_for_copies<stream_stages(kLayout) - 1>();
        } else {
            wait_for_copies<few_stages(kLayout) - 1>();
        }
        __syncwarp();
        return ring_ + slot_;
    }

    // Refills the stage that was taken last. WAR hazard: all lanes must have read it before.
    __device__ __forceinline__ void issue() {
        if (next_.left > 0) {
            const int warp = static_cast<int>(threadIdx.x) / kWarp;
            copy(ring_ + slot_, next_.step * kRound + warp * kBlocks);
            advance();
        }
        commit_copies();
        slot_ += kStepBytes;
        if (slot_ == params_.shared.stages * kStepBytes) {
            slot_ = 0;
        }
    }

  private:
    static constexpr int kStepBytes = step_bytes(kLayout);
    static constexpr int kRound = kLinearWarps * kBlocks;  // blocks of all warps together
    static constexpr bool kIsRows = kLayout == Layout::kBf16;
    // Rows are copied in lines of 128 bytes, with eight lanes each; panels are contiguous.
    static constexpr int kRowLanes = 8;
    static constexpr int kCopyRows = kWarp / kRowLanes;
    static constexpr int kPointers = kIsRows ? static_cast<int>(kPanelRows) / kCopyRows : 1;

    __device__ __forceinline__ int n_blocks() const {
        return static_cast<int>(blocks_for(params_.n_in));
    }
    __device__ __forceinline__ int panel_steps() const {
        return (n_blocks() + kRound - 1) / kRound;
    }
    __device__ __forceinline__ int pass_steps() const {
        return params_.shared.sections_per_pass * (kSectionBlocks / kRound);
    }
    __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % kWarp; }

    // Of the block's streams, which all warps go through in the same steps.
    struct Position {
        int pass;
        int panel;
        int step;  // of the panel
        int end;   // the panel's step at which the pass ends
        int left;  // steps from here on
    };

    __device__ __forceinline__ void advance() {
        --next_.left;
        if (++next_.step < next_.end || next_.left == 0) {
            return;
        }
        // The pass's next panel, or the first one of the next pass.
        if (++next_.panel == n_panels_) {
            next_.panel = 0;
            next_.end = min(next_.end + pass_steps(), panel_steps());
            ++next_.pass;
        }
        next_.step = next_.pass * pass_steps();
        go_to_panel();
    }

    // Sets `from_` to this lane's part of the panel's first block.
    __device__ __forceinline__ void go_to_panel() {
        const Panel panel = panel_at(params_, next_.panel);
        if constexpr (kIsRows) {
#pragma unroll
            for (int i = 0; i < kPointers; ++i) {
                // Beyond the last row, repeats that row; the results are ignored.
                const int row = min(panel.first_row + lane() / kRowLanes + kCopyRows * i,
                                    params_.part_rows - 1);
                from_[i] = row_at(panel, row) + lane() % kRowLanes * 16;
            }
        } else {
            from_[0] = panel_bytes(panel) + lane() * 16;
        }
    }

    // Of kBf16: a row of the panel's part.
    __device__ __forceinline__ const std::byte* row_at(const Panel& panel, int row) const {
        const int64_t pitch = 2 * padded_columns(params_.n_in);
        return params_.weights + (panel.part * params_.part_rows + row) * pitch;
    }

    // Of the other layouts: the panel's first block.
    __device__ __forceinline__ const std::byte* panel_bytes(const Panel& panel) const {
        const int64_t index = panel.part * panels_for(params_.part_rows) +
                              panel.first_row / static_cast<int>(kPanelRows);
        return params_.weights + index * n_blocks() * block_bytes(kLayout);
    }

    __device__ __forceinline__ void copy(std::byte* to, int block) const {
        if constexpr (kIsRows) {
            // Swizzle: the chunk's index is XORed with the row's lowest bit, so that a quarter
            // warp, which reads from two rows, has no bank conflict.
            const int row = lane() / kRowLanes;
            std::byte* own = to + row * 128 + (lane() % kRowLanes ^ (row & 1)) * 16;
#pragma unroll
            for (int i = 0; i < kPointers; ++i) {
                copy_async(own + i * kCopyRows * 128, from_[i] + block * 128, block < n_blocks());
            }
        } else {
            constexpr int kChunks = kStepBytes / 16;
            const int n_valid =
                min(kBlocks, n_blocks() - block) * static_cast<int>(block_bytes(kLayout) / 16);
            const std::byte* from = from_[0] + static_cast<int64_t>(block) * block_bytes(kLayout);
#pragma unroll
            for (int i = 0; i < kChunks; i += kWarp) {
                if (i + kWarp <= kChunks || i + lane() < kChunks) {
                    copy_async(to + (i + lane()) * 16, from + i * 16, i + lane() < n_valid);
                }
            }
        }
    }

    const LinearParams& params_;
    std::byte* ring_;
    int slot_ = 0;  // bytes: the step that is taken next and then overwritten
    int n_panels_;
    // What is copied next.
    Position next_;
    const std::byte* from_[kPointers];
};

}  // namespace soliton::cuda
