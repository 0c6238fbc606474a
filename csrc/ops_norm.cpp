// What no product follows: norms of what a layer adds to the residual and of queries and keys, and
// products of the numbers of two rows.
// Says which thread norms which row or head; the arithmetic is in cpu/rms_norm.cpp.
#include <cstddef>
#include <cstdint>

#include "norm.h"
#include "ops.h"
#include "pool.h"

namespace soliton {
namespace {

// The queries of one row, its keys or its values.
struct Part {
    float* begin;
    int64_t n_heads;
    const Norm& norm;
    bool rotates;
};

enum class Which : int8_t { kQueries, kKeys, kValues };

Part part_of(const HeadsArgs& args, int64_t row, Which which) {
    const int64_t width =
        (args.n_heads + (args.has_keys ? 2 * args.n_kv_heads : 0)) * args.head_dim;
    float* queries = args.qkv + row * width;
    float* keys = queries + args.n_heads * args.head_dim;
    const bool rotates = args.cos != nullptr;
    switch (which) {
        case Which::kQueries:
            break;
        case Which::kKeys:
            return {keys, args.n_kv_heads, args.k_norm, rotates};
        case Which::kValues:
            return {keys + args.n_kv_heads * args.head_dim, args.n_kv_heads, args.v_norm, false};
    }
    return {queries, args.n_heads, args.q_norm, rotates};
}

// The first 2 * rotary_half dimensions of a head: pairs (i, i + rotary_half).
void rotate(const HeadsArgs& args, int64_t position, float* head) {
    const float* cos = args.cos + position * args.rotary_half;
    const float* sin = args.sin + position * args.rotary_half;
    for (int64_t i = 0; i < args.rotary_half; ++i) {
        const float first = head[i];
        const float second = head[i + args.rotary_half];
        head[i] = first * cos[i] - second * sin[i];
        head[i + args.rotary_half] = second * cos[i] + first * sin[i];
    }
}

// Some heads of a part, from `first` on, under one norm.
void prepare(const HeadsArgs& args, const Part& part, int64_t first, int64_t count,
             int64_t position, float scale) {
    float* heads = part.begin + first * args.head_dim;
    const int64_t n = count * args.head_dim;
    for (int64_t i = 0; i < count && part.rotates; ++i) {
        rotate(args, position, heads + i * args.head_dim);
    }
    if (part.norm.weight != nullptr) {
        Norm norm = part.norm;
        norm.weight += first * args.head_dim;
        norm.bias += norm.bias == nullptr ? 0 : first * args.head_dim;
        norm_row(norm, heads, n, heads);
    }
    for (int64_t i = 0; i < n && scale != 1.0f; ++i) {
        heads[i] *= scale;
    }
}

// One part of a row, which begins at number `begin`.
void add_part(const AddNormArgs& args, int64_t begin, float* normed) {
    norm_row(args.norm, args.x + begin, args.dim, normed);
    float* out = args.out + begin;
    if (args.residual == nullptr) {
        for (int64_t i = 0; i < args.dim; ++i) {
            out[i] = args.scale * normed[i];
        }
    } else {
        const float* residual = args.residual + begin;
        for (int64_t i = 0; i < args.dim; ++i) {
            out[i] = residual[i] + args.scale * normed[i];
        }
    }
    for (int64_t i = 0; i < args.dim && args.factor != nullptr; ++i) {
        out[i] *= *args.factor;
    }
}

}  // namespace

int64_t add_norm_worker_bytes(int64_t dim) {
    return dim * int64_t{sizeof(float)};
}

void add_norm(const AddNormArgs& args, const StepState& state, Worker& worker) {
    worker.share(state.n_rows, [&](int64_t row) {
        for (int64_t part = row * args.n_parts; part < (row + 1) * args.n_parts; ++part) {
            add_part(args, part * args.dim, reinterpret_cast<float*>(worker.scratch));
        }
    });
}

void times(const TimesArgs& args, const StepState& state, Worker& worker) {
    worker.share(state.n_rows, [&](int64_t row) {
        float* x = args.x + row * args.dim;
        const float* others = args.others + row * args.pitch;
        for (int64_t i = 0; i < args.dim; ++i) {
            x[i] *= others[i];
        }
    });
}

void heads(const HeadsArgs& args, const StepState& state, Worker& worker) {
    // Heads of queries, then of keys, then of values; or each part as a whole.
    const int64_t n_queries = args.over_all ? 1 : args.n_heads;
    const int64_t n_keys = args.has_keys ? (args.over_all ? 1 : args.n_kv_heads) : 0;
    const int64_t n_values = args.v_norm.weight == nullptr ? 0 : n_keys;
    const int64_t per_row = n_queries + n_keys + n_values;
    worker.share(state.n_rows * per_row, [&](int64_t item) {
        const int64_t row = item / per_row;
        const int64_t index = item % per_row;
        const Which which = index < n_queries            ? Which::kQueries
                            : index < n_queries + n_keys ? Which::kKeys
                                                         : Which::kValues;
        const int64_t before = which == Which::kQueries ? 0
                               : which == Which::kKeys  ? n_queries
                                                        : n_queries + n_keys;
        const int64_t position = state.pos + row;
        const bool scales = which == Which::kQueries && args.q_scales != nullptr;
        const Part part = part_of(args, row, which);
        prepare(args, part, index - before, args.over_all ? part.n_heads : 1, position,
                scales ? args.q_scales[position] : 1.0f);
    });
}

}  // namespace soliton
