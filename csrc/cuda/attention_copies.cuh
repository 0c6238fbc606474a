// Copies keys and values from the caches into a warp's own ring in shared memory, with cp.async and
// some stages ahead. Owns the ring. Knows no query.
#pragma once

#include "attention_shape.cuh"

namespace soliton::cuda {

template <typename S>
class KvCopies {
  public:
    // Steps start at position `begin` and are `stride` positions apart. The caches hold the
    // positions before `end`. `stages` has kStages * kStageBytes for this warp.
    __device__ KvCopies(const AttentionArgs& args, uint8_t* stages, int kv_head, int begin,
                        int stride, int n_steps, int end, int lane)
        : stages_(stages),
          to_(stages),
          ready_(stages),
          n_chunks_(static_cast<int>(padded_head_dim(args.head_dim)) * S::kElement / 16),
          stride_(stride),
          begin_(begin),
          left_(n_steps),
          end_(end),
          lane_(lane) {
        const int64_t row = kv_head * args.max_seq_len + begin;
        const int64_t at = ((row + lane / S::kRowChunks) * n_chunks_ + lane % S::kRowChunks) * 16;
        keys_ = static_cast<const uint8_t*>(args.k_cache) + at;
        values_ = static_cast<const uint8_t*>(args.v_cache) + at;
        if constexpr (S::kHasScales) {
            scales_ = (lane < 4 ? args.k_scales : args.v_scales) + row + lane % 4 * 4;
        }
        clear_padding();
    }

    // Begins the next step's copy. Positions from `end` on become zeros, because the caches may
    // hold anything there.
    __device__ void start() {
        if (left_ > 0) {
            if (begin_ + kStepPositions <= end_) {
                copy<true>();
            } else {
                copy<false>();
            }
            const int64_t n_bytes = int64_t{stride_} * n_chunks_ * 16;
            keys_ += n_bytes;
            values_ += n_bytes;
            scales_ += stride_;
            begin_ += stride_;
            to_ = after(to_);
            --left_;
        }
        commit_copies();
    }

    // Waits for keys, values and scales of the next step and returns them. Refills the stage of the
    // previous step: a WAR hazard, so all lanes must have finished it.
    __device__ uint8_t* next() {
        wait_for_copies<S::kStages - 2>();
        __syncwarp();
        start();
        uint8_t* rows = ready_;
        ready_ = after(ready_);
        return rows;
    }

    // A chunk of 16 bytes of keys or values, counted row by row.
    static __device__ uint4* chunk_at(uint8_t* rows, int chunk) {
        return reinterpret_cast<uint4*>(rows + chunk / S::kRowChunks * S::Rows::kStride) +
               chunk % S::kRowChunks;
    }

  private:
    __device__ uint8_t* after(uint8_t* stage) const {
        stage += S::kStageBytes;
        return stage == stages_ + S::kStages * S::kStageBytes ? stages_ : stage;
    }

    template <bool kWhole>
    __device__ void copy() {
        constexpr int kRowsAtOnce = kWarp / S::kRowChunks;
        if (lane_ % S::kRowChunks < n_chunks_) {
#pragma unroll
            for (int row = 0; row < kStepPositions; row += kRowsAtOnce) {
                const bool valid = kWhole || begin_ + row + lane_ / S::kRowChunks < end_;
                const int64_t at = int64_t{row} * n_chunks_ * 16;
                uint4* to = chunk_at(to_, row * S::kRowChunks + lane_);
                copy_async(to, keys_ + at, valid);
                copy_async(to + S::kValuesAt / 16, values_ + at, valid);
            }
        }
        if (S::kHasScales && lane_ < 8) {
            copy_async(to_ + S::kScalesAt + lane_ * 16, scales_,
                       kWhole || begin_ + lane_ % 4 * 4 < end_);
        }
    }

    // Zeros the part of the rows that no copy writes.
    __device__ void clear_padding() {
        if (n_chunks_ == S::kRowChunks) {
            return;
        }
        for (uint8_t* stage = stages_; stage != stages_ + S::kStages * S::kStageBytes;
             stage += S::kStageBytes) {
            for (int i = lane_; i < 2 * kStepPositions * S::kRowChunks; i += kWarp) {
                if (i % S::kRowChunks >= n_chunks_) {
                    *chunk_at(stage, i) = make_uint4(0, 0, 0, 0);
                }
            }
        }
    }

    uint8_t* const stages_;
    uint8_t* to_;     // the next copy
    uint8_t* ready_;  // the next step to be computed
    const uint8_t* keys_;
    const uint8_t* values_;
    const float* scales_ = nullptr;
    const int n_chunks_;  // of 16 bytes, in a row of the caches
    const int stride_;
    int begin_;  // of the next copy
    int left_;
    const int end_;
    const int lane_;
};

}  // namespace soliton::cuda
