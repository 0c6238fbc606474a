// The CPU kernels as a table, one per instruction set, and the choice between them.
//
// The files that fill a table are compiled once per instruction set, with SOLITON_ISA naming it.
// They must emit no code that another instruction set could share: the linker keeps one copy of an
// inline function, and if that is the AVX-512 one, an older processor dies of it. So they include
// no header with inline code (no <algorithm>, no <vector>), and all their helpers live in anonymous
// namespaces. Code that needs the standard library is compiled once, for the baseline.
#pragma once

#include <cstdint>

#include "../ops.h"
#include "attention.h"
#include "linear.h"
#include "sample/kernels.h"

namespace soliton {

struct CpuKernels {
    const char* isa;

    // Matrices: see linear.h for rows of x, and layout.h for panels.
    // Weights of a checkpoint into panels; where the first bad weight is.
    WeightIndex (*pack)(const PackArgs& args);
    // out (dim,) = RMSNorm of residual + branch; branch may be null. The sum is kept in total
    // (dim,) unless that is null.
    void (*norm_row)(const float* residual, const float* branch, const float* weight, float eps,
                     int64_t dim, float* total, float* out);
    // x (n_in,) as a row of codes.
    void (*quantize_row)(const float* x, int64_t n_in, std::byte* out);
    void (*multiply_units)(const MultiplyArgs& args);

    // Of (n,) words, modulo 2^64: for benchmarks, as fast as memory gives them.
    uint64_t (*sum_words)(const uint64_t* words, int64_t n);

    // The loops that the sampler is made of; logits (n,).
    // Of n <= kSampleTile logits, with scale <= 2^20 and scale * logit between -2^21 and 2^21 for
    // the largest: their masses added up, and the largest of each block into maxima (n /
    // kSampleBlock, rounded up). Each mass is right to 1.7e-7 of its value; one below 2^-125 of the
    // largest becomes about that.
    void (*sum_tile)(const float* logits, int64_t n, float scale, float* maxima, TileSums& sums);
    // The largest of each group of each block, (blocks, kSampleGroups); a part of a block at the
    // end has none, -inf.
    void (*group_maxima)(const float* logits, int64_t n, float* maxima);
    // How many come before this one in the descending order, the lower id first among equals.
    int64_t (*count_before)(const float* logits, int64_t n, const float* maxima, float logit,
                            int64_t id);
    // The sum of all masses, to 1e-10 of its value.
    double (*total_mass)(const float* logits, int64_t n, Softmax softmax);
    // The exponents of the masses of all finite logits.
    Moments (*moments)(const float* logits, int64_t n, Softmax softmax);
    // -inf for logits whose bit is not set.
    void (*apply_mask)(const int32_t* words, int64_t n, float* logits);
    // Ids of the logits >= bound, ascending, into ids; returns how many.
    int64_t (*collect)(const float* logits, int64_t n, const float* maxima, float bound,
                       int32_t* ids);
    void (*fill_histogram)(const float* logits, int64_t n, Softmax softmax, float scale,
                           Histogram& histogram);
    // Places of the logits in one bucket, ascending, into places (histogram.count[bucket],);
    // returns how many.
    int64_t (*collect_bucket)(const float* logits, int64_t n, Softmax softmax, float scale,
                              int bucket, int32_t* places);

    // Attention: see attention.h for tiles and records.
    // Norm and rotation of the keys of rows begin_row.. before end_row, and they and the values
    // into the caches.
    void (*store_keys_values)(const AttentionArgs& args, int64_t pos, int64_t kv_head,
                              int64_t begin_row, int64_t end_row);
    // Norm, rotation and scale of the tile's queries, into work.queries.
    void (*load_queries)(const AttentionArgs& args, const QueryTile& tile, AttentionWork& work);
    // What the tile's queries, in work.queries, see of a block of keys: records (tile.count, ...).
    void (*attend_block)(const AttentionArgs& args, const QueryTile& tile, int64_t block,
                         AttentionWork& work, float* records);
    // Adds the next block of the same query to what was merged of those before it.
    void (*merge_record)(float* merged, const float* record, int64_t head_dim);
    // out (head_dim,) of a query from all of its blocks.
    void (*finish_record)(const float* merged, int64_t head_dim, float* out);
};

// The kernels in use: those of the best instruction set that this processor has, unless select_isa
// was called.
const CpuKernels& cpu_kernels();

// The n-th instruction set that both this build and this processor have, best first; null past the
// last.
const char* supported_isa(int n);

// For tests and benchmarks: use another instruction set from now on. False when it is not a
// supported one.
bool select_isa(const char* isa);

}  // namespace soliton
