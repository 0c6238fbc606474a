// Attention of a decode step in one launch, split over the positions (flash decoding): stores the
// new rows' keys and values in the caches, computes scores, online softmax and values over tiles of
// positions, and merges the splits.
//
//   grid    (splits of the positions, kv heads, groups of up to 16 queries)
//   block   4 warps (2 for heads of 256); its queries are those of the group's heads in every row,
//           which share each key and value that is read
//   warp    16 positions of each tile of its split, through its own ring, without a block barrier
//
//   prefetch a share of the next ops' weights into L2                    (knobs.h)
//   fill the ring: cp.async of keys and values before pos                (attention_copies.cuh)
//   griddepcontrol.wait, then launch_dependents
//   shared queries = split(rope(norm(q))); new rows of keys and values   (head_row.cuh)
//   __syncthreads
//   for each step of 16 positions:
//       refill the ring, mma(keys, queries), softmax, mma(values, probabilities)
//   merge the warps -> a record per query in device memory
//   the block that counts last merges the records of all splits, up to 32 loads in flight
//
// Shared memory in bytes for one row and heads of 128, 4 queries in a block:
//
//            ring                         queries  new rows    total
//   kBf16    4 warps x 2 x  8,704 bytes     2,192       560   72,384
//   kInt8    4 warps x 4 x  5,248 bytes     2,576       336   86,880
//
// Two blocks fit into a Hopper multiprocessor. The merge takes most registers: 200 to 255 per
// thread, and nothing spills.
//
// No block of this launch reads the new rows' keys and values from the caches. A block whose tiles
// contain such positions computes them from qkv, and the block with the first queries writes them.
// So no block waits for another.
//
// Sums are as accurate as in float32: keys and values are exact, as bfloat16 or, for int8, as
// float16. Queries and probabilities are split into two such numbers, high and low, in neighbouring
// columns of a product. A row's sum never depends on other rows: positions that it must not see
// contribute exactly zero.
#include "attention.h"
#include "attention_copies.cuh"
#include "attention_rows.cuh"
#include "attention_softmax.cuh"

namespace soliton::cuda {
namespace {

int64_t n_tiles_of(int64_t length, int64_t tile) {
    return (length + tile - 1) / tile;
}

// Prefetches this block's share of what the next ops read. A block without positions has one too.
template <typename S>
__device__ void prefetch_next(const AttentionArgs& args) {
    const int block =
        static_cast<int>(blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
    const int n_blocks = static_cast<int>(gridDim.x * gridDim.y * gridDim.z);
#pragma unroll
    for (const Constants& each : args.next) {
        // Neighbouring shares belong to different blocks.
        prefetch_share(each.begin, each.n_bytes, block + n_blocks * static_cast<int>(threadIdx.x),
                       n_blocks * S::kThreads);
    }
}

template <typename S>
__device__ void run_block(const AttentionBlock<S>& at) {
    prefetch_next<S>(at.args);
    const int first_tile = at.tiles.begin(static_cast<int>(blockIdx.x));
    if (first_tile > at.tiles.last) {
        return;
    }
    int begin = first_tile * S::kTile + at.warp * kStepPositions;
    const int stride = at.tiles.n_splits * S::kTile;
    const int end = at.pos + at.n_rows;
    const int n_steps = begin < end ? (end - 1 - begin) / stride + 1 : 0;
    // Earlier passes have written the caches up to pos.
    KvCopies<S> copies(at.args, at.shared + at.warp * S::kStages * S::kStageBytes, at.kv_head,
                       begin, stride, n_steps, at.pos, at.lane);
    for (int i = 0; i < S::kStages - 1; ++i) {
        copies.start();
    }
    wait_for_previous_launch();
    // Not earlier: blocks of later launches would hold shared memory while this one waits.
    allow_next_launch();
    PassRows<S> rows(at);
    rows.load_queries();
    rows.load_fresh_rows();
    __syncthreads();
    WarpSoftmax<S> softmax(at);
    for (int i = 0; i < n_steps; ++i, begin += stride) {
        uint8_t* step = copies.next();
        if (begin + kStepPositions > at.pos) {
            rows.put_fresh_rows(step, begin);
        }
        softmax.step(step, begin);
    }
    wait_for_copies<0>();
    __syncthreads();
    const Splits<S> splits(at);
    softmax.put_warps_together(splits);
    if (splits.is_last_of_head()) {
        splits.merge();
    }
}

template <KvType kKv, int kWidth, int kColumns>
__global__ void __launch_bounds__(attention_warps(kWidth) * kWarp, 2)
    attention_kernel(const AttentionArgs args, const StepState* state, int first_row, int n_rows) {
    run_block(
        AttentionBlock<AttentionShape<kKv, kWidth, kColumns>>(args, state, first_row, n_rows));
}

// Some rows of a pass.
struct RowRange {
    int first;
    int n;
};

template <KvType kKv, int kWidth, int kColumns>
cudaError_t launch_attention(const AttentionArgs& args, const Pass& pass, RowRange rows) {
    using S = AttentionShape<kKv, kWidth, kColumns>;
    const int64_t n_queries = rows.n * (args.n_heads / args.n_kv_heads);
    const int64_t n_tiles = n_tiles_of(std::min(pass.max_length, args.max_seq_len), S::kTile);
    const int64_t n_splits = std::min<int64_t>(attention_splits(args.n_kv_heads), n_tiles);
    const dim3 grid(n_splits, args.n_kv_heads, (n_queries + S::kQueries - 1) / S::kQueries);
    auto* kernel = attention_kernel<kKv, kWidth, kColumns>;
    return launch(kernel, grid, dim3(S::kThreads), S::shared_bytes(rows.n),
                  {pass.stream, pass.overlaps}, args, pass.state, rows.first, rows.n);
}

template <KvType kKv, int kWidth>
cudaError_t attention_of_width(const AttentionArgs& args, const Pass& pass, RowRange rows) {
    const int64_t n_queries = rows.n * (args.n_heads / args.n_kv_heads);
    if (n_queries <= 4) {
        return launch_attention<kKv, kWidth, 1>(args, pass, rows);
    }
    if (n_queries <= 8 || max_block_queries(kWidth) == 8) {
        return launch_attention<kKv, kWidth, 2>(args, pass, rows);
    }
    if constexpr (max_block_queries(kWidth) == 16) {
        return launch_attention<kKv, kWidth, 4>(args, pass, rows);
    }
    return cudaErrorInvalidValue;
}

template <KvType kKv>
cudaError_t attention_of_format(const AttentionArgs& args, const Pass& pass, RowRange rows) {
    switch (head_width(args.head_dim)) {
        case 64:
            return attention_of_width<kKv, 64>(args, pass, rows);
        case 128:
            return attention_of_width<kKv, 128>(args, pass, rows);
        default:
            return attention_of_width<kKv, 256>(args, pass, rows);
    }
}

// `args` with as much of the constants as the knob allows, the first ones first.
cudaError_t limit_prefetch(AttentionArgs& args, const Knobs& knobs) {
    const Device* device = nullptr;
    const cudaError_t error = current_device(&device);
    if (error != cudaSuccess) {
        return error;
    }
    const int64_t each_bytes =
        std::min<int64_t>(knobs.attention_prefetch_bytes, device->most_prefetched());
    int64_t left = each_bytes * device->n_multiprocessors / 16 * 16;
    for (Constants& each : args.next) {
        each.n_bytes = std::min(each.n_bytes, left);
        left -= each.n_bytes;
    }
    return cudaSuccess;
}

}  // namespace

cudaError_t attention(const AttentionArgs& recorded, const Pass& recorded_pass) {
    AttentionArgs args = recorded;
    Pass pass = recorded_pass;
    if (const cudaError_t error = limit_prefetch(args, pass.knobs); error != cudaSuccess) {
        return error;
    }
    cudaError_t error = cudaSuccess;
    for (int first = 0; first < pass.n_rows && error == cudaSuccess; first += kMaxRows) {
        const RowRange rows = {first, std::min(kMaxRows, pass.n_rows - first)};
        error = args.kv == KvType::kBf16 ? attention_of_format<KvType::kBf16>(args, pass, rows)
                                         : attention_of_format<KvType::kInt8>(args, pass, rows);
        args.qkv += kMaxRows * (args.n_heads + 2 * args.n_kv_heads) * args.head_dim;
        args.out += kMaxRows * args.n_heads * args.head_dim;
        // The next rows read what these write into the caches.
        pass.overlaps = false;
    }
    return error;
}

int64_t attention_scratch_bytes(int64_t n_heads, int64_t head_dim, int64_t max_seq_len) {
    const int64_t width = head_width(head_dim);
    const int64_t tile = tile_positions(static_cast<int>(width));
    const int64_t n_splits = std::min<int64_t>(kMaxSplits, n_tiles_of(max_seq_len, tile));
    return (n_counters(n_heads) + n_heads * kMaxRows * n_splits * (width + 4)) * 4;
}

}  // namespace soliton::cuda