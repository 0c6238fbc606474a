// A block's own rows of a pass: queries into shared memory, and the new keys and values into shared
// memory and the caches. Owns the layout of both there. Knows no softmax.
#pragma once

#include "attention_block.cuh"
#include "attention_copies.cuh"

namespace soliton::cuda {

template <typename S>
class PassRows {
  public:
    __device__ explicit PassRows(const AttentionBlock<S>& at) : at_(at) {}

    // Stores high and low parts of the queries in columns 2q and 2q + 1. Scores are exponents of 2.
    __device__ void load_queries() {
        for (int q = at_.warp; q < S::kQueries; q += S::kWarps) {
            float row[kRowElements<S::kWidth>] = {};
            float factor = 1.0f;
            if (q < at_.n_queries) {
                const int row_index = at_.row_of(q);
                rotated_row<S::kWidth>(row, head_of(row_index, at_.head_of_query(q)),
                                       at_.args.q_norm, rotation_at(at_.args, at_.pos + row_index),
                                       at_.lane);
                factor = make_parts_normal(row);
            }
            uint8_t* high = at_.shared + S::kQueriesAt + 2 * q * Rows::kQueryStride;
            auto* low = reinterpret_cast<uint32_t*>(high + Rows::kQueryStride);
#pragma unroll
            for (int i = 0; i < kRowElements<S::kWidth>; i += 2) {
                const int d = element_of_row(i, at_.lane);
                const uint32_t first = Rows::split(row[i]);
                const uint32_t second = Rows::split(row[i + 1]);
                reinterpret_cast<uint32_t*>(high)[d / 2] = select_bytes(first, second, 0x5410);
                low[d / 2] = select_bytes(first, second, 0x7632);
            }
            if (at_.lane == 0) {
                at_.factors()[q] = factor * at_.args.scale * kLog2E;
            }
        }
    }

    // Computes keys and values of the new rows whose positions are in this block's tiles.
    __device__ void load_fresh_rows() {
        for (int i = at_.warp; i < 2 * at_.n_rows; i += S::kWarps) {
            const int row = i / 2;
            const int tile = (at_.pos + row) / S::kTile;
            if (tile % at_.tiles.n_splits != static_cast<int>(blockIdx.x)) {
                continue;
            }
            const auto head = static_cast<int>(at_.args.n_heads) + at_.kv_head;
            float elements[kRowElements<S::kWidth>];
            if (i % 2 == 0) {
                rotated_row<S::kWidth>(elements, head_of(row, head), at_.args.k_norm,
                                       rotation_at(at_.args, at_.pos + row), at_.lane);
                put_fresh_row(elements, row, 0, at_.args.k_cache, at_.args.k_scales);
            } else {
                load_row<S::kWidth>(elements,
                                    head_of(row, head + static_cast<int>(at_.args.n_kv_heads)),
                                    static_cast<int>(at_.args.head_dim), at_.lane);
                put_fresh_row(elements, row, 1, at_.args.v_cache, at_.args.v_scales);
            }
        }
    }

    // Puts the new rows into a step's copy, and scales of zero after the last row.
    __device__ void put_fresh_rows(uint8_t* rows, int begin) {
        for (int i = max(at_.pos - begin, 0); i < kStepPositions; ++i) {
            const int row = begin + i - at_.pos;
            if (row < at_.n_rows) {
                for (int c = at_.lane; c < 2 * S::kRowChunks; c += kWarp) {
                    const int which = c / S::kRowChunks;
                    uint8_t* to = rows + which * S::kValuesAt + i * Rows::kStride;
                    *KvCopies<S>::chunk_at(to, c % S::kRowChunks) = *KvCopies<S>::chunk_at(
                        fresh_row(row) + which * Rows::kStride, c % S::kRowChunks);
                }
            }
            if (S::kHasScales && at_.lane < 2) {
                const auto* scales =
                    reinterpret_cast<const float*>(fresh_row(row) + 2 * Rows::kStride);
                scales_of<S>(rows, at_.lane)[i] = row < at_.n_rows ? scales[at_.lane] : 0.0f;
            }
        }
        __syncwarp();
    }

  private:
    using Rows = typename S::Rows;

    __device__ const float* head_of(int row, int head) const {
        const int64_t n_all = at_.args.n_heads + 2 * at_.args.n_kv_heads;
        return at_.args.qkv + (row * n_all + head) * at_.args.head_dim;
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

    __device__ uint8_t* fresh_row(int row) const {
        return at_.shared + S::kFreshAt + row * S::kFreshBytes;
    }

    __device__ void put_fresh_row(const float (&elements)[kRowElements<S::kWidth>], int row,
                                  int which, void* cache, float* scales) {
        const auto stored = stored_row<S::kKv, S::kWidth>(elements);
        uint8_t* fresh = fresh_row(row);
        write_row<S::kKv, S::kWidth>(fresh + which * Rows::kStride, stored, S::kWidth, at_.lane);
        const int64_t at = at_.kv_head * at_.args.max_seq_len + at_.pos + row;
        if (S::kHasScales && at_.lane == 0) {
            reinterpret_cast<float*>(fresh + 2 * Rows::kStride)[which] = stored.scale;
        }
        if (blockIdx.z == 0) {
            const auto padded = static_cast<int>(padded_head_dim(at_.args.head_dim));
            write_row<S::kKv, S::kWidth>(static_cast<uint8_t*>(cache) + at * padded * S::kElement,
                                         stored, padded, at_.lane);
            if (S::kHasScales && at_.lane == 0) {
                scales[at] = stored.scale;
            }
        }
    }

    const AttentionBlock<S>& at_;
};

}  // namespace soliton::cuda
