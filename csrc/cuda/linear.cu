// Products of a matrix with 1 to 16 rows: the weights go through the tensor cores once, at the
// speed of the memory. Owns the kernel and how it is launched; ops.h says what the ops are.
//
// As many blocks as multiprocessors; a block has some panels of 16 rows of the matrix, and its
// eight warps share the columns of each (linear_shape.h). Weights stream in from before the
// previous launch has ended (linear_weights.cuh); rows of x are made ready once per block, as many
// sections of them as fit (linear_activations.cuh). A block wants less than half of a
// multiprocessor's shared memory where that is enough, so that the next launch's blocks get in
// beside it and fetch their weights.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common.cuh"
#include "device.h"
#include "linear_activations.cuh"
#include "linear_params.h"
#include "linear_weights.cuh"
#include "ops.h"

namespace soliton::cuda {
namespace {

// Rows of x in one tile of the tensor cores: a column of it for the high parts, one for the low.
constexpr int kTileRows = 4;

// Where a lane finds its column of each tile in a half block of x. Columns of rows that there are
// not repeat the last row; nobody takes their results.
template <int kTiles>
struct LaneColumns {
    int offsets[kTiles];  // bytes
    int groups[kTiles];   // of the row that this lane holds sums of

    __device__ __forceinline__ LaneColumns(int lane, int n_rows) {
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
            const int row = min(tile * kTileRows + lane / 8, n_rows - 1);
            offsets[tile] = row * kHalfBytes + lane / 4 % 2 * kPartBytes + lane % 4 * 16;
            groups[tile] = min(tile * kTileRows + lane % 4, n_rows - 1);
        }
    }
};

// Two products of 16 columns: `first` and `second` are 8 columns each of rows g and g + 8.
template <Layout kLayout>
__device__ __forceinline__ void multiply_octet(float (&d)[4], const uint4& first,
                                               const uint4& second, const uint4& x) {
    const uint32_t a[2][4] = {{first.x, second.x, first.y, second.y},
                              {first.z, second.z, first.w, second.w}};
    const uint32_t b[2][2] = {{x.x, x.y}, {x.z, x.w}};
    if constexpr (kLayout == Layout::kBf16) {
        multiply_bf16(d, a[0], b[0]);
        multiply_bf16(d, a[1], b[1]);
    } else {
        multiply_f16(d, a[0], b[0]);
        multiply_f16(d, a[1], b[1]);
    }
}

__device__ __forceinline__ uint32_t bits_of(__half2 pair) {
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

__device__ __forceinline__ __half2 half2_of(uint32_t bits) {
    __half2 pair;
    memcpy(&pair, &bits, sizeof pair);
    return pair;
}

// A byte or nibble below 0x64 in the high byte is 1024 and more as a float16.
constexpr uint32_t kMagic = 0x64006400;

// Eight codes of kQ8, out of two words.
__device__ __forceinline__ uint4 codes_of_bytes(uint32_t low, uint32_t high) {
    const __half2 offset = __float2half2_rn(1024 + 128);
    const auto pair = [&](uint32_t word, uint32_t selector) {
        return bits_of(__hsub2(half2_of(select_bytes(word, kMagic, selector)), offset));
    };
    return {pair(low, 0x7150), pair(low, 0x7352), pair(high, 0x7150), pair(high, 0x7352)};
}

// Eight codes of kQ4, out of two words: the low nibbles of their bytes or the high ones.
template <int kHalf>
__device__ __forceinline__ uint4 codes_of_nibbles(uint32_t low, uint32_t high) {
    const auto pair = [](uint32_t word) {
        if constexpr (kHalf == 0) {
            return bits_of(
                __hsub2(half2_of(and_or<0x000f000f, kMagic>(word)), __float2half2_rn(1024)));
        } else {
            return bits_of(__hfma2(half2_of(and_or<0x00f000f0, kMagic>(word)),
                                   __float2half2_rn(1.0f / 16), __float2half2_rn(-1024.0f / 16)));
        }
    };
    return {pair(low), pair(low >> 8), pair(high), pair(high >> 8)};
}

// A lane's sums of one section: of each tile, rows g and g + 8 of the panel times one row of x.
template <Layout kLayout, int kTiles>
class SectionSums;

template <int kTiles>
class SectionSums<Layout::kBf16, kTiles> {
  public:
    // `x`: the block's first half; `half_bytes`: from there to the next.
    __device__ __forceinline__ void add(const LaneWeights<Layout::kBf16>& weights,
                                        const std::byte* x, int half_bytes, const Group*, int,
                                        const LaneColumns<kTiles>& columns) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int tile = 0; tile < kTiles; ++tile) {
                const uint4 column =
                    *reinterpret_cast<const uint4*>(x + half * half_bytes + columns.offsets[tile]);
                multiply_octet<Layout::kBf16>(d_[tile], weights.octets[half][0],
                                              weights.octets[half][1], column);
            }
        }
    }

    __device__ __forceinline__ float sum(int tile, int i) const {
        return d_[tile][2 * i] + d_[tile][2 * i + 1];
    }

  private:
    float d_[kTiles][4] = {};
};

// Of codes: a group's products are exact, its scale and minimum are applied to their sum.
template <Layout kLayout, int kTiles>
class SectionSums {
  public:
    __device__ __forceinline__ void add(const LaneWeights<kLayout>& weights, const std::byte* x,
                                        int half_bytes, const Group* groups, int n_rows,
                                        const LaneColumns<kTiles>& columns) {
#pragma unroll
        for (int i = 0; i < step_blocks(kLayout); ++i) {
            float d[kTiles][4] = {};
            add_half<0>(d, weights, i, x + 2 * i * half_bytes, columns);
            add_half<1>(d, weights, i, x + (2 * i + 1) * half_bytes, columns);
#pragma unroll
            for (int tile = 0; tile < kTiles; ++tile) {
                const Group group = groups[i * n_rows + columns.groups[tile]];
#pragma unroll
                for (int row = 0; row < 2; ++row) {
                    const float products = d[tile][2 * row] + d[tile][2 * row + 1];
                    float& total = totals_[tile][row];
                    if constexpr (kLayout == Layout::kQ4) {
                        const float2 scale = weights.scales[i][row];
                        total = fmaf(scale.x * group.unscale, products, total);
                        total = fmaf(scale.y, group.sum, total);
                    } else {
                        total = fmaf(weights.scales[i][row] * group.unscale, products, total);
                    }
                }
            }
        }
    }

    __device__ __forceinline__ float sum(int tile, int i) const { return totals_[tile][i]; }

  private:
    template <int kHalf>
    __device__ __forceinline__ static void add_half(float (&d)[kTiles][4],
                                                    const LaneWeights<kLayout>& weights, int i,
                                                    const std::byte* x,
                                                    const LaneColumns<kTiles>& columns) {
        uint4 first;
        uint4 second;
        if constexpr (kLayout == Layout::kQ4) {
            first = codes_of_nibbles<kHalf>(weights.codes[i].x, weights.codes[i].y);
            second = codes_of_nibbles<kHalf>(weights.codes[i].z, weights.codes[i].w);
        } else {
            first = codes_of_bytes(weights.codes[i][kHalf].x, weights.codes[i][kHalf].y);
            second = codes_of_bytes(weights.codes[i][kHalf].z, weights.codes[i][kHalf].w);
        }
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
            const uint4 column = *reinterpret_cast<const uint4*>(x + columns.offsets[tile]);
            multiply_octet<kLayout>(d[tile], first, second, column);
        }
    }

    float totals_[kTiles][2] = {};
};

// What is done to the sums of a panel when the warps have met: a thread for each number.
class Finish {
  public:
    __device__ __forceinline__ Finish(const LinearParams& params, std::byte* shared)
        : params_(params), shared_(shared) {}

    // `partials`: those of the panel, of the sections of pass `pass`.
    __device__ __forceinline__ void panel(int i, int pass, int n_sections, const float* partials) {
        // The warps take turns at it, unit by unit.
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
    float gate_ = 0;  // the same thread has the same number of gate and of up
};

// With one tile two blocks fit into a multiprocessor; with more rows their x is too large for that.
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

    int turn = 0;  // which half of the partials is this panel's
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
        // The next pass's x takes the place of this one's, which no warp reads any more: all have
        // met behind the last panel.
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

// The rows from `begin` of what `params` say.
LinearParams rows_from(LinearParams params, int begin) {
    const int64_t in = static_cast<int64_t>(begin) * params.n_in;
    params.x += in;
    params.branch += params.branch != nullptr ? in : 0;
    params.x_out += params.x_out != nullptr ? in : 0;
    params.out += static_cast<int64_t>(begin) * params.part_rows;
    return params;
}

cudaError_t launch_rows(const LinearParams& params, Layout layout, int n_blocks,
                        cudaStream_t stream) {
    auto* kernel = kernel_for(layout, params.n_rows);
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, params.shared.n_bytes);
    if (error != cudaSuccess) {
        return error;
    }
    return launch(kernel, dim3(static_cast<unsigned>(n_blocks)), dim3(kLinearThreads),
                  static_cast<size_t>(params.shared.n_bytes), stream, params);
}

// In one launch if all rows fit into shared memory.
cudaError_t multiply(const LinearParams& params, Layout layout, int n_rows, cudaStream_t stream) {
    const Device* device = nullptr;
    cudaError_t error = current_device(&device);
    if (error != cudaSuccess) {
        return error;
    }
    constexpr size_t kReserved = 1024;  // what the system keeps of a block's shared memory
    const int half = static_cast<int>(device->multiprocessor_shared_bytes / 2 - kReserved);
    const int most = static_cast<int>(device->max_shared_bytes);
    const int n_units = static_cast<int>(panels_for(params.part_rows));
    const int n_blocks = std::min(n_units, device->n_multiprocessors);
    const int block_panels = (n_units + n_blocks - 1) / n_blocks * (params.gated ? 2 : 1);
    const auto plan_for = [&](int rows) {
        return plan_for_device(layout, rows, sections_for(params.n_in), block_panels, half, most);
    };
    int most_rows = n_rows;
    while (most_rows > 1 && plan_for(most_rows).n_bytes > most) {
        most_rows = (most_rows + 1) / 2;
    }
    for (int begin = 0; begin < n_rows && error == cudaSuccess; begin += most_rows) {
        LinearParams part = rows_from(params, begin);
        part.n_rows = std::min(most_rows, n_rows - begin);
        part.shared = plan_for(part.n_rows);
        error = launch_rows(part, layout, n_blocks, stream);
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
    return multiply(params, args.matrix.layout, pass.n_rows, pass.stream);
}

cudaError_t linear(const LinearArgs& args, const Pass& pass) {
    LinearParams params = params_for(args.matrix, false);
    params.x = args.x;
    params.bias = args.bias;
    params.out = args.out;
    return multiply(params, args.matrix.layout, pass.n_rows, pass.stream);
}

}  // namespace soliton::cuda
