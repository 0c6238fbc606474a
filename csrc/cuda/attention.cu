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
#include "attention_shape.cuh"
#include "attention_splits.cuh"
#include "common.cuh"
#include "head_row.cuh"

namespace soliton::cuda {
namespace {

constexpr float kLog2E = 1.44269504f;
// With int8 values, probabilities are float16; scaled up by this, their low parts are still normal
// numbers.
template <KvType kKv>
constexpr float kRaised = kKv == KvType::kInt8 ? 16384.0f : 1.0f;

int64_t n_tiles_of(int64_t length, int64_t tile) {
    return (length + tile - 1) / tile;
}

template <typename S>
class Block {
  public:
    __device__ Block(const AttentionArgs& args, const StepState* state, int n_rows)
        : args_(args),
          shared_(shared_memory<uint8_t>()),
          lane_(static_cast<int>(threadIdx.x) % kWarp),
          warp_(static_cast<int>(threadIdx.x) / kWarp),
          kv_head_(static_cast<int>(blockIdx.y)),
          group_(static_cast<int>(args.n_heads / args.n_kv_heads)),
          pos_(static_cast<int>(load_fresh(&state->pos))),
          n_rows_(n_rows),
          first_query_(static_cast<int>(blockIdx.z) * S::kQueries),
          n_queries_(min(S::kQueries, n_rows * group_ - first_query_)) {
        const int window = static_cast<int>(args.window);
        const int oldest = window ? max(pos_ - window + 1, 0) : 0;
        tiles_ = {oldest / S::kTile, (pos_ + n_rows - 1) / S::kTile,
                  attention_splits(args.n_kv_heads)};
#pragma unroll
        for (float& top : tops_) {
            top = -kInfinity;
        }
    }

    __device__ void run() {
        prefetch_next();
        const int first_tile = tiles_.begin(static_cast<int>(blockIdx.x));
        if (first_tile > tiles_.last) {
            return;
        }
        int begin = first_tile * S::kTile + warp_ * kStepPositions;
        const int stride = tiles_.n_splits * S::kTile;
        const int end = pos_ + n_rows_;
        const int n_steps = begin < end ? (end - 1 - begin) / stride + 1 : 0;
        // Earlier passes have written the caches up to pos.
        KvCopies<S> copies(args_, shared_ + warp_ * S::kStages * S::kStageBytes, kv_head_, begin,
                           stride, n_steps, pos_, lane_);
        for (int i = 0; i < S::kStages - 1; ++i) {
            copies.start();
        }
        wait_for_previous_launch();
        // Not earlier: blocks of later launches would hold shared memory while this one waits.
        allow_next_launch();
        load_queries();
        load_fresh_rows();
        __syncthreads();
        for (int i = 0; i < n_steps; ++i, begin += stride) {
            step(copies.next(), begin);
        }
        wait_for_copies<0>();
        __syncthreads();
        const Splits<S> splits(args_, tiles_, lane_, warp_);
        put_warps_together(splits);
        if (splits.is_last_of_head()) {
            splits.merge(n_queries_, [this](int q) {
                const int64_t head = row_of(q) * args_.n_heads + head_of_query(q);
                return args_.out + head * args_.head_dim;
            });
        }
    }

  private:
    using Rows = typename S::Rows;

    // Prefetches this block's share of what the next ops read. A block without positions has one
    // too.
    __device__ void prefetch_next() const {
        const int block =
            static_cast<int>(blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
        const int n_blocks = static_cast<int>(gridDim.x * gridDim.y * gridDim.z);
#pragma unroll
        for (const Constants& each : args_.next) {
            // Neighbouring shares belong to different blocks.
            prefetch_share(each.begin, each.n_bytes,
                           block + n_blocks * static_cast<int>(threadIdx.x),
                           n_blocks * S::kThreads);
        }
    }

    // ---- The pass's own queries, keys and values. ----

    __device__ const float* head_of(int row, int head) const {
        const int64_t n_all = args_.n_heads + 2 * args_.n_kv_heads;
        return args_.qkv + (row * n_all + head) * args_.head_dim;
    }

    __device__ float* factors() const { return reinterpret_cast<float*>(shared_ + S::kFactorsAt); }

    // Stores high and low parts of the queries in columns 2q and 2q + 1. Scores are exponents of 2.
    __device__ void load_queries() {
        for (int q = warp_; q < S::kQueries; q += S::kWarps) {
            float row[kRowElements<S::kWidth>] = {};
            float factor = 1.0f;
            if (q < n_queries_) {
                const int row_index = row_of(q);
                rotated_row<S::kWidth>(row, head_of(row_index, head_of_query(q)), args_.q_norm,
                                       rotation_at(args_, pos_ + row_index), lane_);
                factor = make_parts_normal(row);
            }
            uint8_t* high = shared_ + S::kQueriesAt + 2 * q * Rows::kQueryStride;
            auto* low = reinterpret_cast<uint32_t*>(high + Rows::kQueryStride);
#pragma unroll
            for (int i = 0; i < kRowElements<S::kWidth>; i += 2) {
                const int d = element_of_row(i, lane_);
                const uint32_t first = Rows::split(row[i]);
                const uint32_t second = Rows::split(row[i + 1]);
                reinterpret_cast<uint32_t*>(high)[d / 2] = select_bytes(first, second, 0x5410);
                low[d / 2] = select_bytes(first, second, 0x7632);
            }
            if (lane_ == 0) {
                factors()[q] = factor * args_.scale * kLog2E;
            }
        }
    }

    // float16 has a small exponent range, so this scales the row until its largest element is at
    // least 256. Returns the factor that undoes it.
    __device__ float make_parts_normal(float (&row)[kRowElements<S::kWidth>]) {
        if constexpr (S::kHasScales) {
            float largest = 0x1p-100f;
#pragma unroll
            for (int i = 0; i < kRowElements<S::kWidth>; ++i) {
                largest = fmaxf(largest, fabsf(row[i]));
            }
            largest = fminf(max_of_warp(largest), 0x1p100f);
            const uint32_t power = __float_as_uint(largest) & 0x7f800000u;  // of two, below largest
            const float inverse = __uint_as_float(0x7f000000u - power);
#pragma unroll
            for (int i = 0; i < kRowElements<S::kWidth>; ++i) {
                row[i] *= inverse * 256.0f;
            }
            return __uint_as_float(power) / 256.0f;
        }
        return 1.0f;
    }

    __device__ int row_of(int q) const { return min((first_query_ + q) / group_, n_rows_ - 1); }

    __device__ int head_of_query(int q) const {
        return kv_head_ * group_ + (first_query_ + q) % group_;
    }

    __device__ uint8_t* fresh_row(int row) const {
        return shared_ + S::kFreshAt + row * S::kFreshBytes;
    }

    // Computes keys and values of the new rows whose positions are in this block's tiles.
    __device__ void load_fresh_rows() {
        for (int i = warp_; i < 2 * n_rows_; i += S::kWarps) {
            const int row = i / 2;
            const int tile = (pos_ + row) / S::kTile;
            if (tile % tiles_.n_splits != static_cast<int>(blockIdx.x)) {
                continue;
            }
            const auto head = static_cast<int>(args_.n_heads) + kv_head_;
            float elements[kRowElements<S::kWidth>];
            if (i % 2 == 0) {
                rotated_row<S::kWidth>(elements, head_of(row, head), args_.k_norm,
                                       rotation_at(args_, pos_ + row), lane_);
                put_fresh_row(elements, row, 0, args_.k_cache, args_.k_scales);
            } else {
                load_row<S::kWidth>(elements,
                                    head_of(row, head + static_cast<int>(args_.n_kv_heads)),
                                    static_cast<int>(args_.head_dim), lane_);
                put_fresh_row(elements, row, 1, args_.v_cache, args_.v_scales);
            }
        }
    }

    __device__ void put_fresh_row(const float (&elements)[kRowElements<S::kWidth>], int row,
                                  int which, void* cache, float* scales) {
        const auto stored = stored_row<S::kKv, S::kWidth>(elements);
        uint8_t* fresh = fresh_row(row);
        write_row<S::kKv, S::kWidth>(fresh + which * Rows::kStride, stored, S::kWidth, lane_);
        const int64_t at = kv_head_ * args_.max_seq_len + pos_ + row;
        if (S::kHasScales && lane_ == 0) {
            reinterpret_cast<float*>(fresh + 2 * Rows::kStride)[which] = stored.scale;
        }
        if (blockIdx.z == 0) {
            const auto padded = static_cast<int>(padded_head_dim(args_.head_dim));
            write_row<S::kKv, S::kWidth>(static_cast<uint8_t*>(cache) + at * padded * S::kElement,
                                         stored, padded, lane_);
            if (S::kHasScales && lane_ == 0) {
                scales[at] = stored.scale;
            }
        }
    }

    // Puts the new rows into a step's copy, and scales of zero after the last row.
    __device__ void put_fresh_rows(uint8_t* rows, int begin) {
        for (int i = max(pos_ - begin, 0); i < kStepPositions; ++i) {
            const int row = begin + i - pos_;
            if (row < n_rows_) {
                for (int c = lane_; c < 2 * S::kRowChunks; c += kWarp) {
                    const int which = c / S::kRowChunks;
                    uint8_t* to = rows + which * S::kValuesAt + i * Rows::kStride;
                    *KvCopies<S>::chunk_at(to, c % S::kRowChunks) = *KvCopies<S>::chunk_at(
                        fresh_row(row) + which * Rows::kStride, c % S::kRowChunks);
                }
            }
            if (S::kHasScales && lane_ < 2) {
                const auto* scales =
                    reinterpret_cast<const float*>(fresh_row(row) + 2 * Rows::kStride);
                scales_of(rows, lane_)[i] = row < n_rows_ ? scales[lane_] : 0.0f;
            }
        }
        __syncwarp();
    }

    // The scales of a step's keys (0) or values (1).
    static __device__ float* scales_of(uint8_t* rows, int which) {
        return reinterpret_cast<float*>(rows + S::kScalesAt + which * S::kScaleBytes);
    }

    // ---- One step: 16 positions. ----

    // Lane l of a warp has positions l / 4 and l / 4 + 8 for query l % 4 of each column.
    __device__ void step(uint8_t* rows, int begin) {
        if (begin + kStepPositions > pos_) {
            put_fresh_rows(rows, begin);
        }
        float scores[S::kColumns][4] = {};
        multiply_keys(scores, rows);
        uint32_t probabilities[S::kColumns][2];
        softmax(probabilities, scores, rows, begin);
        multiply_values(probabilities, rows + S::kValuesAt);
    }

    __device__ void multiply_keys(float (&scores)[S::kColumns][4], const uint8_t* rows) {
        const uint8_t* column = shared_ + S::kQueriesAt + lane_ / 4 * Rows::kQueryStride;
#pragma unroll
        for (int i = 0; i < S::kWidth / 32; ++i) {
            uint32_t a[2][4];
            Rows::load_keys(a, rows, i, lane_);
            const uint8_t* from = column + Rows::query_chunk(i, lane_) * 16;
#pragma unroll
            for (int n = 0; n < S::kColumns; ++n) {
                const uint4 b = *reinterpret_cast<const uint4*>(from + n * 8 * Rows::kQueryStride);
                Rows::multiply(scores[n], a[0], {b.x, b.y});
                Rows::multiply(scores[n], a[1], {b.z, b.w});
            }
        }
    }

    // Probabilities, not yet divided by the softmax's sum, as the operand that is multiplied with
    // the values.
    __device__ void softmax(uint32_t (&probabilities)[S::kColumns][2],
                            const float (&scores)[S::kColumns][4], uint8_t* rows, int begin) {
        float key_scales[2] = {1.0f, 1.0f};
        float value_scales[2] = {1.0f, 1.0f};
        float exponents[2] = {0.0f, 0.0f};
        if constexpr (S::kHasScales) {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                key_scales[j] = scales_of(rows, 0)[lane_ / 4 + 8 * j];
                const float scale = scales_of(rows, 1)[lane_ / 4 + 8 * j];
                value_scales[j] = scale * kRaised<S::kKv>;
                exponents[j] = log2f(fmaxf(scale, 0x1p-60f));
            }
        }
        const bool all_visible = is_visible_to_all(begin);
#pragma unroll
        for (int n = 0; n < S::kColumns; ++n) {
            const float factor = factors()[n * 4 + lane_ % 4];
            float score[2];
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                score[j] = (scores[n][2 * j] + scores[n][2 * j + 1]) * factor * key_scales[j];
            }
            if (!all_visible) {
                mask(score, n, begin);
            }
            raise_top(n, fmaxf(score[0] + exponents[0], score[1] + exponents[1]));
            const float top = tops_[n] == -kInfinity ? 0.0f : tops_[n];
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const float p = exp2f(score[j] - top);
                sums_[n] += p;
                probabilities[n][j] = transpose_tile(Rows::split(p * value_scales[j]));
            }
        }
    }

    __device__ bool is_visible_to_all(int begin) const {
        const auto window = static_cast<int>(args_.window);
        return begin + kStepPositions <= pos_ + 1 &&
               (!window || begin > pos_ + n_rows_ - 1 - window);
    }

    __device__ void mask(float (&score)[2], int n, int begin) {
        const auto window = static_cast<int>(args_.window);
        const int last = pos_ + row_of(n * 4 + lane_ % 4);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const int at = begin + lane_ / 4 + 8 * j;
            if (at > last || (window && at <= last - window)) {
                score[j] = -kInfinity;
            }
        }
    }

    // Raises the largest exponent so far, which includes the value's scale, and scales the sums
    // down to it. If nothing is larger than before, nothing changes.
    __device__ void raise_top(int n, float largest) {
        if (!__any_sync(kAllLanes, largest > tops_[n])) {
            return;
        }
#pragma unroll
        for (int distance = 4; distance < kWarp; distance *= 2) {
            largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, distance));
        }
        const float down = largest > tops_[n] ? exp2f(tops_[n] - largest) : 1.0f;
        tops_[n] = fmaxf(tops_[n], largest);
        sums_[n] *= down;
#pragma unroll
        for (int band = 0; band < S::kBands; ++band) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                out_[band][n][j] *= down;
            }
        }
    }

    __device__ void multiply_values(const uint32_t (&probabilities)[S::kColumns][2],
                                    const uint8_t* rows) {
#pragma unroll
        for (int i = 0; i < S::kWidth / 64; ++i) {
            uint32_t a[4][4];
            Rows::load_values(a, rows, i, lane_);
#pragma unroll
            for (int band = 0; band < 4; ++band) {
#pragma unroll
                for (int n = 0; n < S::kColumns; ++n) {
                    Rows::multiply(out_[4 * i + band][n], a[band], probabilities[n]);
                }
            }
        }
    }

    // ---- Merging warps. ----

    // Merges the warps of this block into its record.
    __device__ void put_warps_together(const Splits<S>& splits) {
        auto* parts = reinterpret_cast<float*>(shared_);
        float* tops = parts + S::kTopsAt;
        float* sums = parts + S::kSumsAt;
#pragma unroll
        for (int n = 0; n < S::kColumns; ++n) {
#pragma unroll
            for (int distance = 4; distance < kWarp; distance *= 2) {
                sums_[n] += __shfl_xor_sync(kAllLanes, sums_[n], distance);
            }
            const int q = n * 4 + lane_ % 4;
            float* part = parts + warp_ * S::kPartFloats + q * S::kWidth;
#pragma unroll
            for (int band = 0; band < S::kBands; ++band) {
                const int d = Rows::element(band, lane_);
                part[d] = out_[band][n][0] + out_[band][n][1];
                part[d + Rows::kNextElement] = out_[band][n][2] + out_[band][n][3];
            }
            if (lane_ < 4) {
                tops[warp_ * S::kQueries + q] = tops_[n];
                sums[warp_ * S::kQueries + q] = sums_[n];
            }
        }
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < n_queries_ * S::kWidth; i += S::kThreads) {
            const int q = i / S::kWidth;
            float* to = splits.record(static_cast<int>(blockIdx.x), q);
            const float top = largest_of_warps(tops + q);
            float value = 0.0f;
            float sum = 0.0f;
#pragma unroll
            for (int warp = 0; warp < S::kWarps; ++warp) {
                const float weight = weight_of(tops[warp * S::kQueries + q], top);
                value += weight * parts[warp * S::kPartFloats + i];
                sum += weight * sums[warp * S::kQueries + q];
            }
            to[i % S::kWidth] = value * (1.0f / kRaised<S::kKv>);
            if (i % S::kWidth == 0) {
                to[S::kWidth] = top;
                to[S::kWidth + 1] = sum;
            }
        }
    }

    static __device__ float largest_of_warps(const float* tops) {
        float top = tops[0];
#pragma unroll
        for (int warp = 1; warp < S::kWarps; ++warp) {
            top = fmaxf(top, tops[warp * S::kQueries]);
        }
        return top;
    }

    const AttentionArgs& args_;
    uint8_t* const shared_;
    const int lane_;
    const int warp_;
    const int kv_head_;
    const int group_;
    const int pos_;
    const int n_rows_;
    const int first_query_;
    const int n_queries_;
    Tiles tiles_;

    // A warp's online softmax: the largest exponent, the lane's part of the sum, and sums of values
    // by element and by high or low part of a query.
    float tops_[S::kColumns];
    float sums_[S::kColumns] = {};
    float out_[S::kBands][S::kColumns][4] = {};
};

template <KvType kKv, int kWidth, int kColumns>
__global__ void __launch_bounds__(attention_warps(kWidth) * kWarp, 2)
    attention_kernel(const AttentionArgs args, const StepState* state, int n_rows) {
    Block<AttentionShape<kKv, kWidth, kColumns>>(args, state, n_rows).run();
}

template <KvType kKv, int kWidth, int kColumns>
cudaError_t launch_attention(const AttentionArgs& args, const Pass& pass) {
    using S = AttentionShape<kKv, kWidth, kColumns>;
    const int64_t n_queries = pass.n_rows * (args.n_heads / args.n_kv_heads);
    const int64_t n_tiles = n_tiles_of(std::min(pass.max_length, args.max_seq_len), S::kTile);
    const int64_t n_splits = std::min<int64_t>(attention_splits(args.n_kv_heads), n_tiles);
    const dim3 grid(n_splits, args.n_kv_heads, (n_queries + S::kQueries - 1) / S::kQueries);
    auto* kernel = attention_kernel<kKv, kWidth, kColumns>;
    return launch(kernel, grid, dim3(S::kThreads), S::shared_bytes(pass.n_rows),
                  {pass.stream, pass.overlaps}, args, pass.state, pass.n_rows);
}

template <KvType kKv, int kWidth>
cudaError_t attention_of_width(const AttentionArgs& args, const Pass& pass) {
    const int64_t n_queries = pass.n_rows * (args.n_heads / args.n_kv_heads);
    if (n_queries <= 4) {
        return launch_attention<kKv, kWidth, 1>(args, pass);
    }
    if (n_queries <= 8 || max_block_queries(kWidth) == 8) {
        return launch_attention<kKv, kWidth, 2>(args, pass);
    }
    if constexpr (max_block_queries(kWidth) == 16) {
        return launch_attention<kKv, kWidth, 4>(args, pass);
    }
    return cudaErrorInvalidValue;
}

template <KvType kKv>
cudaError_t attention_of_format(const AttentionArgs& args, const Pass& pass) {
    switch (head_width(args.head_dim)) {
        case 64:
            return attention_of_width<kKv, 64>(args, pass);
        case 128:
            return attention_of_width<kKv, 128>(args, pass);
        default:
            return attention_of_width<kKv, 256>(args, pass);
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

cudaError_t attention(const AttentionArgs& recorded, const Pass& pass) {
    AttentionArgs args = recorded;
    if (const cudaError_t error = limit_prefetch(args, pass.knobs); error != cudaSuccess) {
        return error;
    }
    return args.kv == KvType::kBf16 ? attention_of_format<KvType::kBf16>(args, pass)
                                    : attention_of_format<KvType::kInt8>(args, pass);
}

int64_t attention_scratch_bytes(int64_t n_heads, int64_t head_dim, int64_t max_seq_len) {
    const int64_t width = head_width(head_dim);
    const int64_t tile = tile_positions(static_cast<int>(width));
    const int64_t n_splits = std::min<int64_t>(kMaxSplits, n_tiles_of(max_seq_len, tile));
    return (n_counters(n_heads) + n_heads * kMaxRows * n_splits * (width + 4)) * 4;
}

}  // namespace soliton::cuda
