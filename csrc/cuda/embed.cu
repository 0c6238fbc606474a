// Rows of the embedding table as float32, from rows or panels (layout.h).
#include "common.cuh"
#include "layout.h"
#include "ops.h"

namespace soliton::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kColumns = 8;  // per thread: 16 bytes of bfloat16, or a lane's half of a block

// The 8 values of a row from `column` on, which is a multiple of 8.
template <Layout layout>
__device__ void read(const Matrix& table, int64_t row, int64_t column, float (&values)[kColumns]) {
    if constexpr (layout == Layout::kBf16) {
        const auto* weights = static_cast<const __nv_bfloat16*>(table.weights);
        const auto* at = weights + row * padded_columns(table.n_in) + column;
        const uint4 words = load_once(at);
        const uint32_t pairs[] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            values[2 * i] = __uint_as_float(pairs[i] << 16);
            values[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
        }
    } else {
        const int64_t panel = row / kPanelRows;
        const int in_panel = static_cast<int>(row % kPanelRows);
        const int in_block = static_cast<int>(column % kBlockColumns);
        const int lane = in_panel % 8 * 4 + in_block / 16;
        const int half = in_block / 8 % 2;  // of the lane's 16 columns
        const auto* block =
            static_cast<const unsigned char*>(table.weights) +
            (panel * blocks_for(table.n_in) + column / kBlockColumns) * block_bytes(layout);
        const bool is_q8 = layout == Layout::kQ8;
        const auto* bytes = block + (is_q8 ? half * kWarp * 16 : 0) + lane * 16 + in_panel / 8 * 8;
        const uint2 words = __ldg(reinterpret_cast<const uint2*>(bytes));
        if constexpr (layout == Layout::kQ8) {
            const auto* scales =
                reinterpret_cast<const __half*>(block + kPanelRows * kBlockColumns);
            const float scale = __half2float(scales[in_panel]);
#pragma unroll
            for (int i = 0; i < kColumns; ++i) {
                const uint32_t word = i < 4 ? words.x : words.y;
                const int code = static_cast<int>(word >> (8 * (i % 4)) & 0xff) - 128;
                values[i] = scale * static_cast<float>(code);
            }
        } else {
            const auto* pairs =
                reinterpret_cast<const __half*>(block + kPanelRows * kBlockColumns / 2);
            const float scale = __half2float(pairs[2 * in_panel]);
            const float minimum = __half2float(pairs[2 * in_panel + 1]);
#pragma unroll
            for (int i = 0; i < kColumns; ++i) {
                const uint32_t word = i < 4 ? words.x : words.y;
                const uint32_t code = word >> (8 * (i % 4) + 4 * half) & 0xf;
                values[i] = fmaf(scale, static_cast<float>(code), minimum);
            }
        }
    }
}

// A block of threads takes kThreads * kColumns columns of a row.
template <Layout layout>
__global__ void __launch_bounds__(kThreads) embed_kernel(EmbedArgs args, const StepState* state) {
    allow_next_launch();
    wait_for_previous_launch();
    const int64_t dim = args.table.n_in;
    const int64_t column = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kColumns;
    if (column >= dim) {
        return;
    }
    const int64_t row = blockIdx.y;
    float values[kColumns];
    read<layout>(args.table, state->token_ids[row], column, values);
#pragma unroll
    for (float& value : values) {
        value *= args.scale;
    }
    float* out = args.out + row * dim + column;
    if (dim % kColumns == 0) {
        auto* words = reinterpret_cast<float4*>(out);
        words[0] = make_float4(values[0], values[1], values[2], values[3]);
        words[1] = make_float4(values[4], values[5], values[6], values[7]);
        return;
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
        if (column + i < dim) {
            out[i] = values[i];
        }
    }
}

}  // namespace

cudaError_t embed(const EmbedArgs& args, const Pass& pass) {
    constexpr int64_t kPerBlock = kThreads * kColumns;
    const dim3 grid(static_cast<unsigned>((args.table.n_in + kPerBlock - 1) / kPerBlock),
                    static_cast<unsigned>(pass.n_rows));
    const auto start = [&](auto* kernel) {
        return launch(kernel, grid, kThreads, 0, {pass.stream, pass.overlaps}, args, pass.state);
    };
    switch (args.table.layout) {
        case Layout::kBf16:
            return start(embed_kernel<Layout::kBf16>);
        case Layout::kQ8:
            return start(embed_kernel<Layout::kQ8>);
        case Layout::kQ4:
            return start(embed_kernel<Layout::kQ4>);
        case Layout::kMxfp4:
            break;
    }
    return cudaErrorInvalidValue;
}

}  // namespace soliton::cuda
