// Which prefix of the descending order has this count or this mass? The sampler's filters, its draw
// and the search for the most likely tokens all ask this. One block answers it: from the sums of
// the buckets, then among the members of one bucket. All threads of the block call together.
//
// The members of a bucket are in any order; the answer does not depend on it. Loops are not
// unrolled, because the code runs once per token, and fetching it costs as much as running it.
#pragma once

#include "sample_block.cuh"

namespace soliton::cuda {

// Up to this many members are compared with each other; more are first divided into kFiner parts.
inline constexpr int kFew = 256;
inline constexpr int kFiner = 256;

// The first tokens of the descending order: those whose key is at most `last`.
struct Prefix {
    Sums sums;
    Word last;
};

// A prefix ends when the sum of a column reaches this value, which is at least 1 and at most the
// sum over all tokens.
struct Goal {
    int column;
    Word value;
};

// In shared memory.
struct Selection {
    Word to[kColumns][kBuckets];  // the sums of the buckets up to and including this one
    int bucket;

    // The members among which the goal is.
    Word least;  // key
    Word most;
    int count;
    Sums before;
    Word finer[kColumns][kFiner];
    int n_few;
    Word few[kFew];
    Sums few_sums[kFew];
    Prefix answer;

    __device__ Word before_bucket(int column, int b) const { return b > 0 ? to[column][b - 1] : 0; }
    __device__ Word total(int column) const { return to[column][kBuckets - 1]; }
};

// A row, as one block works on it.
class Selector {
  public:
    __device__ Selector(Selection& shared, const Sampling& sampling, int row_index)
        : shared_(shared), sampling_(sampling) {
        scan(row_index);
    }

    // Switches to this row, unless it is the current one.
    __device__ void look_at(int row_index) {
        if (row_index != row_index_) {
            scan(row_index);
        }
    }

    __device__ const Row& row() const { return row_; }
    __device__ Word total(int column) const { return shared_.total(column); }
    __device__ Word total_to(int column, int b) const { return shared_.to[column][b]; }
    __device__ Word before_bucket(int column, int b) const {
        return shared_.before_bucket(column, b);
    }

    // The collected keys of the tokens, by bucket. Read them bypassing L1, because other blocks
    // write them while this one runs.
    __device__ Word* members() const {
        return sampling_.work.members + row_index_ * sampling_.args.vocab_size;
    }

    // The bucket in which the goal is reached.
    __device__ int bucket_at(const Goal& goal) const {
        for (int b = threadIdx.x; b < kBuckets; b += kSampleThreads) {
            if (shared_.before_bucket(goal.column, b) < goal.value &&
                goal.value <= shared_.to[goal.column][b]) {
                shared_.bucket = b;
            }
        }
        __syncthreads();
        const int bucket = shared_.bucket;
        __syncthreads();
        return bucket;
    }

    // The shortest prefix that reaches the goal. The members of its last bucket must have been
    // collected.
    __device__ Prefix reach(const Goal& goal) const {
        const int bucket = bucket_at(goal);
        const auto begin = static_cast<int64_t>(before_bucket(kCount, bucket));
        const int64_t n = static_cast<int64_t>(shared_.to[kCount][bucket]) - begin;
        const Word* keys = members() + begin;
        Sums before;
        for (int column = 0; column < kColumns; ++column) {
            before.of[column] = before_bucket(column, bucket);
        }
        Word least = 0;
        Word most = ~Word{0};
        int64_t count = n;
        while (count > kFew) {
            narrow(goal, keys, n, least, most, before, count);
        }
        return walk(goal, keys, n, least, most, before);
    }

    // The prefix of the tokens whose key is at most `last`; `logit` is the key's logit. The members
    // of its bucket must have been collected.
    __device__ Prefix up_to(Word last, float logit) const {
        const int bucket = bucket_of(row_, logit);
        const auto begin = static_cast<int64_t>(before_bucket(kCount, bucket));
        const auto end = static_cast<int64_t>(shared_.to[kCount][bucket]);
        Sums sums = {};
#pragma unroll 1
        for (int64_t i = begin + threadIdx.x; i < end; i += kSampleThreads) {
            const Word key = __ldcg(members() + i);
            if (key <= last) {
                add(sums, sums_of(key));
            }
        }
        Prefix prefix = {.sums = {}, .last = last};
        for (int column = 0; column < kColumns; ++column) {
            prefix.sums.of[column] = before_bucket(column, bucket) + sum_block(sums.of[column]);
        }
        return prefix;
    }

    // How many places of each bucket's members are taken.
    __device__ uint32_t* places_taken() const {
        return sampling_.work.totals->histograms[row_index_].taken;
    }

  private:
    __device__ void scan(int row_index) {
        row_index_ = row_index;
        row_ = sampling_.work.rows[row_index];
        const Histogram& histogram = sampling_.work.totals->histograms[row_index];
        static_assert(kBuckets == 2 * kSampleThreads);
        const int b = 2 * static_cast<int>(threadIdx.x);
#pragma unroll 1
        for (int column = 0; column < kColumns; ++column) {
            const Word first = histogram.sums[column][b];
            const Word both = first + histogram.sums[column][b + 1];
            const Word to = running_sum(both);
            shared_.to[column][b] = to - both + first;
            shared_.to[column][b + 1] = to;
        }
        __syncthreads();
    }

    __device__ Sums sums_of(Word key) const {
        const double distance = distance_of(row_, logit_of(key));
        const bool is_tempered = sampling_.is_tempered && row_index_ == kDrawnRow;
        return {{1, mass_of(distance),
                 is_tempered ? mass_of(distance * sampling_.args.rate) : Word{0}}};
    }

    __device__ static void add(Sums& sums, const Sums& others) {
        for (int column = 0; column < kColumns; ++column) {
            sums.of[column] += others.of[column];
        }
    }

    // Divides the range from `least` to `most`, in which `count` of the n keys are, into equal
    // parts. The keys of the part that holds the goal remain; those of the parts before it are
    // added to `before`.
    __device__ void narrow(const Goal& goal, const Word* keys, int64_t n, Word& least, Word& most,
                           Sums& before, int64_t& count) const {
        Word smallest = ~Word{0};
        Word largest = 0;
#pragma unroll 1
        for (int64_t i = threadIdx.x; i < n; i += kSampleThreads) {
            const Word key = __ldcg(keys + i);
            if (least <= key && key <= most) {
                smallest = min(smallest, key);
                largest = max(largest, key);
            }
        }
        smallest = combine_block(smallest, [](Word a, Word b) { return min(a, b); });
        largest = combine_block(largest, [](Word a, Word b) { return max(a, b); });
        // All keys differ, so each time at least the smallest and the largest are separated.
        constexpr int kFinerBits = 8;
        static_assert(kFiner == 1 << kFinerBits);
        const int bits = 64 - __clzll(static_cast<long long>(largest - smallest));
        const int shift = max(bits - kFinerBits, 0);
        for (int i = threadIdx.x; i < kColumns * kFiner; i += kSampleThreads) {
            shared_.finer[i / kFiner][i % kFiner] = 0;
        }
        __syncthreads();
#pragma unroll 1
        for (int64_t i = threadIdx.x; i < n; i += kSampleThreads) {
            const Word key = __ldcg(keys + i);
            if (smallest <= key && key <= largest) {
                const Sums sums = sums_of(key);
                for (int column = 0; column < kColumns; ++column) {
                    atomicAdd(&shared_.finer[column][(key - smallest) >> shift], sums.of[column]);
                }
            }
        }
        __syncthreads();
        const int part = min(static_cast<int>(threadIdx.x), kFiner - 1);
        Sums here;
        Sums up_to_here;
        for (int column = 0; column < kColumns; ++column) {
            here.of[column] =
                static_cast<int>(threadIdx.x) < kFiner ? shared_.finer[column][part] : Word{0};
            up_to_here.of[column] = before.of[column] + running_sum(here.of[column]);
        }
        const Word to = up_to_here.at(goal.column);
        if (to - here.at(goal.column) < goal.value && goal.value <= to) {
            for (int column = 0; column < kColumns; ++column) {
                shared_.before.of[column] = up_to_here.of[column] - here.of[column];
            }
            shared_.count = static_cast<int>(here.of[kCount]);
            shared_.least = smallest + (static_cast<Word>(part) << shift);
            shared_.most = min(largest, shared_.least + ((Word{1} << shift) - 1));
        }
        __syncthreads();
        before = shared_.before;
        count = shared_.count;
        least = shared_.least;
        most = shared_.most;
        __syncthreads();
    }

    // Adds the keys from `least` to `most`, at most kFew of the n, to `before` in their order until
    // the goal is reached. Each key knows the count and the masses that come before it.
    __device__ Prefix walk(const Goal& goal, const Word* keys, int64_t n, Word least, Word most,
                           const Sums& before) const {
        if (threadIdx.x == 0) {
            shared_.n_few = 0;
        }
        __syncthreads();
#pragma unroll 1
        for (int64_t i = threadIdx.x; i < n; i += kSampleThreads) {
            const Word key = __ldcg(keys + i);
            if (least <= key && key <= most) {
                const int place = atomicAdd(&shared_.n_few, 1);
                shared_.few[place] = key;
                shared_.few_sums[place] = sums_of(key);
            }
        }
        __syncthreads();
        const int n_few = shared_.n_few;
        if (static_cast<int>(threadIdx.x) < n_few) {
            const Word key = shared_.few[threadIdx.x];
            Sums sums = before;
#pragma unroll 1
            for (int i = 0; i < n_few; ++i) {
                if (shared_.few[i] < key) {
                    add(sums, shared_.few_sums[i]);
                }
            }
            const Word short_of = sums.at(goal.column);
            add(sums, shared_.few_sums[threadIdx.x]);
            if (short_of < goal.value && goal.value <= sums.at(goal.column)) {
                shared_.answer = {.sums = sums, .last = key};
            }
        }
        __syncthreads();
        return shared_.answer;
    }

    Selection& shared_;
    const Sampling& sampling_;
    int row_index_;
    Row row_;
};

}  // namespace soliton::cuda
