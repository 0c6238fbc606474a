// Which experts rows choose, and the groups of their pairs: by a warp for each row, and by one
// block for all pairs. Owns the arithmetic of every scoring, as ../routing.cpp defines it. Knows no
// matrix.
#pragma once

#include <cstdint>

#include "common.cuh"
#include "experts.h"

namespace soliton::cuda {

// Taken already, or not to be taken.
inline constexpr float kNever = -INFINITY;
inline constexpr float kLargest = 3.40282347e38f;

// One row's choice, by a warp. Of equally good experts the first ones are taken; what is no number
// is taken last, and gives weights that are none. All that are taken differ, so a group has no more
// pairs than a pass has rows.
class RowChoice {
  public:
    // `room` (2 n_experts,) is this warp's, in shared memory.
    __device__ RowChoice(const Routing& routing, const float* numbers, float* room)
        : routing_(routing),
          n_(static_cast<int>(routing.n_experts)),
          lane_(static_cast<int>(threadIdx.x) % kWarp),
          scores_(room),
          left_(room + routing.n_experts) {
        for (int i = lane_; i < n_; i += kWarp) {
            scores_[i] = numbers[i];
        }
        if (routing.scoring == Scoring::kSoftmax) {
            softmax();
        } else if (routing.scoring == Scoring::kSigmoid) {
            for (int i = lane_; i < n_; i += kWarp) {
                scores_[i] = 1.0f / (1.0f + expf(-scores_[i]));
            }
        }
        for (int i = lane_; i < n_; i += kWarp) {
            const float bias = routing.selection_bias ? routing.selection_bias[i] : 0.0f;
            const float value = scores_[i] + bias;
            left_[i] = value >= -kLargest ? value : -kLargest;
        }
        __syncwarp();
        if (routing.n_groups > routing.n_groups_used) {
            drop_groups();
        }
    }

    // Lane k receives the k-th choice.
    __device__ void take(int32_t& expert, float& weight) {
        const auto n_used = static_cast<int>(routing_.n_used);
        const bool in_turn = routing_.scoring == Scoring::kSparseMixer;
        expert = 0;
        weight = 0.0f;
        for (int k = 0; k < n_used; ++k) {
            const int best = best_left();
            const float own = in_turn ? weight_of_close(scores_[best]) : 0.0f;
            if (lane_ == k) {
                expert = best;
                weight = own;
            }
            __syncwarp();
            if (lane_ == 0) {
                left_[best] = kNever;
            }
            __syncwarp();
        }
        const bool is_chosen = lane_ < n_used;
        if (!in_turn) {
            weigh(expert, weight, n_used);
        }
        if (is_chosen && routing_.expert_scales != nullptr) {
            weight *= routing_.expert_scales[expert];
        }
    }

  private:
    __device__ void softmax() {
        float largest = kNever;
        for (int i = lane_; i < n_; i += kWarp) {
            largest = fmaxf(largest, scores_[i]);
        }
        largest = max_of_warp(largest);
        float sum = 0.0f;
        for (int i = lane_; i < n_; i += kWarp) {
            scores_[i] = expf(scores_[i] - largest);
            sum += scores_[i];
        }
        sum = sum_of_warp(sum);
        for (int i = lane_; i < n_; i += kWarp) {
            scores_[i] /= sum;
        }
    }

    // The sum of the best values of a group: each time the next smaller one, as often as it occurs.
    __device__ float sum_of_best(const float* values, int width) const {
        float sum = 0.0f;
        float bound = INFINITY;
        for (auto n_missing = static_cast<int>(routing_.group_best); n_missing > 0;) {
            float next = kNever;
            int n_equal = 0;
            for (int i = 0; i < width; ++i) {
                if (values[i] < bound && values[i] > next) {
                    next = values[i];
                    n_equal = 0;
                }
                n_equal += values[i] == next ? 1 : 0;
            }
            if (n_equal == 0) {
                break;
            }
            for (int i = 0; i < n_equal && n_missing > 0; ++i, --n_missing) {
                sum += next;
            }
            bound = next;
        }
        return sum;
    }

    // A lane for each group: it stays if fewer are better than may stay, of equal ones the first.
    __device__ void drop_groups() {
        const auto n_groups = static_cast<int>(routing_.n_groups);
        const int width = n_ / n_groups;
        float* own = left_ + lane_ * width;
        const float sum = lane_ < n_groups ? sum_of_best(own, width) : 0.0f;
        int n_better = 0;
        for (int other = 0; other < n_groups; ++other) {
            const float of_other = __shfl_sync(kAllLanes, sum, other);
            n_better += of_other > sum || (of_other == sum && other < lane_) ? 1 : 0;
        }
        if (lane_ < n_groups && n_better >= static_cast<int>(routing_.n_groups_used)) {
            for (int i = 0; i < width; ++i) {
                own[i] = kNever;
            }
        }
        __syncwarp();
    }

    // The first of the largest that are left.
    __device__ int best_left() const {
        float best = kNever;
        int index = n_;
        for (int i = lane_; i < n_; i += kWarp) {
            if (left_[i] > best) {
                best = left_[i];
                index = i;
            }
        }
#pragma unroll
        for (int distance = kWarp / 2; distance > 0; distance /= 2) {
            const float of_other = __shfl_xor_sync(kAllLanes, best, distance);
            const int other = __shfl_xor_sync(kAllLanes, index, distance);
            if (of_other > best || (of_other == best && other < index)) {
                best = of_other;
                index = other;
            }
        }
        return index;
    }

    // Of the best that is left: its part of the softmax of those close to it.
    __device__ float weight_of_close(float best) const {
        float sum = 0.0f;
        for (int i = lane_; i < n_; i += kWarp) {
            const float number = scores_[i];
            const bool is_far = (best - number) / fmaxf(fabsf(number), best) > routing_.spread;
            if (left_[i] != kNever && !is_far) {
                sum += expf(number - best);
            }
        }
        return routing_.scale / sum_of_warp(sum);
    }

    // The weights of the lanes' choices from their scores, with a sum in the order of the choice.
    __device__ void weigh(int expert, float& weight, int n_used) const {
        const bool of_chosen = routing_.scoring == Scoring::kChosenSoftmax;
        weight = scores_[expert];
        if (of_chosen) {
            weight = expf(weight - __shfl_sync(kAllLanes, weight, 0));
        }
        float sum = 0.0f;
        for (int k = 0; k < n_used; ++k) {
            sum += __shfl_sync(kAllLanes, weight, k);
        }
        if (of_chosen || routing_.is_renormalized) {
            weight /= sum;
        }
        weight *= routing_.scale;
    }

    const Routing& routing_;
    const int n_;
    const int lane_;
    float* const scores_;
    float* const left_;  // what decides the choice
};

// Sorts the pairs by expert, each expert's in their order, and cuts them into groups; by one block.
// `chosen` (n_pairs,) and `starts` (n_pairs,) are in shared memory, where `chosen` has the experts
// of all pairs.
__device__ __forceinline__ void group_pairs(const PairGroups& groups, int n_pairs,
                                            const int32_t* chosen, int32_t* starts) {
    const auto thread = static_cast<int>(threadIdx.x);
    const auto n_threads = static_cast<int>(blockDim.x);
    for (int pair = thread; pair < n_pairs; pair += n_threads) {
        int slot = 0;
        int n_before = 0;  // of the same expert
        for (int other = 0; other < n_pairs; ++other) {
            const bool is_before = chosen[other] == chosen[pair] && other < pair;
            n_before += is_before ? 1 : 0;
            slot += is_before || chosen[other] < chosen[pair] ? 1 : 0;
        }
        groups.slots[slot] = pair;
        // The expert, if a group begins here.
        starts[slot] = n_before % kTogether == 0 ? chosen[pair] : -1;
    }
    __syncthreads();
    for (int slot = thread; slot < n_pairs; slot += n_threads) {
        int n_before = 0;
        for (int other = 0; other < slot; ++other) {
            n_before += starts[other] >= 0 ? 1 : 0;
        }
        if (starts[slot] >= 0) {
            groups.experts[n_before] = starts[slot];
            groups.begins[n_before] = slot;
            n_before += 1;
        }
        if (slot == n_pairs - 1) {
            *groups.n = n_before;
            groups.begins[n_before] = n_pairs;
        }
    }
}

}  // namespace soliton::cuda
