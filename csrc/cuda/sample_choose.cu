// The sampler's third launch: collects the tokens that can matter, by bucket. The last block to
// finish runs the filters on them, draws, and reports.
#include "sample_select.cuh"

namespace soliton::cuda {
namespace {

constexpr uint32_t kLastId = 0xffffffffu;

struct Choosing {  // in shared memory
    Selection selection;
    uint32_t places[kBuckets];  // of this block's members
    uint32_t n_top;
    Word top[kMostTop];  // keys
    Word unsorted[kMostTop];
    bool is_last_block;
};

__device__ int column_of(bool is_tempered) {
    return is_tempered ? kTempered : kPlain;
}

// All candidates.
__device__ Prefix everything(const Sampling& sampling, const Selector& row) {
    return {.sums = {{sampling.work.totals->n_candidates, row.total(kPlain), row.total(kTempered)}},
            .last = ~Word{0}};
}

// For a filter by distance from the largest logit: sets `logit` to the smallest one that it keeps.
// Returns false for other filters.
__device__ bool bounds_logits(const Filter& filter, const Row& row, float& logit) {
    if (filter.kind != FilterKind::kMinP) {
        return false;
    }
    const double lowest = row.largest + filter.parameter;
    logit = static_cast<float>(lowest);
    if (static_cast<double>(logit) < lowest) {
        logit = nextafterf(logit, INFINITY);
    }
    return true;
}

// Where the prefix of another filter ends; a goal of 0 keeps all.
__device__ Goal goal_of(const Filter& filter, const Prefix& given) {
    if (filter.kind == FilterKind::kTopK) {
        const Word most = given.sums.of[kCount];
        return {kCount, filter.parameter < static_cast<double>(most)
                            ? static_cast<Word>(filter.parameter)
                            : Word{0}};
    }
    const int column = column_of(filter.is_tempered);
    const Word mass = given.sums.at(column);
    const auto wanted = static_cast<Word>(ceil(filter.parameter * static_cast<double>(mass)));
    return {column, filter.parameter < 1.0 ? min(max(wanted, Word{1}), mass) : Word{0}};
}

// The first token at which the cumulated mass exceeds the share u; equal is not enough.
__device__ Goal draw_from(const Sampling& sampling, const Prefix& given) {
    if (sampling.args.greedy) {
        return {kCount, 1};
    }
    const int column = column_of(sampling.is_tempered);
    const Word mass = given.sums.at(column);
    const auto passed = static_cast<Word>(sampling.args.u * static_cast<double>(mass));
    return {column, min(passed + 1, mass)};
}

// The buckets whose members are needed: `from` to `to`, and all up to `top`.
struct Needed {
    int from;
    int to;
    int top;

    __device__ bool has(int bucket) const {
        return bucket <= top || (from <= bucket && bucket <= to);
    }
};

// Prefixes only get shorter, so the members up to the end of the first prefix are enough.
__device__ Needed needed_of(const Sampling& sampling, const Selector& row) {
    const Prefix all = everything(sampling, row);
#pragma unroll 1
    for (int i = 0; i < sampling.args.n_filters; ++i) {
        const Filter& filter = sampling.args.filters[i];
        float logit;
        if (bounds_logits(filter, row.row(), logit)) {
            return {0, bucket_of(row.row(), logit), -1};
        } else if (const Goal goal = goal_of(filter, all); goal.value > 0) {
            return {0, row.bucket_at(goal), -1};
        }
    }
    const int bucket = row.bucket_at(draw_from(sampling, all));
    return {bucket, bucket, -1};
}

// How many of the most likely tokens to find: at least two, for the margin.
__device__ Goal top_of(const Sampling& sampling, const Selector& row) {
    return {kCount, min(static_cast<Word>(max(sampling.args.n_top, 2)), row.total(kCount))};
}

// Writes the keys of the chunk's tokens in needed buckets to the places of their buckets. A block
// does one global atomic operation per bucket, because many of its tokens may be in the same one.
__device__ void collect(Choosing& shared, const OwnLogits& own, const Selector& row,
                        const Needed& needed) {
    for (int b = threadIdx.x; b < kBuckets; b += kSampleThreads) {
        shared.places[b] = 0;
    }
    __syncthreads();
    int buckets[kTokensPerThread];
    uint32_t places[kTokensPerThread];
    Word keys[kTokensPerThread];
#pragma unroll
    for (int j = 0; j < kTokensPerThread; ++j) {
        const float logit = own.of[j];
        buckets[j] = -1;
        if (logit > -INFINITY && needed.has(bucket_of(row.row(), logit))) {
            buckets[j] = bucket_of(row.row(), logit);
            keys[j] = key_of(logit, static_cast<uint32_t>(own.id(j)));
            places[j] = atomicAdd(&shared.places[buckets[j]], 1u);
        }
    }
    __syncthreads();
    uint32_t* taken = row.places_taken();
    for (int b = threadIdx.x; b < kBuckets; b += kSampleThreads) {
        if (shared.places[b] > 0) {
            shared.places[b] = static_cast<uint32_t>(row.before_bucket(kCount, b)) +
                               atomicAdd(&taken[b], shared.places[b]);
        }
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kTokensPerThread; ++j) {
        if (buckets[j] >= 0) {
            row.members()[shared.places[buckets[j]] + places[j]] = keys[j];
        }
    }
}

// Finds the most likely tokens, in order.
__device__ void find_top(Choosing& shared, const Sampling& sampling, const Selector& row) {
    const Goal goal = top_of(sampling, row);
    const Word last = row.reach(goal).last;
    const auto end =
        static_cast<int64_t>(row.total_to(kCount, bucket_of(row.row(), logit_of(last))));
    if (threadIdx.x == 0) {
        shared.n_top = 0;
    }
    __syncthreads();
#pragma unroll 1
    for (int64_t i = threadIdx.x; i < end; i += kSampleThreads) {
        const Word key = __ldcg(row.members() + i);
        if (key <= last) {
            shared.unsorted[atomicAdd(&shared.n_top, 1u)] = key;
        }
    }
    __syncthreads();
    if (threadIdx.x < shared.n_top) {
        const Word key = shared.unsorted[threadIdx.x];
        int place = 0;
#pragma unroll 1
        for (uint32_t i = 0; i < shared.n_top; ++i) {
            place += shared.unsorted[i] < key ? 1 : 0;
        }
        shared.top[place] = key;
    }
    __syncthreads();
}

// The number of tokens before this one in descending order, which does not depend on what was
// collected.
__device__ int64_t rank_of(const Sampling& sampling, Word key) {
    int n_before = 0;
#pragma unroll 1
    for (int64_t id = threadIdx.x; id < sampling.args.vocab_size; id += kSampleThreads) {
        n_before += key_of(sampling.args.logits[id], static_cast<uint32_t>(id)) < key ? 1 : 0;
    }
    return sum_block(n_before);
}

struct Drawn {
    Prefix kept;
    bool is_filtered;  // a filter removed at least one token
    Prefix token;      // up to it
};

// Runs the filters, each on what the previous one left, then draws.
__device__ Drawn draw(const Sampling& sampling, const Selector& row) {
    Drawn drawn = {everything(sampling, row), false, {}};
#pragma unroll 1
    for (int i = 0;; ++i) {
        const bool is_draw = i == sampling.args.n_filters;
        Goal goal = {kCount, 0};
        Prefix prefix = drawn.kept;
        float logit;
        if (is_draw) {
            goal = draw_from(sampling, prefix);
        } else if (!bounds_logits(sampling.args.filters[i], row.row(), logit)) {
            goal = goal_of(sampling.args.filters[i], prefix);
        } else if (key_of(logit, kLastId) < prefix.last) {
            prefix = row.up_to(key_of(logit, kLastId), logit);
        }
        if (goal.value > 0) {
            prefix = row.reach(goal);
        }
        if (is_draw) {
            drawn.token = prefix;
            return drawn;
        }
        drawn.is_filtered |= prefix.sums.of[kCount] < drawn.kept.sums.of[kCount];
        drawn.kept = prefix;
    }
}

// The softmax of the raw logits.
struct Raw {
    float largest;
    Word mass;
    double moment;
};

__device__ Raw raw_of(const Sampling& sampling, const Selector& row) {
    double moment = 0.0;
#pragma unroll 1
    for (int i = threadIdx.x; i < sampling.n_chunks; i += kSampleThreads) {
        moment += sampling.work.moments[i];
    }
    const Word mass = row.total(kPlain);
    return {row.row().largest, mass, sum_block(moment)};
}

__device__ SampledToken token_of(const Sampling& sampling, const Prefix& kept, uint32_t id) {
    const float drawn = sampling.logits_of(kDrawnRow)[id];
    return {
        .id = static_cast<int32_t>(id),
        .raw = sampling.args.logits[id],
        .drawn = drawn,
        .is_kept = key_of(drawn, id) <= kept.last ? 1 : 0,
    };
}

__device__ void report(const Choosing& shared, const Sampling& sampling, const Selector& row,
                       const Raw& raw, const Drawn& drawn, int64_t rank) {
    SampleReport& out = *sampling.args.report;
    const auto i = static_cast<int>(threadIdx.x);
    const int n_top = min(sampling.args.n_top, static_cast<int>(shared.n_top));
    const auto id = static_cast<uint32_t>(drawn.token.last);
    // One thread for each of the most likely tokens, and the next one for the drawn token.
    if (i <= n_top) {
        (i < n_top ? out.top[i] : out.token) =
            token_of(sampling, drawn.kept, i < n_top ? static_cast<uint32_t>(shared.top[i]) : id);
    }
    if (i > 0) {
        return;
    }
    out.is_drawn = 1;
    out.is_filtered = drawn.is_filtered ? 1 : 0;
    out.n_top = n_top;
    out.raw_largest = raw.largest;
    out.raw_second = shared.n_top > 1 ? logit_of(shared.top[1]) : -INFINITY;
    out.drawn_largest = row.row().largest;
    out.rank = rank;
    out.raw_mass = raw.mass;
    out.raw_moment = raw.moment;
    out.drawn_mass = row.total(kPlain);
    out.kept_plain = drawn.kept.sums.of[kPlain];
    out.kept_mass = drawn.kept.sums.at(column_of(sampling.is_tempered));
    if (StepState* state = sampling.args.state; state != nullptr) {
        state->token_ids[0] = id;
        state->pos += 1;
        state->n_rows = 1;
    }
}

// Whether this block is the last one of the grid to get here.
__device__ bool is_last_block(Choosing& shared, const Sampling& sampling) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        const uint32_t n_before = atomicAdd(&sampling.work.totals->n_done, 1u);
        shared.is_last_block = n_before == gridDim.x * gridDim.y - 1;
    }
    __syncthreads();
    __threadfence();
    return shared.is_last_block;
}

// Copies the logits, because the next launch may overwrite them.
__device__ void put_aside(const Sampling& sampling) {
    const int64_t begin = int64_t{blockIdx.x} * kChunk;
    const int64_t end = min(begin + kChunk, sampling.args.vocab_size);
#pragma unroll 1
    for (int64_t id = begin + threadIdx.x; id < end; id += kSampleThreads) {
        sampling.work.adjusted[id] = sampling.args.logits[id];
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        sampling.args.report->is_drawn = 0;
    }
}

__global__ void __launch_bounds__(kSampleThreads, 1)
    choose_kernel(const __grid_constant__ Sampling sampling) {
    __shared__ Choosing shared;
    const SampleWork& work = sampling.work;
    const auto row_index = static_cast<int>(blockIdx.y);
    const int raw_index = sampling.raw_row();
    wait_for_previous_launch();
    allow_next_launch();
    if (work.rows[kDrawnRow].is_bad != 0 || work.rows[raw_index].is_bad != 0) {
        if (row_index == kDrawnRow) {
            put_aside(sampling);
        }
        return;
    }
    const OwnLogits own(sampling.logits_of(row_index), sampling.args.vocab_size);
    Selector row(shared.selection, sampling, row_index);
    Needed needed = {0, -1, -1};
    if (row_index == kDrawnRow) {
        needed = needed_of(sampling, row);
    }
    if (row_index == raw_index) {
        needed.top = row.bucket_at(top_of(sampling, row));
    }
    collect(shared, own, row, needed);
    if (!is_last_block(shared, sampling)) {
        return;
    }
    row.look_at(raw_index);
    find_top(shared, sampling, row);
    const Raw raw = raw_of(sampling, row);
    row.look_at(kDrawnRow);
    const Drawn drawn = draw(sampling, row);
    int64_t rank = static_cast<int64_t>(drawn.token.sums.of[kCount]) - 1;
    if (sampling.n_rows > 1) {
        const auto id = static_cast<uint32_t>(drawn.token.last);
        rank = rank_of(sampling, key_of(sampling.args.logits[id], id));
    }
    report(shared, sampling, row, raw, drawn, rank);
}

}  // namespace

cudaError_t choose(const Sampling& sampling, LaunchAt at) {
    return launch(choose_kernel, dim3(sampling.n_chunks, sampling.n_rows), dim3(kSampleThreads), 0,
                  at, sampling);
}

}  // namespace soliton::cuda
