// Converts rows of a quantised matrix to bfloat16, for products of many rows. A warp takes a block
// of 16 rows and 64 columns at a time (layout.h). Writing the output limits the speed.
#include <cstddef>
#include <cstdint>

#include "common.cuh"
#include "layout.h"
#include "prefill.h"

namespace soliton::cuda {
namespace {

constexpr int kWarps = 8;

struct UnpackParams {
    const std::byte* weights;
    __nv_bfloat16* out;
    int64_t begin;
    int64_t end;
    int64_t part_rows;  // the next part begins with a new panel
    int64_t first_panel;
    int64_t n_panels;
    int n_in;
    int n_blocks;
};

struct Share {
    float values[16];  // of one row, columns 16t to 16t + 15 of a block
};

// A code of kMxfp4: as a float16, its bits are 2^14 times too small.
__device__ __forceinline__ float fp4(uint32_t code) {
    const float size = __half2float(__ushort_as_half(static_cast<unsigned short>((code & 7) << 9)));
    return size * (code & 8 ? -0x1p14f : 0x1p14f);
}

// A lane's share of row g + 8 half.
template <Layout kLayout>
__device__ __forceinline__ Share unpack_lane(const std::byte* block, int lane, int half) {
    const int row = lane / 4 + 8 * half;
    Share share;
    if constexpr (kLayout == Layout::kMxfp4) {
        const std::byte* scales = block + kPanelRows * kBlockColumns / 2;
        const uint32_t both = reinterpret_cast<const unsigned short*>(scales)[row];
        const float scale = __uint_as_float((both >> lane % 4 / 2 * 8 & 0xff) << 23);
        const uint2 words = reinterpret_cast<const uint2*>(block)[2 * lane + half];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const uint32_t byte = (i < 4 ? words.x : words.y) >> (8 * (i % 4)) & 0xff;
            share.values[i] = scale * fp4(byte & 15);
            share.values[i + 8] = scale * fp4(byte >> 4);
        }
    } else if constexpr (kLayout == Layout::kQ4) {
        const std::byte* scales = block + kPanelRows * kBlockColumns / 2;
        const float2 scale = __half22float2(reinterpret_cast<const __half2*>(scales)[row]);
        const uint2 words = reinterpret_cast<const uint2*>(block)[2 * lane + half];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const uint32_t byte = (i < 4 ? words.x : words.y) >> (8 * (i % 4)) & 0xff;
            share.values[i] = fmaf(scale.x, static_cast<float>(byte & 15), scale.y);
            share.values[i + 8] = fmaf(scale.x, static_cast<float>(byte >> 4), scale.y);
        }
    } else {
        const std::byte* scales = block + kPanelRows * kBlockColumns;
        const float scale = __half2float(reinterpret_cast<const __half*>(scales)[row]);
#pragma unroll
        for (int side = 0; side < 2; ++side) {
            const uint2 words =
                reinterpret_cast<const uint2*>(block)[2 * (side * kWarp + lane) + half];
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const uint32_t byte = (i < 4 ? words.x : words.y) >> (8 * (i % 4)) & 0xff;
                share.values[8 * side + i] =
                    scale * static_cast<float>(static_cast<int>(byte) - 128);
            }
        }
    }
    return share;
}

__device__ __forceinline__ uint32_t pair_bits(float first, float second) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(first)) |
           uint32_t{__bfloat16_as_ushort(__float2bfloat16_rn(second))} << 16;
}

template <Layout kLayout>
__global__ void __launch_bounds__(kWarps* kWarp) unpack_blocks(const UnpackParams params) {
    wait_for_previous_launch();
    const int64_t index = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
    const int64_t panel = params.first_panel + index / params.n_blocks;
    if (panel >= params.first_panel + params.n_panels) {
        return;
    }
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int block = static_cast<int>(index % params.n_blocks);
    const std::byte* from =
        params.weights + (panel * params.n_blocks + block) * block_bytes(kLayout);
    const int64_t part_panels = panels_for(params.part_rows);
    const int first = block * static_cast<int>(kBlockColumns) + lane % 4 * 16;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int64_t row_of_part = panel % part_panels * kPanelRows + lane / 4 + 8 * half;
        const int64_t row = panel / part_panels * params.part_rows + row_of_part;
        if (row_of_part >= params.part_rows || row < params.begin || row >= params.end) {
            continue;
        }
        const Share share = unpack_lane<kLayout>(from, lane, half);
        __nv_bfloat16* to = params.out + (row - params.begin) * params.n_in + first;
        if (params.n_in % 16 == 0) {
            if (first < params.n_in) {
#pragma unroll
                for (int i = 0; i < 16; i += 8) {
                    const float* values = share.values + i;
                    *reinterpret_cast<uint4*>(to + i) = {
                        pair_bits(values[0], values[1]), pair_bits(values[2], values[3]),
                        pair_bits(values[4], values[5]), pair_bits(values[6], values[7])};
                }
            }
        } else {
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                if (first + i < params.n_in) {
                    to[i] = __float2bfloat16_rn(share.values[i]);
                }
            }
        }
    }
}

}  // namespace

cudaError_t unpack(const UnpackArgs& args, cudaStream_t stream) {
    if (args.begin >= args.end) {
        return cudaSuccess;
    }
    UnpackParams params = {};
    params.weights = static_cast<const std::byte*>(args.matrix.weights);
    params.out = static_cast<__nv_bfloat16*>(args.out);
    params.begin = args.begin;
    params.end = args.end;
    params.part_rows = args.matrix.n_out / (args.gated ? 2 : 1);
    const auto panel_of = [&](int64_t row) {
        return row / params.part_rows * panels_for(params.part_rows) +
               row % params.part_rows / kPanelRows;
    };
    params.first_panel = panel_of(args.begin);
    params.n_panels = panel_of(args.end - 1) + 1 - params.first_panel;
    params.n_in = static_cast<int>(args.matrix.n_in);
    params.n_blocks = static_cast<int>(blocks_for(args.matrix.n_in));
    const int64_t n_blocks = (params.n_panels * params.n_blocks + kWarps - 1) / kWarps;
    auto* kernel = args.matrix.layout == Layout::kMxfp4 ? unpack_blocks<Layout::kMxfp4>
                   : args.matrix.layout == Layout::kQ4  ? unpack_blocks<Layout::kQ4>
                                                        : unpack_blocks<Layout::kQ8>;
    return launch(kernel, dim3(static_cast<unsigned>(n_blocks)), dim3(kWarps * kWarp), 0, {stream},
                  params);
}

}  // namespace soliton::cuda
