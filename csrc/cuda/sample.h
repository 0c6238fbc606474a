// The sampler on a device: a row of logits in, one token with its probabilities out. Owns what a
// sampling is told and what it reports. Knows no Python.
//
// Bits: masses are added up as integers, so no sum depends on the order in which threads come.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "ops.h"

namespace soliton::cuda {

// A vocabulary may be no larger: sums of masses would not fit.
inline constexpr int64_t kLargestVocabulary = int64_t{1} << 20;

inline constexpr int kMostTop = 64;
inline constexpr int kMostFilters = 8;

enum class FilterKind : int32_t { kTopK, kTopP, kMinP };

// Keeps the most likely of what the filter before it left.
struct Filter {
    FilterKind kind;
    bool is_tempered;  // sees the probabilities that the temperature has changed
    // kTopK: how many, at least 1. kTopP: the share of the mass. kMinP: how far below the largest
    // logit the last one is kept, at most 0.
    double parameter;
};

// What happens to the logits before anything is drawn, in this order; ids are of the vocabulary.
struct Adjustments {
    // Tokens that were seen, the newest n_seen; of these the newest n_completion are penalized by
    // `frequency` for each occurrence and by `presence`, all are divided or multiplied by `factor`.
    const int32_t* seen;
    int64_t n_seen;
    int64_t n_completion;
    double factor;
    double frequency;
    double presence;
    const int32_t* bias_ids;  // (n_biases,), unique
    const float* bias_deltas;
    int64_t n_biases;
    const int32_t* mask;  // (ceil(V / 32),), bit i % 32 of word i / 32: token i is allowed; or null
    const int32_t* banned_ids;
    int64_t n_banned;

    bool any() const { return n_seen + n_biases + n_banned > 0 || mask != nullptr; }
};

// Masses are integers, in units of 2^-kMassBits of the most likely token's.
inline constexpr int kMassBits = 40;

// A token is no candidate from here down, in nats; engine/sampling/reference/pipeline.py has the
// same number.
inline constexpr double kLowestExponent = -700.0;

// What the numbers of engine/sampling/op.py's SampleResult are made of, by the host. `raw` are the
// logits as they came, `drawn` those that were drawn from, adjusted or not.
struct SampledToken {
    int32_t id;
    float raw;
    float drawn;
    int32_t is_kept;  // by the filters
};
struct SampleReport {
    int32_t is_drawn;     // 0: nothing can be drawn from these logits, and no other field holds
    int32_t is_filtered;  // the filters removed any
    int32_t n_top;
    float raw_largest;
    float raw_second;  // -inf if there is none
    float drawn_largest;
    int64_t rank;         // of the token among the raw logits
    uint64_t raw_mass;    // of all, without temperature
    double raw_moment;    // the sum of mass * (logit - largest), where the largest has a mass of 1
    uint64_t drawn_mass;  // of all, without temperature
    uint64_t kept_plain;  // of what the filters kept, without temperature
    uint64_t kept_mass;   // of what the filters kept, with temperature
    SampledToken token;
    SampledToken top[kMostTop];  // (n_top,), by raw logit
};

struct SampleArgs {
    const float* logits;  // (V,)
    int64_t vocab_size;
    Adjustments adjustments;
    bool greedy;  // no filter, and the token is the largest adjusted logit
    double u;     // in [0, 1)
    double rate;  // 1 / temperature
    Filter filters[kMostFilters];
    int32_t n_filters;
    int32_t n_top;         // up to kMostTop
    void* scratch;         // sample_scratch_bytes(V)
    SampleReport* report;  // memory of the host that the device can write
    StepState* state;      // the token is written there for the next pass, of one row; or null
};

// Three launches. When nothing can be drawn, the state stays as it is, and the logits are found at
// the beginning of the scratch, however soon the next pass overwrites them.
cudaError_t sample(const SampleArgs& args, cudaStream_t stream);

int64_t sample_scratch_bytes(int64_t vocab_size);

}  // namespace soliton::cuda
