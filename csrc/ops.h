// Every native op: its arguments as plain data, with shapes. Owns no code; knows no torch and no
// Python.
//
// The caller has checked dtypes, shapes and contiguity; kernels trust what stands here. V
// vocabulary, rows tokens.
#pragma once

#include <cstddef>
#include <cstdint>

namespace soliton {

// ---- The decoder's ops: appended to a tape, run by every thread of the pool at once. ----

struct Worker;  // pool.h

// What differs from one pass to the next, as one array of int64. engine/step.py writes it; abort
// may be written by another thread while ops run.
struct StepState {
    int64_t pos;     // of row 0
    int64_t n_rows;  // the rows that the ops work on
    int64_t abort;   // not 0: end before the next op
    int64_t reserved[5];
    __extension__ int64_t token_ids[];  // (n_rows,)
};

// How the weights of a matrix lie in memory: layout.h.
enum class Layout : int32_t { kF32, kBf16, kQ8, kQ4 };

// W (n_out, n_in) of y = W x, in panels.
struct Matrix {
    const void* panels;
    int64_t n_out;
    int64_t n_in;
    Layout layout;
};

// out = the rows of the table that the token ids name.
struct EmbedArgs {
    Matrix table;  // (V, dim)
    float* out;    // (rows, dim)
};

enum class Epilogue : int32_t {
    kNone,
    kSiluGate,  // of a matrix of gate and up panels: silu(gate) * up
};

// x = residual_in + branch, kept in residual_out; out = W rms_norm(x) + bias, then the epilogue.
struct NormLinearArgs {
    const float* residual_in;  // (rows, n_in)
    const float* branch;       // (rows, n_in) or null: nothing is added
    float* residual_out;       // (rows, n_in), may be residual_in only when branch is null
    const float* norm;         // (n_in,)
    float eps;
    Matrix matrix;
    const float* bias;  // (n_out,) or null
    float* out;         // (rows, n_out); with kSiluGate (rows, n_out / 2)
    Epilogue epilogue;
    void* scratch;  // shared by all threads, linear_scratch_bytes()
};

// out = W x + bias.
struct LinearArgs {
    const float* x;  // (rows, n_in)
    Matrix matrix;
    const float* bias;  // (n_out,) or null
    float* out;         // (rows, n_out)
    void* scratch;      // shared by all threads, linear_scratch_bytes()
};

enum class KvType : int32_t { kF32, kBf16, kInt8 };

// Norm per head and RoPE of q and k, K and V into the caches at pos and up, then causal attention.
struct AttentionArgs {
    const float* qkv;  // (rows, (n_heads + 2 n_kv_heads) head_dim)
    void* k_cache;     // n_kv_heads * padded(max_seq_len) * padded(head_dim) of kv, cpu/attention.h
    void* v_cache;     // the same
    float* k_scales;   // kInt8: (n_kv_heads, padded(max_seq_len)), otherwise null
    float* v_scales;   // the same
    KvType kv;
    int64_t n_heads;
    int64_t n_kv_heads;
    int64_t head_dim;
    int64_t max_seq_len;
    const float* q_norm;  // (head_dim,) or null: no norm
    const float* k_norm;  // the same
    float eps;
    const float* cos;  // (max_seq_len, rotary_half)
    const float* sin;  // the same
    int64_t rotary_half;
    int64_t window;  // keys that a query sees, itself included; 0: all
    float scale;
    float* scratch;  // shared by all threads, attention_scratch_floats()
    float* out;      // (rows, n_heads head_dim)
};

// For benchmarks: reads the words once.
struct ReadArgs {
    const uint64_t* words;  // (n_words,)
    int64_t n_words;
    int64_t piece_words;  // that a thread reads at a time
    uint64_t* sums;       // (pieces,), so that no reading can be left out
};

void embed(const EmbedArgs& args, const StepState& state, Worker& worker);
void norm_linear(const NormLinearArgs& args, const StepState& state, Worker& worker);
void linear(const LinearArgs& args, const StepState& state, Worker& worker);
void attention(const AttentionArgs& args, const StepState& state, Worker& worker);
void read_memory(const ReadArgs& args, const StepState& state, Worker& worker);

// How large the scratch of NormLinearArgs and LinearArgs must be for up to max_rows rows.
int64_t linear_scratch_bytes(int64_t n_in, int64_t max_rows);

// How large Worker::scratch must be for them.
int64_t linear_worker_bytes(int64_t n_in);

// How large AttentionArgs::scratch must be.
int64_t attention_scratch_floats(int64_t n_heads, int64_t head_dim, int64_t max_seq_len);

// ---- Ops that are called directly. ----

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
