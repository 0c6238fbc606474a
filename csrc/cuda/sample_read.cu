// The sampler's first launch: adjusts the logits and finds their bounds. Everything else needs the
// row's largest logit.
#include "sample_block.cuh"

namespace soliton::cuda {
namespace {

__device__ Bounds with(const Bounds& bounds, float logit) {
    return {
        .largest = fmaxf(bounds.largest, logit),
        .smallest = logit > -INFINITY ? fminf(bounds.smallest, logit) : bounds.smallest,
        .is_bad = bounds.is_bad | static_cast<int32_t>(!(logit < INFINITY)),
    };
}

// l / factor or l * factor, minus the penalties of the completion; in doubles, rounded once.
__device__ float penalized(const Adjustments& adjustments, float logit, int n_in_completion) {
    const double wide = logit;
    const double scaled = wide > 0.0 ? wide / adjustments.factor : wide * adjustments.factor;
    const double presence = n_in_completion > 0 ? adjustments.presence : 0.0;
    return static_cast<float>(scaled - (presence + adjustments.frequency * n_in_completion));
}

// Penalizes the chunk's logits, from token `begin` on, whose tokens were seen.
__device__ void penalize(const Adjustments& adjustments, int64_t begin, float* logits) {
    __shared__ int n_seen[kChunk];
    __shared__ int n_in_completion[kChunk];
    for (int i = threadIdx.x; i < kChunk; i += kSampleThreads) {
        n_seen[i] = 0;
        n_in_completion[i] = 0;
    }
    __syncthreads();
    const int64_t n_before = adjustments.n_seen - adjustments.n_completion;
    for (int64_t i = threadIdx.x; i < adjustments.n_seen; i += kSampleThreads) {
        const int64_t place = adjustments.seen[i] - begin;
        if (place >= 0 && place < kChunk) {
            atomicAdd(&n_seen[place], 1);
            if (i >= n_before) {
                atomicAdd(&n_in_completion[place], 1);
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < kChunk; i += kSampleThreads) {
        if (n_seen[i] > 0) {
            logits[i] = penalized(adjustments, logits[i], n_in_completion[i]);
        }
    }
    __syncthreads();
}

// Calls change(place, index) for each id of a list that is in this block's chunk.
template <typename Change>
__device__ void for_ids(const int32_t* ids, int64_t n_ids, int64_t begin, Change change) {
    for (int64_t i = threadIdx.x; i < n_ids; i += kSampleThreads) {
        const int64_t place = ids[i] - begin;
        if (place >= 0 && place < kChunk) {
            change(place, i);
        }
    }
    __syncthreads();
}

// Adjusts a chunk of n logits. Returns whether one is NaN or +inf before the mask and the bans.
__device__ bool adjust(const Adjustments& adjustments, int64_t begin, int n, float* logits) {
    if (adjustments.n_seen > 0) {
        penalize(adjustments, begin, logits);
    }
    for_ids(adjustments.bias_ids, adjustments.n_biases, begin,
            [&](int64_t place, int64_t i) { logits[place] += adjustments.bias_deltas[i]; });
    bool is_bad = false;
    for (int i = threadIdx.x; i < n; i += kSampleThreads) {
        is_bad |= !(logits[i] < INFINITY);
        if (adjustments.mask != nullptr) {
            const auto word = static_cast<uint32_t>(adjustments.mask[(begin + i) / 32]);
            logits[i] = (word >> ((begin + i) % 32) & 1) != 0 ? logits[i] : -INFINITY;
        }
    }
    __syncthreads();
    for_ids(adjustments.banned_ids, adjustments.n_banned, begin,
            [&](int64_t place, int64_t) { logits[place] = -INFINITY; });
    return is_bad;
}

__global__ void __launch_bounds__(kSampleThreads)
    read_rows_kernel(const __grid_constant__ Sampling sampling) {
    __shared__ float logits[kChunk];
    const SampleWork& work = sampling.work;
    const auto chunk = static_cast<int>(blockIdx.x);
    const int64_t begin = int64_t{chunk} * kChunk;
    const auto n = static_cast<int>(min(int64_t{kChunk}, sampling.args.vocab_size - begin));
    wait_for_previous_launch();
    allow_next_launch();
    // Clears the counts of the next launch.
    auto* words = reinterpret_cast<uint32_t*>(work.totals);
    constexpr int kWords = sizeof(Totals) / sizeof(uint32_t);
    for (int i = chunk * kSampleThreads + threadIdx.x; i < kWords;
         i += sampling.n_chunks * kSampleThreads) {
        words[i] = 0;
    }
    Bounds raw = {-INFINITY, INFINITY, 0};
    const OwnLogits own(sampling.args.logits, sampling.args.vocab_size);
#pragma unroll
    for (int j = 0; j < kTokensPerThread; ++j) {
        logits[own.id(j) - begin] = own.of[j];
        raw = with(raw, own.of[j]);
    }
    raw = bounds_of_block(raw);
    if (threadIdx.x == 0) {
        work.bounds[sampling.raw_row() * sampling.n_chunks + chunk] = raw;
    }
    if (sampling.n_rows == 1) {
        return;
    }
    Bounds adjusted = {-INFINITY, INFINITY, 0};
    adjusted.is_bad = adjust(sampling.args.adjustments, begin, n, logits) ? 1 : 0;
    for (int i = threadIdx.x; i < n; i += kSampleThreads) {
        work.adjusted[begin + i] = logits[i];
        adjusted = with(adjusted, logits[i]);
    }
    adjusted = bounds_of_block(adjusted);
    if (threadIdx.x == 0) {
        work.bounds[kDrawnRow * sampling.n_chunks + chunk] = adjusted;
    }
}

}  // namespace

cudaError_t read_rows(const Sampling& sampling, LaunchAt at) {
    return launch(read_rows_kernel, dim3(sampling.n_chunks), dim3(kSampleThreads), 0, at, sampling);
}

}  // namespace soliton::cuda
