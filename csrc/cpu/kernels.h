// The CPU kernels as a table, one per instruction set, and the choice between them.
//
// The files that fill a table are compiled once per instruction set, with SOLITON_ISA naming it.
// They must emit no code that another instruction set could share: the linker keeps one copy of an
// inline function, and if that is the AVX-512 one, older CPUs crash with an illegal instruction
// (SIGILL). So they include no header with inline code (no <algorithm>, no <vector>), and all their
// helpers live in anonymous namespaces. Code that needs the standard library is compiled once, for
// the baseline.
#pragma once

#include <cstdint>

#include "../ops.h"
#include "attention.h"
#include "linear.h"
#include "recurrent.h"
#include "sample/kernels.h"

namespace soliton {

struct CpuKernels {
    const char* isa;

    // Matrices: see linear.h for rows of x, and layout.h for panels. Packs weights of a checkpoint
    // into panels. Returns where the first bad weight is.
    WeightIndex (*pack)(const PackArgs& args);
    // out (dim,) = RMSNorm of a row, times the weight; out may be the row.
    void (*norm_row)(const float* row, const float* weight, float eps, int64_t dim, float* out);
    // The same for any norm that has a weight.
    void (*layer_norm_row)(const float* row, const Norm& norm, int64_t dim, float* out);
    // Writes x (n_in,) as a row of codes.
    void (*quantize_row)(const float* x, int64_t n_in, std::byte* out);
    void (*multiply_units)(const MultiplyArgs& args);

    // The sum of n words modulo 2^64, as fast as memory delivers them: for benchmarks.
    uint64_t (*sum_words)(const uint64_t* words, int64_t n);

    // The sampler's loops; logits (n,). Adds up the masses of n <= kSampleTile logits and writes
    // the largest of each block into maxima (n / kSampleBlock, rounded up). Needs scale <= 2^20,
    // and scale * logit between -2^21 and 2^21 for the largest. Each mass has a relative error of
    // at most 1.7e-7; one below 2^-125 of the largest becomes about that.
    void (*sum_tile)(const float* logits, int64_t n, float scale, float* maxima, TileSums& sums);
    // The largest of each group of each block, (blocks, kSampleGroups); -inf for an incomplete
    // block at the end.
    void (*group_maxima)(const float* logits, int64_t n, float* maxima);
    // The place of the largest, the first one of equals; any place if all are -inf or there are
    // NaN.
    int64_t (*first_largest)(const float* logits, int64_t n);
    // How many logits come before this one in descending order; among equals the lower id is first.
    int64_t (*count_before)(const float* logits, int64_t n, const float* maxima, float logit,
                            int64_t id);
    // The sum of all masses, with a relative error of at most 1e-10.
    double (*total_mass)(const float* logits, int64_t n, Softmax softmax);
    // The moments of the exponents of all finite logits' masses.
    Moments (*moments)(const float* logits, int64_t n, Softmax softmax);
    // Sets the logits whose bit is not set to -inf.
    void (*apply_mask)(const int32_t* words, int64_t n, float* logits);
    // Writes the ids of the logits >= bound into ids, ascending; returns how many.
    int64_t (*collect)(const float* logits, int64_t n, const float* maxima, float bound,
                       int32_t* ids);
    void (*fill_histogram)(const float* logits, int64_t n, Softmax softmax, float scale,
                           Histogram& histogram);
    // Writes the indices of the logits in one bucket into places (histogram.count[bucket],),
    // ascending; returns how many.
    int64_t (*collect_bucket)(const float* logits, int64_t n, Softmax softmax, float scale,
                              int bucket, int32_t* places);

    // Attention: see attention.h for tiles and records. Norms and rotates the keys of rows
    // [begin_row, end_row), and stores keys and values in the caches.
    void (*store_keys_values)(const AttentionArgs& args, int64_t pos, int64_t kv_head,
                              int64_t begin_row, int64_t end_row);
    // Norms, rotates and scales the tile's queries into work.queries.
    void (*load_queries)(const AttentionArgs& args, const QueryTile& tile, AttentionWork& work);
    // Attention of the tile's queries, in work.queries, over one block of keys: records
    // (tile.count, ...).
    void (*attend_block)(const AttentionArgs& args, const QueryTile& tile, int64_t block,
                         AttentionWork& work, float* records);
    // Merges the next block's record into the merged record of the blocks before it, for one query.
    void (*merge_record)(float* merged, const float* record, int64_t head_dim);
    // out (head_dim,) of a query, from the merged record of all its blocks.
    void (*finish_record)(const AttentionArgs& args, const float* merged, const float* sink,
                          float* out);

    // Recurrent layers: see recurrent.h.
    void (*conv_row)(const ConvRow& args);
    // x (n,) = scale * x / sqrt(the sum of its squares + eps).
    void (*unit_row)(float* x, int64_t n, float eps, float scale);
    void (*delta_step)(const DeltaStep& args);
    void (*ssm_step)(const SsmStep& args);
    // out (n,) = x times the sigmoid of the gate, or times its silu; out may be x.
    void (*gate_row)(const float* x, const float* gate, int64_t n, bool is_silu, float* out);
};

// The kernels in use: those of the best instruction set that this processor supports, unless
// select_isa has chosen others.
const CpuKernels& cpu_kernels();

// The n-th instruction set that both this build and this processor support, best first; null after
// the last.
const char* supported_isa(int n);

// For tests and benchmarks: uses another instruction set from now on. Returns false if it is not
// supported.
bool select_isa(const char* isa);

}  // namespace soliton
