// How a product of a matrix with few rows is divided: the constants that fix the order of its sums,
// and so every bit of the results, and the use of a block's shared memory. No kernels.
//
// Split-K with a fixed order: the columns of a matrix are cut into sections of 2048. In a section a
// warp takes every eighth step, in ascending order; a step is one block of 64 columns (kBf16), two
// or four (kQ4). The sums of the eight warps are added in their order, then the sections in theirs.
// None of this depends on how many sections of x are in shared memory at a time, on the number of
// rows, or on the number of thread blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layout.h"
#include "ops.h"

namespace soliton::cuda {

inline constexpr int kLinearWarps = 8;
inline constexpr int kLinearThreads = 32 * kLinearWarps;
inline constexpr int kSectionBlocks = 32;
inline constexpr int kSectionColumns = kSectionBlocks * kBlockColumns;
// Columns of x that one thread prepares at a time.
inline constexpr int kOctet = 8;
static_assert(kSectionColumns == kOctet * kLinearThreads);

__host__ __device__ constexpr bool has_nibbles(Layout layout) {
    return layout == Layout::kQ4 || layout == Layout::kMxfp4;
}

// Bytes that the system takes of a block's shared memory.
inline constexpr int kReservedShared = 1024;

// Blocks of columns that a warp multiplies at a time, and the stages of its ring: 64 to 74 KB for a
// thread block, more than it takes to hide the memory's latency.
__host__ __device__ constexpr int step_blocks(Layout layout) {
    return layout == Layout::kBf16 ? 1 : layout == Layout::kQ4 ? 4 : 2;
}
__host__ __device__ constexpr int step_bytes(Layout layout) {
    return step_blocks(layout) * static_cast<int>(block_bytes(layout));
}
__host__ __device__ constexpr int stream_stages(Layout layout) {
    return layout == Layout::kMxfp4 ? 7 : 4;
}
// The same for devices with little shared memory, whose device memory is slower too.
__host__ __device__ constexpr int few_stages(Layout layout) {
    return layout == Layout::kMxfp4 ? 4 : 2;
}

__host__ __device__ constexpr int sections_for(int64_t n_in) {
    return static_cast<int>((n_in + kSectionColumns - 1) / kSectionColumns);
}

// The layout of a block's shared memory, as byte offsets. x: the 16-bit parts of the rows of a
// pass; groups: for kQ8 and kQ4, the Group of each row and block; partials: the warps' sums, for
// two panels; sums: of the passes so far; squares: of each row, by warp; inverses: 1 / the root of
// their mean.
struct SharedPlan {
    int stages;  // in each warp's stream of weights
    int sections_per_pass;
    int n_passes;
    int x;
    int groups;
    int partials;
    int sums;
    int squares;
    int inverses;
    int n_bytes;
};

// `block_panels` is the largest number of panels of a block.
constexpr SharedPlan plan_shared(Layout layout, int stages, int n_rows, int n_sections,
                                 int sections_per_pass, int block_panels) {
    SharedPlan plan = {};
    plan.stages = stages;
    plan.n_passes = (n_sections + sections_per_pass - 1) / sections_per_pass;
    plan.sections_per_pass = (n_sections + plan.n_passes - 1) / plan.n_passes;
    const int section_rows = plan.sections_per_pass * n_rows;
    const int panel_bytes = static_cast<int>(kPanelRows) * n_rows * 4;
    plan.x = kLinearWarps * stages * step_bytes(layout);
    plan.groups = plan.x + section_rows * kSectionColumns * 4;
    plan.partials = plan.groups + (layout == Layout::kBf16 ? 0 : section_rows * kSectionBlocks * 8);
    plan.sums = plan.partials + 2 * plan.sections_per_pass * kLinearWarps * panel_bytes;
    plan.squares = plan.sums + (plan.n_passes > 1 ? block_panels : 1) * panel_bytes;
    plan.inverses = plan.squares + n_rows * kLinearWarps * 4;
    plan.n_bytes = plan.inverses + n_rows * 4;
    return plan;
}

// The plan with the fewest passes that fits into `limit` bytes. If none fits, n_bytes exceeds the
// limit.
constexpr SharedPlan fewest_passes(Layout layout, int stages, int n_rows, int n_sections,
                                   int block_panels, int limit) {
    SharedPlan plan = {};
    for (int sections = n_sections; sections > 0; --sections) {
        plan = plan_shared(layout, stages, n_rows, n_sections, sections, block_panels);
        if (plan.n_bytes <= limit) {
            break;
        }
    }
    return plan;
}

// The plan for a device: within `half` of a multiprocessor's shared memory if that is enough,
// otherwise within the `most` that a block may have, if necessary with fewer stages. If there are
// too many rows, n_bytes exceeds `most`.
constexpr SharedPlan plan_for_device(Layout layout, int n_rows, int n_sections, int block_panels,
                                     int half, int most) {
    SharedPlan plan =
        fewest_passes(layout, stream_stages(layout), n_rows, n_sections, block_panels, half);
    if (plan.n_bytes > half) {
        plan = fewest_passes(layout, stream_stages(layout), n_rows, n_sections, block_panels, most);
    }
    if (plan.n_bytes > most) {
        plan = fewest_passes(layout, few_stages(layout), n_rows, n_sections, block_panels, most);
    }
    return plan;
}

// The plan for a launch with two blocks on each multiprocessor: in a `third` of its shared memory,
// so that one of the next launch fits too, or in a `half` if that takes fewer passes. Without any,
// n_bytes is 0.
constexpr SharedPlan plan_for_two(Layout layout, int n_rows, int n_sections, int block_panels,
                                  int third, int half) {
    const int stages = few_stages(layout);
    const SharedPlan small = fewest_passes(layout, stages, n_rows, n_sections, block_panels, third);
    const SharedPlan large = fewest_passes(layout, stages, n_rows, n_sections, block_panels, half);
    if (small.n_bytes <= third && small.n_passes == large.n_passes) {
        return small;
    }
    return large.n_bytes <= half ? large : SharedPlan{};
}

}  // namespace soliton::cuda
