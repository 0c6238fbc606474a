// The sampler on a device: a row of logits in, one token with its probabilities out. Owns its
// arguments and its report. Knows no Python.
//
// Masses are added up as integers, so no sum depends on the order in which threads arrive.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "ops.h"

namespace soliton::cuda {

// With a larger vocabulary, sums of masses would overflow.
inline constexpr int64_t kLargestVocabulary = int64_t{1} << 20;

inline constexpr int kMostTop = 64;
inline constexpr int kMostFilters = 8;

enum class FilterKind : int32_t { kTopK, kTopP, kMinP };

// Keeps the most likely of the tokens that the previous filter left.
struct Filter {
    FilterKind kind;
    bool is_tempered;  // works on probabilities with temperature
    // kTopK: how many, at least 1. kTopP: the share of the mass. kMinP: the smallest logit that is
    // kept, relative to the largest, at most 0.
    double parameter;
};

// What happens to the logits before the draw, in this order. All ids must be in the vocabulary.
struct Adjustments {
    // The newest n_seen tokens of the context. The logits of all of them are divided or multiplied
    // by `factor`. Those of the newest n_completion also lose `frequency` for each occurrence, and
    // `presence` once.
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

// A token with an exponent at or below this, in nats, is not a candidate;
// engine/sampling/reference/pipeline.py has the same number.
inline constexpr double kLowestExponent = -700.0;

// The host computes the numbers of engine/sampling/request.py's SampleResult from these. `raw` are
// the unmodified logits, `drawn` the ones that the draw used, adjusted or not.
struct SampledToken {
    int32_t id;
    float raw;
    float drawn;
    int32_t is_kept;  // by the filters
};
struct SampleReport {
    int32_t is_drawn;     // 0: nothing can be drawn from these logits, and no other field is valid
    int32_t is_filtered;  // the filters removed at least one token
    int32_t n_top;
    float raw_largest;
    float raw_second;  // -inf if there is none
    float drawn_largest;
    int64_t rank;         // of the token, by raw logit
    uint64_t raw_mass;    // of all tokens, without temperature
    double raw_moment;    // the sum of mass * (logit - largest), where the largest has a mass of 1
    uint64_t drawn_mass;  // of all tokens, without temperature
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
    SampleReport* report;  // host memory that the device can write
    StepState* state;      // receives the token for the next pass, of one row; or null
};

// Three launches. If nothing can be drawn, the state does not change, and a copy of the logits is
// at the beginning of the scratch, even if the next pass overwrites the logits.
cudaError_t sample(const SampleArgs& args, cudaStream_t stream, const Knobs& knobs = {});

int64_t sample_scratch_bytes(int64_t vocab_size);

}  // namespace soliton::cuda
