// Every native op: its arguments as plain data, with shapes. Owns no code; knows no torch and no
// Python.
//
// The caller has checked dtypes, shapes and contiguity; kernels trust these structs. In the shapes,
// V is the vocabulary size and `rows` the number of tokens in the pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include "epilogue.h"

namespace soliton {

// ---- The decoder's ops: appended to a tape, run by every thread of the pool at once. ----

class Readings;  // fetcher.h
struct Worker;   // pool.h

// What differs from one pass to the next, as one array of int64. engine/device/step.py writes it;
// another thread may write abort while ops run.
struct StepState {
    int64_t pos;     // of row 0
    int64_t n_rows;  // the rows that the ops work on
    int64_t abort;   // not 0: skip the chunks that have not begun
    int64_t reserved[5];
    __extension__ int64_t token_ids[];  // (n_rows,)
};

// How the weights of a matrix lie in memory: layout.h.
enum class Layout : int32_t {
    kF32,
    kBf16,
    kQ8,
    kQ6,
    kQ5,
    kQ4,
    // Those of the GGUF types of the same names.
    kQ4_0,
    kQ5_0,
    kQ2_K,
    kQ4_K,
    kQ5_K,
    kQ6_K,
    kIq4Nl,
    kIq4Xs,
    kMxfp4,
};

// W (n_out, n_in) of y = W x, in panels.
struct Matrix {
    const void* panels;
    int64_t n_out;
    int64_t n_in;
    Layout layout;
    bool is_woven;
    bool is_fetched;  // ahead of the product of one row: see layout.h
};

inline constexpr int64_t kMostSections = 4;

// Matrices (n_out, n_in) one below the other, multiplied as one: a matrix of parts in several
// layouts has a section for each layout. All have the same n_in.
struct Stack {
    Matrix sections[kMostSections];
    int64_t n_sections;  // at least 1
};

// out = scale times the rows of the table that the token ids name, plus those of the positions.
struct EmbedArgs {
    Matrix table;  // (V, dim)
    float scale = 1.0f;
    const float* positions = nullptr;  // (max_seq_len, dim) or null
    float* out = nullptr;              // (rows, dim)
};

// A norm of rows: x / sqrt(mean of x^2 + eps) * weight + bias. If it is centered (LayerNorm), the
// mean of x is taken from x first.
struct Norm {
    const float* weight;  // (n,) or null: x stays as it is
    const float* bias;    // (n,) or null
    float eps;
    bool is_centered;
};

// out = the epilogue of scale * (W norm(residual) + bias).
struct NormLinearArgs {
    const float* residual;  // (rows, n_in)
    Norm norm;
    Stack matrix;       // gated: one section in which gate and up take turns, or these two
    const float* bias;  // (n_out,) or null
    float* out;         // (rows, n_out); gated: (rows, n_out / 2)
    Epilogue epilogue;
    float scale = 1.0f;       // 1 if it is gated
    float softcap = 0.0f;     // of kSoftcap
    Xielu xielu = {};         // of kXielu
    void* scratch = nullptr;  // shared by all threads, linear_scratch_bytes()
};

// out = residual + scale * (W x + bias).
struct LinearArgs {
    const float* x;  // (rows, n_in)
    Stack matrix;
    const float* bias;      // (n_out,) or null
    const float* residual;  // (rows, n_out) or null: add nothing; not out
    float scale = 1.0f;
    float* out = nullptr;     // (rows, n_out)
    void* scratch = nullptr;  // shared by all threads, linear_scratch_bytes()
};

// out = factor * (residual + scale * norm(x)). A row has one part or several, each with a norm of
// its own over the same weights.
struct AddNormArgs {
    const float* x;         // (rows, n_parts dim)
    Norm norm;              // of dim numbers
    const float* residual;  // (rows, n_parts dim) or null: add nothing
    float scale;
    const float* factor;  // (1,) or null: 1
    float* out;           // (rows, n_parts dim); may be x or the residual
    int64_t dim;
    int64_t n_parts;
};

// x *= columns of another array.
struct TimesArgs {
    float* x;             // (rows, dim)
    const float* others;  // (rows, pitch), from the first of the columns on
    int64_t dim;
    int64_t pitch;
};

// Prepares queries and keys in place, before attention, in models for which its own norm and
// rotation do not do: norm, then rotation and another norm, then a factor of the queries.
struct HeadsArgs {
    float* qkv;  // (rows, (n_heads + 2 n_kv_heads) head_dim)
    int64_t n_heads;
    int64_t n_kv_heads;
    int64_t head_dim;
    Norm q_norm;       // its weights are (n_heads head_dim,)
    Norm k_norm;       // (n_kv_heads head_dim,)
    Norm v_norm;       // the same; of each head
    bool has_keys;     // and values; otherwise qkv is (rows, n_heads head_dim)
    bool over_all;     // one norm of all heads; otherwise one of each
    const float* cos;  // (max_seq_len, rotary_half) or null: no rotation. It comes before the norm.
    const float* sin;
    int64_t rotary_half;
    const float* q_scales;  // (max_seq_len,) or null: what queries are multiplied by
};

enum class KvType : int32_t { kF32, kBf16, kInt8, kInt4 };

// Norm per head and RoPE of q and k, K and V into the caches from pos on, then causal attention.
struct AttentionArgs {
    const float* qkv;  // (rows, (n_heads + 2 n_kv_heads) head_dim)
    void*
        k_cache;  // n_kv_heads * padded(max_seq_len) * padded(head_dim) of k_type, cpu/attention.h
    void* v_cache;  // the same of v_type
    // kInt8: floats (n_kv_heads, padded(max_seq_len)). kInt4: pairs of bfloat16 (n_kv_heads,
    // scale_pairs(head_dim), padded(max_seq_len)). Otherwise null.
    void* k_scales;
    void* v_scales;  // the same
    KvType k_type;
    KvType v_type;
    int64_t n_heads;
    int64_t n_kv_heads;
    int64_t head_dim;
    // Positions that the caches hold. With a window they may be fewer than the sequence has: a
    // multiple of 256, and at least window + rows of a pass + 256. Position p then lies at
    // p mod max_seq_len.
    int64_t max_seq_len;
    const float* q_norm;  // (head_dim,) or null: no norm
    const float* k_norm;  // the same
    float eps;
    const float* cos;  // (positions of the sequence, rotary_half)
    const float* sin;  // the same
    int64_t rotary_half;
    int64_t window;  // keys that a query sees, including its own; 0: all
    float scale;
    float softcap;  // scores become softcap * tanh(score / softcap); 0: they stay
    // (n_heads,) or null: a score that each softmax has besides those of the keys, without a value
    const float* sinks;
    // What keys of kInt4 have in common, (n_kv_heads, 3, head_dim): what is taken from the first
    // one, what is taken from others as it is at the start of their chunk, and what they are
    // divided by (cpu/attention_common.h); or null
    const float* common_keys;
    // Whether qkv has keys and values. Otherwise it is (rows, n_heads head_dim), and the caches
    // already hold those of another layer.
    bool stores;
    float* scratch;  // shared by all threads, attention_scratch_floats()
    float* out;      // (rows, n_heads head_dim)
};

// Of a row of AttentionArgs::qkv.
[[gnu::always_inline]] inline int64_t qkv_width(const AttentionArgs& args) {
    return (args.n_heads + (args.stores ? 2 * args.n_kv_heads : 0)) * args.head_dim;
}

// Which branch a row belongs to, and its position.
struct BranchPlace {
    int64_t branch;
    int64_t pos;
};

// Attention for rows of which each belongs to another branch of one sequence. The caches hold what
// all branches share: the positions before the fork. Those from the fork on are a branch's own;
// they lie in its tail, as the caches would hold them, from the last multiple of 16 on. With a
// window the caches are afterwards what they were before, whatever a branch has put into them.
struct BranchAttentionArgs {
    AttentionArgs attention;  // without a window, positions from the fork on are overwritten
    const int64_t* fork;      // (1,)
    const BranchPlace* rows;  // (rows,), each of another branch
    void* k_tails;            // (branches, n_kv_heads, tail_len, padded(head_dim)) of k_type
    void* v_tails;            // the same of v_type
    void* k_tail_scales;      // as k_scales, of (branches, n_kv_heads) heads and tail_len positions
    void* v_tail_scales;      // the same
    int64_t tail_len;         // a multiple of 16
};

// What the numbers of a router say of its experts.
enum class Scoring : int32_t {
    kSoftmax,
    kSigmoid,
    kChosenSoftmax,  // the softmax of those that are chosen
    // Of each chosen one in turn: the softmax of those that are left and close to it. An expert is
    // close to the best number m if (m - number) / max(|number|, m) <= spread.
    kSparseMixer,
};

// Which experts a row goes through, and how much each of them counts.
struct Routing {
    int64_t n_experts;
    int64_t n_used;  // of each row, the best ones
    Scoring scoring;
    const float* selection_bias;  // (n_experts,) or null: added to scores for the choice alone
    const float* expert_scales;   // (n_experts,) or null: multiply the weights in the end
    // Equal groups of experts, of which the best ones take part: a group is as good as the sum of
    // its `group_best` best experts.
    int64_t n_groups;
    int64_t n_groups_used;
    int64_t group_best;
    bool is_renormalized;  // weights add up to `scale`; otherwise they are scores times it
    float scale;
    float spread;  // of kSparseMixer
};

// Feed-forward parts of one shape: those that the router chooses from, or one for all rows. The
// matrices are those of each of them, without their panels.
struct ExpertBank {
    Matrix gate;  // gate and up, which take turns, or gate alone; or up, if there are no gates
    Matrix up;    // in another layout than gate; without rows if gate has them
    Matrix down;
    const void* const* gates;   // (n,): panels
    const void* const* ups;     // (n,), or null
    const void* const* downs;   // (n,)
    const float* gate_up_bias;  // (n, 2 hidden), without gates (n, hidden), or null
    const float* down_bias;     // (n, dim) or null
    int64_t hidden;             // 0: there are none
};

// out = residual + scale * (the weighted sum of the chosen experts, plus what all rows go through).
struct ExpertsArgs {
    const float* x;       // (rows, dim)
    Norm norm;            // of x
    const float* router;  // (rows, router_width): numbers of the experts, then of the shared gate
    int64_t router_width;
    Routing routing;
    ExpertBank routed;
    ExpertBank shared;
    bool has_shared_gate;   // what is shared is multiplied by the sigmoid of its number
    Epilogue epilogue;      // a gated one, or that of parts without gates
    const float* residual;  // (rows, dim) or null: add nothing; not out
    float scale;
    float* out;  // (rows, dim); may be x
    int64_t dim;
    int64_t max_rows;
    void* scratch;  // shared by all threads, experts_scratch_bytes()
};

// For benchmarks: reads the words once.
struct ReadArgs {
    const uint64_t* words;  // (n_words,)
    int64_t n_words;
    int64_t piece_words;  // read by one thread at a time
    uint64_t* sums;       // (pieces,), so that the compiler cannot drop a read
};

void embed(const EmbedArgs& args, const StepState& state, Worker& worker);
void norm_linear(const NormLinearArgs& args, const StepState& state, Worker& worker);
void linear(const LinearArgs& args, const StepState& state, Worker& worker);
// Give `readings` the weights that a thread reads.
void expect(const NormLinearArgs& args, const StepState& state, const Worker& worker,
            Readings& readings);
void expect(const LinearArgs& args, const StepState& state, const Worker& worker,
            Readings& readings);
void add_norm(const AddNormArgs& args, const StepState& state, Worker& worker);
void times(const TimesArgs& args, const StepState& state, Worker& worker);
void heads(const HeadsArgs& args, const StepState& state, Worker& worker);
void attention(const AttentionArgs& args, const StepState& state, Worker& worker);
void branch_attention(const BranchAttentionArgs& args, const StepState& state, Worker& worker);
void experts(const ExpertsArgs& args, const StepState& state, Worker& worker);
void read_memory(const ReadArgs& args, const StepState& state, Worker& worker);

// How large the scratch of NormLinearArgs and LinearArgs must be for up to max_rows rows.
int64_t linear_scratch_bytes(const Stack& matrix, int64_t max_rows);

// How large Worker::scratch must be for these two ops.
int64_t linear_worker_bytes(const Stack& matrix);

// How large Worker::scratch must be for AddNormArgs.
int64_t add_norm_worker_bytes(int64_t dim);

// How large ExpertsArgs::scratch must be, and Worker::scratch for that op.
int64_t experts_scratch_bytes(const ExpertsArgs& args);
int64_t experts_worker_bytes(const ExpertsArgs& args);

// How large AttentionArgs::scratch must be.
int64_t attention_scratch_floats(int64_t n_heads, int64_t head_dim, int64_t max_seq_len);

// ---- Ops that are called directly. ----

// The codes of engine/sampling/request.py's Stage: adjustments of the logits, which only a trace
// names, then stages with their parameters.
enum class SampleStage : int32_t {
    kPenalties = 1,
    kBias = 2,
    kDry = 3,
    kMask = 4,
    kBanned = 5,

    kSmoothing = 16,           // factor
    kTemperature = 17,         // temperature
    kTopNSigma = 18,           // n
    kTopK = 19,                // k
    kTopP = 20,                // p
    kTopA = 21,                // a
    kMinP = 22,                // share of the largest
    kTfs = 23,                 // z
    kTypical = 24,             // mass
    kMirostat = 25,            // none: SampleArgs::mirostat_mu
    kDynamicTemperature = 26,  // lowest, highest, exponent
    kXtc = 27,                 // probability, threshold
};

inline constexpr int kStageParameters = 3;

// What all tokens of a request have in common. The references
// engine/sampling/reference/adjustments.py and stages.py say what the numbers mean. A set of tokens
// is a bit mask in int32 words, (V / 32, rounded up), lowest bit first.
struct SampleSettings {
    int64_t vocab_size;
    bool greedy;
    bool want_trace;
    int64_t n_top;
    int64_t n_prompt;  // tokens of the context; the rest is the completion

    double repetition_penalty;  // 1 = off
    double frequency_penalty;   // 0 = off
    double presence_penalty;    // 0 = off
    int64_t repetition_range;   // -1 = all
    int64_t repetition_decay;
    const int32_t* bias_ids;   // (n_biases,), unique
    const float* bias_deltas;  // (n_biases,)
    int64_t n_biases;
    double dry_multiplier;  // 0 = off
    double dry_base;
    int64_t dry_allowed_length;
    int64_t dry_range;  // 0 = all
    int64_t dry_max_ngram;
    const int32_t* dry_breakers;  // a set, or null

    const int32_t* stages;     // (n_stages,), codes of SampleStage
    const double* parameters;  // (n_stages, kStageParameters)
    int64_t n_stages;
    const int32_t* xtc_protected;  // a set, or null
    double skew;
};

// What differs from one token to the next.
struct SampleArgs {
    const float* logits;     // (V,), not modified
    float* work;             // (V,), receives the adjusted logits when there is an adjustment
    double u;                // uniform in [0, 1)
    double u_xtc;            // the same
    const int32_t* context;  // (n_context,)
    int64_t n_context;
    const int32_t* mask;        // a set, or null: all allowed
    const int32_t* banned_ids;  // (n_banned,)
    int64_t n_banned;
    double mirostat_mu;
};

struct SampleTraceStep {
    SampleStage stage;
    int64_t n_removed;
    bool removed_argmax;
};

}  // namespace soliton
