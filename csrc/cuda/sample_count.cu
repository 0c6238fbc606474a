// The sampler's second launch: counts tokens and masses by distance from the best token.
#include "sample_block.cuh"

namespace soliton::cuda {
namespace {

// Masses are split at this bit, so that sums over a chunk fit into 32 bits, which shared memory
// adds fast.
constexpr int kLowBits = 20;

struct Counts {
    uint32_t count[kBuckets];
    uint32_t low[2][kBuckets];
    uint32_t high[2][kBuckets];

    __device__ void add_mass(int column, int bucket, Word mass) {
        if (mass != 0) {
            atomicAdd(&low[column - kPlain][bucket],
                      static_cast<uint32_t>(mass) & ((1u << kLowBits) - 1));
            atomicAdd(&high[column - kPlain][bucket], static_cast<uint32_t>(mass >> kLowBits));
        }
    }
    __device__ Word mass(int column, int bucket) const {
        return (Word{high[column - kPlain][bucket]} << kLowBits) + low[column - kPlain][bucket];
    }
};

__device__ Row describe(const Sampling& sampling, int row) {
    Bounds bounds = {-INFINITY, INFINITY, 0};
    for (int i = threadIdx.x; i < sampling.n_chunks; i += kSampleThreads) {
        const Bounds& other = sampling.work.bounds[row * sampling.n_chunks + i];
        bounds.largest = fmaxf(bounds.largest, other.largest);
        bounds.smallest = fminf(bounds.smallest, other.smallest);
        bounds.is_bad |= other.is_bad;
    }
    bounds = bounds_of_block(bounds);
    // A high temperature makes more distant logits likely.
    const double reach = sampling.is_tempered && row == kDrawnRow && sampling.args.rate < 1.0
                             ? kSpread / sampling.args.rate
                             : kSpread;
    const float spread = fminf(bounds.largest - bounds.smallest, static_cast<float>(reach));
    return {
        .largest = bounds.largest,
        .scale = spread > 0.0f ? fminf(static_cast<float>(kBuckets) / spread, FLT_MAX) : 0.0f,
        .is_bad = bounds.is_bad | static_cast<int32_t>(!(bounds.largest > -INFINITY)),
    };
}

__global__ void __launch_bounds__(kSampleThreads)
    count_rows_kernel(const __grid_constant__ Sampling sampling) {
    __shared__ Counts counts;
    const SampleArgs& args = sampling.args;
    const auto chunk = static_cast<int>(blockIdx.x);
    const auto row_index = static_cast<int>(blockIdx.y);
    const bool is_drawn = row_index == kDrawnRow;
    const bool is_raw = row_index == sampling.raw_row();
    const bool is_tempered = sampling.is_tempered && is_drawn;
    for (int i = threadIdx.x; i < static_cast<int>(sizeof(Counts) / sizeof(uint32_t));
         i += kSampleThreads) {
        reinterpret_cast<uint32_t*>(&counts)[i] = 0;
    }
    wait_for_previous_launch();
    allow_next_launch();
    const OwnLogits own(sampling.logits_of(row_index), args.vocab_size);
    const Row row = describe(sampling, row_index);  // after this, the zeros are visible
    if (chunk == 0 && threadIdx.x == 0) {
        sampling.work.rows[row_index] = row;
    }
    if (row.is_bad != 0) {
        return;
    }
    // The filters count the tokens that have a mass in the softmax of the first filter.
    const bool is_first_tempered = args.n_filters > 0 ? args.filters[0].is_tempered : is_tempered;
    const double first_rate = is_first_tempered ? args.rate : 1.0;
    double moment = 0.0;
    uint32_t n_candidates = 0;
#pragma unroll
    for (int j = 0; j < kTokensPerThread; ++j) {
        const float logit = own.of[j];
        if (!(logit > -INFINITY)) {
            continue;
        }
        const double distance = distance_of(row, logit);
        const int bucket = bucket_of(row, logit);
        const Word mass = mass_of(distance);
        atomicAdd(&counts.count[bucket], 1u);
        counts.add_mass(kPlain, bucket, mass);
        if (is_tempered) {
            counts.add_mass(kTempered, bucket, mass_of(distance * args.rate));
        }
        moment += as_real(mass) * distance;
        n_candidates += distance * first_rate > kLowestExponent ? 1 : 0;
    }
    moment = sum_block(moment);
    n_candidates = sum_block(n_candidates);  // after this, the counts are visible
    Totals& totals = *sampling.work.totals;
    if (threadIdx.x == 0) {
        if (is_raw) {
            sampling.work.moments[chunk] = moment;
        }
        if (is_drawn) {
            atomicAdd(&totals.n_candidates, n_candidates);
        }
    }
    Histogram& histogram = totals.histograms[row_index];
    for (int b = threadIdx.x; b < kBuckets; b += kSampleThreads) {
        if (counts.count[b] == 0) {
            continue;
        }
        atomicAdd(&histogram.sums[kCount][b], Word{counts.count[b]});
        atomicAdd(&histogram.sums[kPlain][b], counts.mass(kPlain, b));
        if (is_tempered) {
            atomicAdd(&histogram.sums[kTempered][b], counts.mass(kTempered, b));
        }
    }
}

}  // namespace

cudaError_t count_rows(const Sampling& sampling, LaunchAt at) {
    return launch(count_rows_kernel, dim3(sampling.n_chunks, sampling.n_rows), dim3(kSampleThreads),
                  0, at, sampling);
}

}  // namespace soliton::cuda
