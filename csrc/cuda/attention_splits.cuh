// The records that the blocks of a kv head leave in device memory, one for each split and query,
// and their merge by the block that counts last. Owns the scratch. Knows no cache and no score.
#pragma once

#include "attention_block.cuh"

namespace soliton::cuda {

inline constexpr float kInfinity = INFINITY;

// Counters before the records: one for each group of queries, enough for groups of a single query.
__host__ __device__ constexpr int64_t n_counters(int64_t n_heads) {
    return n_heads * kMaxRows;
}

// How much a part counts whose largest exponent is `part_top`: 0 if it saw no position.
__device__ __forceinline__ float weight_of(float part_top, float top) {
    return part_top == -kInfinity ? 0.0f : exp2f(part_top - top);
}

// For the threads of one block.
template <typename S>
class Splits {
  public:
    __device__ explicit Splits(const AttentionBlock<S>& at)
        : at_(at), args_(at.args), tiles_(at.tiles), lane_(at.lane) {}

    // A split's record of one of the block's queries.
    __device__ float* record(int split, int q) const {
        float* records = static_cast<float*>(args_.scratch) + n_counters(args_.n_heads);
        const int64_t block = (int64_t{blockIdx.y} * gridDim.z + blockIdx.z) * gridDim.x + split;
        return records + (block * S::kQueries + q) * S::kRecordFloats;
    }

    // Counts the blocks of these queries; the last one resets the counter. It then sees all
    // records: the barriers and the count order a block's writes before the last block's reads.
    __device__ bool is_last_of_head() const {
        __shared__ bool is_last;
        __syncthreads();
        if (threadIdx.x == 0) {
            int* counter = static_cast<int*>(args_.scratch) + blockIdx.y * gridDim.z + blockIdx.z;
            is_last = count_up(counter) == tiles_.n_active() - 1;
            if (is_last) {
                *counter = 0;
            }
        }
        __syncthreads();
        return is_last;
    }

    // Merges the records of all splits, in their order. A warp takes a query, a lane 4 elements of
    // every 128. Up to 32 records are loaded at a time, because they come from L2, which takes long
    // to answer. A sink counts in the sum, first, and has no value.
    __device__ void merge() const {
        constexpr int kQuads = (S::kWidth + 127) / 128;
        // With many queries, registers are left for half as many.
        constexpr int kInFlight = kWarp / kQuads / (S::kColumns == 4 ? 2 : 1);
        const int n_active = tiles_.n_active();
        for (int q = at_.warp; q < at_.n_queries; q += S::kWarps) {
            float weights[kMaxSplits / kWarp];
            float sums[kMaxSplits / kWarp];
            float sum = load_weights(weights, sums, n_active, q);
            float values[kQuads][4] = {};
#pragma unroll 1
            for (int begin = 0; begin < n_active; begin += kInFlight) {
                float4 parts[kInFlight][kQuads];
#pragma unroll
                for (int i = 0; i < kInFlight; ++i) {
                    if (begin + i < n_active) {
                        load_record(parts[i], begin + i, q);
                    }
                }
                const float own_weight = begin < kWarp ? weights[0] : weights[1];
                const float own_sum = begin < kWarp ? sums[0] : sums[1];
#pragma unroll
                for (int i = 0; i < kInFlight; ++i) {
                    if (begin + i < n_active) {
                        const int lane = (begin + i) % kWarp;
                        const float weight = __shfl_sync(kAllLanes, own_weight, lane);
                        sum += weight * __shfl_sync(kAllLanes, own_sum, lane);
#pragma unroll
                        for (int k = 0; k < kQuads; ++k) {
                            values[k][0] += weight * parts[i][k].x;
                            values[k][1] += weight * parts[i][k].y;
                            values[k][2] += weight * parts[i][k].z;
                            values[k][3] += weight * parts[i][k].w;
                        }
                    }
                }
            }
            float* to = args_.out + at_.index_of_query(q) * args_.head_dim;
#pragma unroll
            for (int i = 0; i < kQuads * 4; ++i) {
                const int d = i / 4 * 128 + lane_ * 4 + i % 4;
                if (d < args_.head_dim) {
                    to[d] = values[i / 4][i % 4] / sum;
                }
            }
        }
    }

  private:
    // Lane l receives the weights and sums of splits l and l + 32 of the active ones; 0 for none.
    // Returns what the query's sink adds to the sum; 0 without one.
    __device__ float load_weights(float (&weights)[kMaxSplits / kWarp],
                                  float (&sums)[kMaxSplits / kWarp], int n_active, int q) const {
        float tops[kMaxSplits / kWarp];
        float sink = -kInfinity;
        if (args_.sinks != nullptr) {
            sink = args_.sinks[at_.head_of_query(q)] * kLog2E;
        }
        float top = sink;
#pragma unroll
        for (int i = 0; i < kMaxSplits / kWarp; ++i) {
            const int index = i * kWarp + lane_;
            float2 both = {-kInfinity, 0.0f};
            if (index < n_active) {
                const float* from = record(tiles_.active(index), q) + S::kWidth;
                both = load_fresh(reinterpret_cast<const float2*>(from));
            }
            tops[i] = both.x;
            sums[i] = both.y;
            top = fmaxf(top, tops[i]);
        }
        top = max_of_warp(top);
#pragma unroll
        for (int i = 0; i < kMaxSplits / kWarp; ++i) {
            weights[i] = weight_of(tops[i], top);
        }
        return weight_of(sink, top);
    }

    // This lane's elements of an active split's record.
    __device__ void load_record(float4 (&part)[(S::kWidth + 127) / 128], int index, int q) const {
        const float* from = record(tiles_.active(index), q);
#pragma unroll
        for (int k = 0; k < (S::kWidth + 127) / 128; ++k) {
            const int d = k * 128 + lane_ * 4;
            part[k] = {};
            if (d < S::kWidth) {
                part[k] = load_fresh(reinterpret_cast<const float4*>(from + d));
            }
        }
    }

    const AttentionBlock<S>& at_;
    const AttentionArgs& args_;
    const Tiles& tiles_;
    const int lane_;
};

}  // namespace soliton::cuda
