// Norms that no product follows: of what a layer adds to the residual, and of queries and keys.
// Says which thread norms which row or head; the arithmetic is in cpu/rms_norm.cpp.
#include <cstddef>
#include <cstdint>

#include "norm.h"
#include "ops.h"
#include "pool.h"

namespace soliton {
namespace {

// The queries of one row, or its keys.
struct Part {
    float* begin;
    int64_t n_heads;
    const Norm& norm;
};

Part part_of(const HeadsArgs& args, int64_t row, bool of_keys) {
    const int64_t width = (args.n_heads + 2 * args.n_kv_heads) * args.head_dim;
    float* queries = args.qkv + row * width;
    return of_keys ? Part{queries + args.n_heads * args.head_dim, args.n_kv_heads, args.k_norm}
                   : Part{queries, args.n_heads, args.q_norm};
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
    for (int64_t i = 0; i < count && args.cos != nullptr; ++i) {
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

}  // namespace

int64_t add_norm_worker_bytes(int64_t dim) {
    return dim * int64_t{sizeof(float)};
}

void add_norm(const AddNormArgs& args, const StepState& state, Worker& worker) {
    worker.share(state.n_rows, [&](int64_t row) {
        float* normed = reinterpret_cast<float*>(worker.scratch);
        norm_row(args.norm, args.x + row * args.dim, args.dim, normed);
        const float* residual = args.residual + row * args.dim;
        float* out = args.out + row * args.dim;
        for (int64_t i = 0; i < args.dim; ++i) {
            out[i] = residual[i] + args.scale * normed[i];
        }
    });
}

void heads(const HeadsArgs& args, const StepState& state, Worker& worker) {
    const int64_t n_heads = args.n_heads + args.n_kv_heads;
    const int64_t per_row = args.over_all ? 2 : n_heads;
    worker.share(state.n_rows * per_row, [&](int64_t item) {
        const int64_t row = item / per_row;
        const int64_t index = item % per_row;
        const bool of_keys = index >= (args.over_all ? 1 : args.n_heads);
        const int64_t position = state.pos + row;
        const float scale = of_keys || args.q_scales == nullptr ? 1.0f : args.q_scales[position];
        const Part part = part_of(args, row, of_keys);
        const int64_t first = args.over_all ? 0 : of_keys ? index - args.n_heads : index;
        prepare(args, part, first, args.over_all ? part.n_heads : 1, position, scale);
    });
}

}  // namespace soliton
