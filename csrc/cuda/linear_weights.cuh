// Streams a warp's weights from device memory into a ring of steps in shared memory that only this
// warp uses. The ring is filled far ahead of the multiplication, across panels without a pause.
// Owns the order in which a warp sees its weights, and the part of a step that a lane needs.
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
        left_ = n_panels_ * panel_steps();
        end_ = min(pass_steps(), panel_steps());
        go_to_panel();
        for (int i = 0; i < params.shared.stages; ++i) {
            issue();
        }
    }

    // The next step, for all lanes; valid until issue().
    __device__ __forceinline__ const std::byte* take() {
        if (params_.shared.stages == stream_stages(kLayout)) {
            wait_for_copies<stream_stages(kLayout) - 1>();
        } else {
            wait_for_copies<few_stages(kLayout) - 1>();
        }
        __syncwarp();
        return ring_ + slot_;
    }

    // Begins to copy one more step over the one that was taken last, which all lanes must have
    // read.
    __device__ __forceinline__ void issue() {
        if (left_ > 0) {
            copy(ring_ + slot_, step_ * kRound + static_cast<int>(threadIdx.x) / kWarp * kBlocks);
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

    __device__ __forceinline__ void advance() {
        --left_;
        if (++step_ == end_ && left_ > 0) {
            if (++panel_ == n_panels_) {
                panel_ = 0;
                end_ = min(end_ + pass_steps(), panel_steps());
                ++pass_;
            }
            step_ = pass_ * pass_steps();
            go_to_panel();
        }
    }

    // Sets `from_` to this lane's part of the panel's first block.
    __device__ __forceinline__ void go_to_panel() {
        const Panel panel = panel_at(params_, panel_);
        if constexpr (kIsRows) {
            const int64_t pitch = 2 * padded_columns(params_.n_in);
#pragma unroll
            for (int i = 0; i < kPointers; ++i) {
                // Beyond the last row, repeats that row; the results are ignored.
                const int row = min(panel.first_row + lane() / kRowLanes + kCopyRows * i,
                                    params_.part_rows - 1);
                from_[i] = params_.weights + (panel.part * params_.part_rows + row) * pitch +
                           lane() % kRowLanes * 16;
            }
        } else {
            const int64_t index = panel.part * panels_for(params_.part_rows) +
                                  panel.first_row / static_cast<int>(kPanelRows);
            from_[0] = params_.weights + index * n_blocks() * block_bytes(kLayout) + lane() * 16;
        }
    }

    __device__ __forceinline__ void copy(std::byte* to, int block) const {
        if constexpr (kIsRows) {
            // In every other row the pairs of 16 bytes are swapped, so that lanes that read two
            // rows at a time read from different banks.
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
    // What is copied next: its address, the steps that are left from there on, and the panel's step
    // at which the pass ends.
    const std::byte* from_[kPointers];
    int n_panels_;
    int pass_ = 0;
    int panel_ = 0;
    int step_ = 0;
    int end_;
    int left_;
};

// The part of a step that a lane multiplies, in registers.
template <Layout kLayout>
struct LaneWeights;

template <>
struct LaneWeights<Layout::kBf16> {
    uint4 octets[2][2];  // from columns 16t and 16t + 8 of the block on, rows g and g + 8

    __device__ __forceinline__ LaneWeights(const std::byte* step, int lane) {
        const int g = lane / 4;
        const int first = g * 128 + (2 * (lane % 4) ^ (g & 1)) * 16;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const std::byte* own = step + (first ^ 16 * half);
            octets[half][0] = *reinterpret_cast<const uint4*>(own);
            octets[half][1] = *reinterpret_cast<const uint4*>(own + 8 * 128);
        }
    }
};

// For two blocks: codes, and for rows g and g + 8 the scale, or scale and minimum.
template <>
struct LaneWeights<Layout::kQ8> {
    uint4 codes[2][2];
    float scales[2][2];

    __device__ __forceinline__ LaneWeights(const std::byte* step, int lane) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const std::byte* block = step + i * block_bytes(Layout::kQ8);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                codes[i][half] =
                    *reinterpret_cast<const uint4*>(block + (half * kWarp + lane) * 16);
                scales[i][half] = __half2float(reinterpret_cast<const __half*>(
                    block + kPanelRows * kBlockColumns)[lane / 4 + 8 * half]);
            }
        }
    }
};

template <>
struct LaneWeights<Layout::kQ4> {
    uint4 codes[2];
    float2 scales[2][2];

    __device__ __forceinline__ LaneWeights(const std::byte* step, int lane) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const std::byte* block = step + i * block_bytes(Layout::kQ4);
            codes[i] = *reinterpret_cast<const uint4*>(block + lane * 16);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                scales[i][half] = __half22float2(reinterpret_cast<const __half2*>(
                    block + kPanelRows * kBlockColumns / 2)[lane / 4 + 8 * half]);
            }
        }
    }
};

}  // namespace soliton::cuda
