// What the keys of a head have in common is not stored in 4 bits: it is taken from each key before,
// and its product with the query is added to the score afterwards. Owns both halves, and the scales
// that make a head's dimensions matter alike; the same bits in every instruction set.
#pragma once

#include "isa/lanes.h"
#include "kernels.h"

namespace soliton::SOLITON_ISA {
namespace {

// Of one kv head, (head_dim,) each. `mean` turns with the position as keys do, but once for each
// chunk of positions: products with it need no more than two numbers per pair of dimensions and
// query. The first key of a sequence is unlike all others in many models, and always the same.
struct CommonKeys {
    const float* first;
    const float* mean;
    const float* scale;  // keys are divided by it, and queries multiplied
};

inline CommonKeys common_keys(const AttentionArgs& args, int64_t kv_head) {
    const float* first = args.common_keys + 3 * kv_head * args.head_dim;
    return {first, first + args.head_dim, first + 2 * args.head_dim};
}

// The position whose rotation a chunk's mean has.
inline int64_t chunk_start(int64_t position) {
    return position / kCommonChunk * kCommonChunk;
}

// Up to 16 columns of x from k on, then zeros.
SOLITON_INLINE Floats load_columns(const float* x, int64_t k, int64_t n) {
    return n - k >= kLanes ? load(x + k) : load_first(x + k, n - k);
}

// Column i is always added in lane i % 16.
inline float dot(const float* a, const float* b, int64_t n) {
    Floats products = broadcast(0.0f);
    for (int64_t i = 0; i < n; i += kLanes) {
        products = multiply_add(load_columns(a, i, n), load_columns(b, i, n), products);
    }
    return sum(products);
}

// What of a key, normed and rotated, is stored.
inline void take_common(const AttentionArgs& args, int64_t kv_head, int64_t position, float* key) {
    const CommonKeys common = common_keys(args, kv_head);
    const int64_t n = args.head_dim;
    const int64_t half = args.rotary_half;
    if (position == 0) {
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) {
            key[i] = (key[i] - common.first[i]) / common.scale[i];
        }
        return;
    }
    const float* cos = args.cos + chunk_start(position) * half;
    const float* sin = args.sin + chunk_start(position) * half;
    const float* mean = common.mean;
#pragma omp simd
    for (int64_t i = 0; i < half; ++i) {
        key[i] -= mean[i] * cos[i] - mean[i + half] * sin[i];
        key[i + half] -= mean[i + half] * cos[i] + mean[i] * sin[i];
    }
#pragma omp simd
    for (int64_t i = 2 * half; i < n; ++i) {
        key[i] -= mean[i];
    }
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
        key[i] /= common.scale[i];
    }
}

// The products of a query, normed, rotated and times `scale`, with what its keys have in common.
// Writes what cosines, and then what sines, of a chunk's start are multiplied by to `factors`,
// (2 * rotary_half,), and returns the rest. The query becomes what is multiplied with stored keys.
inline CommonScores multiply_common(const AttentionArgs& args, int64_t kv_head, float scale,
                                    float* query, float* factors) {
    const CommonKeys common = common_keys(args, kv_head);
    const int64_t n = args.head_dim;
    const int64_t half = args.rotary_half;
    const float* mean = common.mean;
#pragma omp simd
    for (int64_t i = 0; i < half; ++i) {
        factors[i] = scale * (query[i] * mean[i] + query[i + half] * mean[i + half]);
        factors[i + half] = scale * (query[i + half] * mean[i] - query[i] * mean[i + half]);
    }
    const int64_t rest = 2 * half;
    const CommonScores scores = {scale * dot(query, common.first, n),
                                 scale * dot(query + rest, mean + rest, n - rest)};
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
        query[i] *= common.scale[i];
    }
    return scores;
}

// Adds the common part to the scores of positions [begin, end), multiples of 16; `scores` are those
// of the positions from `first` on. `factors` and `common`: what multiply_common gave.
inline void add_common(const AttentionArgs& args, const float* factors, CommonScores common,
                       int64_t begin, int64_t end, int64_t first, float* scores) {
    const int64_t half = args.rotary_half;
    const float of_first = begin == 0 ? scores[0] + common.first : 0.0f;
    for (int64_t position = begin; position < end;) {
        const int64_t start = chunk_start(position);
        const Floats added = broadcast(common.rest + dot(factors, args.cos + start * half, half) +
                                       dot(factors + half, args.sin + start * half, half));
        const int64_t next = start + kCommonChunk < end ? start + kCommonChunk : end;
        for (; position < next; position += kLanes) {
            float* lanes = scores + position - first;
            store(lanes, add(load(lanes), added));
        }
    }
    if (begin == 0) {
        scores[0] = of_first;
    }
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
