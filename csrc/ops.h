// Every native op: its arguments as plain data, with shapes. Owns no code; knows no torch and no
// Python.
//
// The caller has checked dtypes, shapes and contiguity; kernels trust what stands here. V
// vocabulary, rows tokens.
#pragma once

#include <cstdint>

namespace soliton {

// Elements of x, weight, out and residual are float, or bfloat16 as uint16_t bit patterns.
struct RmsNormArgs {
    const void* x;       // (rows, dim)
    const void* weight;  // (dim,)
    void* out;           // (rows, dim), may be x
    int64_t rows;
    int64_t dim;
    float eps;
    bool is_bfloat16;
};

struct AddRmsNormArgs {
    void* residual;      // (rows, dim), receives residual + x
    const void* x;       // (rows, dim)
    const void* weight;  // (dim,)
    void* out;           // (rows, dim), the norm of the residual as stored
    int64_t rows;
    int64_t dim;
    float eps;
    bool is_bfloat16;
};

struct SampleArgs {
    const float* logits;  // (V,), left as they are
    float* work;          // (V,), receives the adjusted logits when there is an adjustment
    int64_t vocab_size;
    double temperature;  // 0 = greedy
    int64_t top_k;       // 0 = off
    double top_p;        // 1 = off
    double min_p;        // 0 = off
    double u;            // uniform in [0, 1)
    float repetition_penalty;
    const int32_t* repetition_ids;  // (n_repetition_ids,), unique
    int64_t n_repetition_ids;
    const int32_t* delta_ids;  // (n_deltas,), unique
    const float* deltas;       // (n_deltas,)
    int64_t n_deltas;
    int64_t n_top;
};

struct SampleOutput {
    int64_t token_id;  // with kBadId: the id that is none
    double p_raw;
    double p_sampled;
    double logprob_raw;
    int64_t n_top;             // how many of the following were written
    int32_t* top_ids;          // (n_top,) by raw logit, descending
    double* top_logprobs_raw;  // (n_top,)
    double* top_p_sampled;     // (n_top,)
};

enum Status : int {
    kOk = 0,
    kBadLogits = 1,    // NaN or +inf in the logits, or none is finite
    kBadAdjusted = 2,  // the same after penalties and biases
    kBadId = 3,        // an id of a penalty or bias outside the vocabulary
};

}  // namespace soliton
