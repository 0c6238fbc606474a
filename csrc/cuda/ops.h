// Every op on a CUDA device: its arguments as plain data, with shapes. Owns no code.
//
// The caller has checked shapes and alignment; kernels trust these structs. All pointers are to
// device memory, aligned to 16 bytes. In the shapes, V is the vocabulary size and `rows` the number
// of tokens in the pass, 1 to kMaxRows. Activations are float32.
//
// A row's result does not depend on the number of rows in the pass: the shapes alone decide the
// order of every sum. So the text is the same with and without drafts.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "knobs.h"

namespace soliton::cuda {

inline constexpr int kMaxRows = 16;

// What differs from one pass to the next, in device memory, as one array of int64. The host or the
// sampler writes it between passes; it has the same layout as StepState in ../ops.h.
struct StepState {
    int64_t pos;     // of row 0
    int64_t n_rows;  // the rows that the ops work on
    int64_t reserved[6];
    int64_t token_ids[kMaxRows];  // (n_rows,)
};

// What the host must know before a launch: the number of rows, and a bound on the positions that
// attention reads, pos + n_rows <= max_length. Each combination has its own graph.
struct Pass {
    const StepState* state;
    int n_rows;
    int64_t max_length;
    cudaStream_t stream;
    Knobs knobs = {};
    // The launch may begin before the previous one has ended: tape.h says for which that holds.
    bool overlaps = false;
};

// How the weights of a matrix lie in memory: layout.h. Only experts are in kMxfp4.
enum class Layout : int32_t { kBf16, kQ8, kQ4, kMxfp4 };

// W (n_out, n_in) of y = W x.
struct Matrix {
    const void* weights;
    int64_t n_out;
    int64_t n_in;
    Layout layout;
};

// out = scale * the rows of the table that the token ids name.
struct EmbedArgs {
    Matrix table;  // (V, dim)
    float* out;    // (rows, dim)
    float scale = 1.0f;
};

// out = factor * (residual + scale * rms_norm(x)), each part of `width` columns by itself.
struct AddNormArgs {
    const float* x;     // (rows, dim)
    const float* norm;  // (width,)
    float eps;
    const float* residual;  // (rows, dim) or null: add nothing
    float scale;
    const float* factor;  // (1,) or null: 1
    float* out;           // (rows, dim); may be x or residual
    int64_t dim;          // a multiple of width
    int64_t width;
};

// What becomes of a product y; ../epilogue.h has the formulas.
enum class Epilogue : int32_t {
    kNone,
    // Of a matrix of gate, then up rows: the function of the gate, times up.
    kSiluGate,
    kGeluGate,
    kGeluTanhGate,
    kClampedGate,
    // Of every row.
    kGelu,
    kGeluTanh,
    kRelu2,
    kSoftcap,
};

__host__ __device__ constexpr bool is_gated(Epilogue epilogue) {
    return epilogue >= Epilogue::kSiluGate && epilogue <= Epilogue::kClampedGate;
}

// out = the epilogue of scale * (W rms_norm(residual) + bias).
struct NormLinearArgs {
    const float* residual;  // (rows, n_in)
    const float* norm;      // (n_in,) or null: no norm
    float eps;
    Matrix matrix;
    const float* bias;  // (n_out,) or null
    float* out;         // (rows, n_out); gated: (rows, n_out / 2)
    Epilogue epilogue;
    float softcap = 0.0f;  // of kSoftcap
    float scale = 1.0f;    // 1 if it is gated
};

// out = residual + scale * (W x + bias).
struct LinearArgs {
    const float* x;  // (rows, n_in)
    Matrix matrix;
    const float* bias;      // (n_out,) or null
    const float* residual;  // (rows, n_out) or null: add nothing; not out
    float* out;             // (rows, n_out)
    float scale = 1.0f;
};

// Memory that a later op reads and none writes, such as weights.
struct Constants {
    const void* begin;  // aligned to 16 bytes
    int64_t n_bytes;    // a multiple of 16
};

enum class KvType : int32_t { kBf16, kInt8 };

// Norm per head and RoPE of q and k, K and V into the caches from pos on, then causal attention. A
// pass of this op alone may have more than kMaxRows rows.
struct AttentionArgs {
    const float* qkv;  // (rows, (n_heads + 2 n_kv_heads) head_dim)
    void* k_cache;     // (n_kv_heads, max_seq_len, padded_head_dim) of kv: attention.h
    void* v_cache;     // the same
    float* k_scales;   // kInt8: (n_kv_heads, max_seq_len), otherwise null
    float* v_scales;   // the same
    KvType kv;
    int64_t n_heads;
    int64_t n_kv_heads;
    int64_t head_dim;
    int64_t max_seq_len;  // of a cache, a multiple of 4
    const float* q_norm;  // (head_dim,) or null: no norm
    const float* k_norm;  // the same
    float eps;
    const float* cos;  // (max_seq_len, rotary_half), or fewer positions
    const float* sin;  // the same
    int64_t rotary_half;
    int64_t window;  // keys that a query sees, including its own; 0: all
    float scale;
    float softcap;       // a score becomes softcap * tanh(score / softcap); 0: it stays
    const float* sinks;  // (n_heads,): one more score in each softmax, without a value; or null
    void* scratch;       // attention_scratch_bytes(), zeros before the first pass
    float* out;          // (rows, n_heads head_dim)
    // What the next two ops read first, so that the memory is not idle while this one computes.
    Constants next[2];
};

// Each returns the launch's error. They may be captured in a graph.
cudaError_t embed(const EmbedArgs& args, const Pass& pass);
cudaError_t norm_linear(const NormLinearArgs& args, const Pass& pass);
cudaError_t linear(const LinearArgs& args, const Pass& pass);
cudaError_t attention(const AttentionArgs& args, const Pass& pass);
cudaError_t add_norm(const AddNormArgs& args, const Pass& pass);  // any number of rows

int64_t attention_scratch_bytes(int64_t n_heads, int64_t head_dim, int64_t max_seq_len);

}  // namespace soliton::cuda
