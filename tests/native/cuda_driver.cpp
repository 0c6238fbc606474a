// Runs every CUDA kernel in every layout, without Python: for compute-sanitizer on a GPU, and for
// the emulator. Each array is a separate allocation of exactly the bytes that it needs, so that
// every access outside of it is found. Other tests check the results.
//
//   cuda_driver [short]     short: fewer rows, positions and pairs of layouts, for slow tools
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

#include "attention.h"
#include "cuda_driver_experts.h"
#include "cuda_driver_memory.h"
#include "layout.h"
#include "ops.h"
#include "prefill.h"
#include "sample.h"
#include "tape.h"

namespace {

using namespace soliton::cuda;

// Not multiples of the sizes that kernels divide by: 16 rows, 64 columns, 16 positions.
constexpr int64_t kVocabulary = 1000;
constexpr int64_t kDim = 328;
constexpr int64_t kHidden = 200;
constexpr int64_t kHeads = 6;
constexpr int64_t kKvHeads = 2;

struct Shape {
    Layout layout;
    KvType kv;
    int64_t head_dim;
    int64_t window;
    bool has_extras;  // biases, norms of q and k, a cap and sinks
    int64_t max_seq_len;
};

AttentionArgs attention_args(Memory& memory, const Shape& shape, float* qkv, float* out,
                             Constants first = {}, Constants second = {}) {
    const int64_t n_rows = kKvHeads * shape.max_seq_len;
    const bool is_int8 = shape.kv == KvType::kInt8;
    const int64_t element = is_int8 ? 1 : 2;
    const int64_t n_bytes = n_rows * padded_head_dim(shape.head_dim) * element;
    const int64_t rotary_half = shape.head_dim / 2;
    return {
        .qkv = qkv,
        .k_cache = memory.bytes(n_bytes),
        .v_cache = memory.bytes(n_bytes),
        .k_scales = is_int8 ? memory.floats(n_rows) : nullptr,
        .v_scales = is_int8 ? memory.floats(n_rows) : nullptr,
        .kv = shape.kv,
        .n_heads = kHeads,
        .n_kv_heads = kKvHeads,
        .head_dim = shape.head_dim,
        .max_seq_len = shape.max_seq_len,
        .q_norm = shape.has_extras ? memory.floats(shape.head_dim) : nullptr,
        .k_norm = shape.has_extras ? memory.floats(shape.head_dim) : nullptr,
        .eps = 1e-5f,
        .cos = memory.floats(shape.max_seq_len * rotary_half),
        .sin = memory.floats(shape.max_seq_len * rotary_half),
        .rotary_half = rotary_half,
        .window = shape.window,
        .scale = 0.125f,
        .softcap = shape.has_extras ? 2.0f : 0.0f,
        .sinks = shape.has_extras ? memory.floats(kHeads) : nullptr,
        .scratch = memory.zeros(attention_scratch_bytes(kHeads, shape.head_dim, shape.max_seq_len)),
        .out = out,
        .next = {first, second},
    };
}

// A decoder of one layer, recorded on a tape.
void record(Tape& tape, Memory& memory, const Shape& shape, int64_t n_rows) {
    const int64_t heads_dim = kHeads * shape.head_dim;
    const int64_t qkv_dim = (kHeads + 2 * kKvHeads) * shape.head_dim;
    const auto rows = [&](int64_t width) { return memory.floats(n_rows * width); };
    const auto bias = [&](int64_t n) { return shape.has_extras ? memory.floats(n) : nullptr; };
    float* residual = rows(kDim);
    float* after_attention = rows(kDim);
    float* qkv = rows(qkv_dim);
    float* heads = rows(heads_dim);
    float* gated = rows(kHidden);
    const Matrix wo = matrix(memory, shape.layout, kDim, heads_dim);
    const Matrix gate_up = matrix(memory, shape.layout, 2 * kHidden, kDim, true);
    const auto norm_linear_args = [&](const float* in, const Matrix& weights, float* out,
                                      Epilogue epilogue) {
        return NormLinearArgs{
            in, memory.floats(kDim), 1e-5f, weights, bias(weights.n_out), out, epilogue};
    };
    tape.append<&embed>("embed",
                        EmbedArgs{matrix(memory, shape.layout, kVocabulary, kDim), residual});
    tape.append<&norm_linear>(
        "qkv", norm_linear_args(residual, matrix(memory, shape.layout, qkv_dim, kDim), qkv,
                                Epilogue::kNone));
    tape.append<&attention>(
        "attention",
        attention_args(memory, shape, qkv, heads,
                       {wo.weights, matrix_bytes(shape.layout, kDim, heads_dim, false)},
                       {gate_up.weights, matrix_bytes(shape.layout, 2 * kHidden, kDim, true)}));
    tape.append<&linear>("wo", LinearArgs{heads, wo, bias(kDim), residual, after_attention});
    tape.append<&norm_linear>(
        "gate_up", norm_linear_args(after_attention, gate_up, gated, Epilogue::kSiluGate));
    tape.append<&linear>("down", LinearArgs{gated, matrix(memory, shape.layout, kDim, kHidden),
                                            bias(kDim), after_attention, residual});
    tape.append<&norm_linear>(
        "head", norm_linear_args(residual, matrix(memory, shape.layout, kVocabulary, kDim),
                                 rows(kVocabulary), Epilogue::kNone));
}

// Passes of `n_rows` rows: op by op, then as a graph, whose first call builds it.
void decode(const Shape& shape, const std::vector<int>& row_counts,
            const std::vector<int64_t>& positions) {
    for (const int n_rows : row_counts) {
        Memory memory;
        Tape tape;
        record(tape, memory, shape, n_rows);
        for (const int64_t pos : positions) {
            StepState state = {};
            state.pos = pos;
            state.n_rows = n_rows;
            for (int row = 0; row < n_rows; ++row) {
                state.token_ids[row] = (pos + 7 * row) % kVocabulary;
            }
            const auto* place = static_cast<const StepState*>(memory.copied(&state, sizeof state));
            int64_t bucket = 1024;
            while (bucket < pos + n_rows) {
                bucket *= 2;
            }
            for (const int blocks : {1, 2}) {
                const Pass pass = {.state = place,
                                   .n_rows = n_rows,
                                   .max_length = bucket,
                                   .stream = nullptr,
                                   .knobs = {.q4_blocks = blocks, .q8_blocks = blocks}};
                tape.run(pass);
                wait();
                tape.replay(pass);
                tape.replay(pass);
                wait();
                if (shape.layout == Layout::kBf16) {
                    break;
                }
            }
        }
    }
}

// The ops of a prompt, without the library's products and attention.
void prefill(const Shape& shape) {
    Memory memory;
    const int64_t n_rows = 21, pos = 5;
    const int64_t qkv_dim = (kHeads + 2 * kKvHeads) * shape.head_dim;
    const int64_t padded = padded_head_dim(shape.head_dim);
    const AttentionArgs args =
        attention_args(memory, shape, memory.floats(n_rows * qkv_dim), nullptr);
    check(rope(args, pos, n_rows, memory.bytes(n_rows * kHeads * padded * 2), nullptr), "rope");
    if (shape.kv == KvType::kInt8) {
        const int64_t end = pos + n_rows;
        check(unpack_kv({args.k_cache, args.k_scales, kKvHeads, shape.head_dim, shape.max_seq_len,
                         3, end, memory.bytes(kKvHeads * (end - 3) * padded * 2)},
                        nullptr),
              "unpack_kv");
    }
    if (shape.layout != Layout::kBf16) {
        for (const bool gated : {false, true}) {
            const Matrix weights = matrix(memory, shape.layout, 2 * kHidden, kDim, gated);
            const int64_t begin = 6, end = 2 * kHidden - 1;
            check(unpack({weights, gated, begin, end, memory.bytes((end - begin) * kDim * 2)},
                         nullptr),
                  "unpack");
        }
    }
    check(rms_norm({.residual = memory.floats(n_rows * kDim),
                    .norm = memory.floats(kDim),
                    .eps = 1e-5f,
                    .n_rows = n_rows,
                    .dim = kDim,
                    .out = memory.bytes(n_rows * kDim * 2)},
                   nullptr),
          "rms_norm");
    for (const Epilogue epilogue : {Epilogue::kSiluGate, Epilogue::kRelu2}) {
        check(activate({memory.bytes(n_rows * 2 * kHidden * 2), n_rows, kHidden, epilogue,
                        memory.bytes(n_rows * kHidden * 2)},
                       nullptr),
              "activate");
    }
    wait();
}

// The sampler with every adjustment and filter at once, with none, and greedy.
void draw() {
    Memory memory;
    SampleReport* report = nullptr;
    check(cudaMallocHost(&report, sizeof *report), "memory of the host");
    const std::vector<int32_t> ids = {1, 5, 999, 5, 3};
    const auto* some_ids =
        static_cast<const int32_t*>(memory.copied(ids.data(), 4 * int64_t(ids.size())));
    std::vector<float> logits(kVocabulary);
    for (size_t i = 0; i < logits.size(); ++i) {
        logits[i] = static_cast<float>(i * 7 % 31) / 4.0f;
    }
    SampleArgs plain = {};
    plain.logits =
        static_cast<const float*>(memory.copied(logits.data(), 4 * int64_t(logits.size())));
    plain.vocab_size = kVocabulary;
    plain.u = 0.5;
    plain.rate = 1.25;
    plain.n_top = 5;
    plain.scratch = memory.zeros(sample_scratch_bytes(kVocabulary));
    plain.report = report;
    plain.state = static_cast<StepState*>(memory.zeros(sizeof(StepState)));
    SampleArgs greedy = plain;
    greedy.greedy = true;
    SampleArgs all = plain;
    all.adjustments = {some_ids,
                       5,
                       3,
                       1.1,
                       0.1,
                       0.2,
                       some_ids,
                       memory.floats(3),
                       3,
                       static_cast<const int32_t*>(memory.bytes(4 * ((kVocabulary + 31) / 32))),
                       some_ids + 3,
                       2};
    all.filters[0] = {FilterKind::kTopK, false, 40};
    all.filters[1] = {FilterKind::kTopP, true, 0.9};
    all.filters[2] = {FilterKind::kMinP, true, -4.5};
    all.n_filters = 3;
    for (const SampleArgs& args : {plain, greedy, all}) {
        check(sample(args, nullptr), "sample");
        wait();
    }
    check(cudaFreeHost(report), "memory of the host");
}

void decode_and_prefill(const Shape& shape, bool is_short) {
    const int64_t last = shape.max_seq_len - kMaxRows;
    if (is_short) {
        decode(shape, {1, 5}, {last});
    } else {
        decode(shape, {1, 2, 5, kMaxRows}, {0, 61, last});
    }
    prefill(shape);
}

void run(bool is_short) {
    const int64_t length = is_short ? 100 : 1516;
    for (const Layout layout : {Layout::kBf16, Layout::kQ8, Layout::kQ4}) {
        for (const KvType kv : {KvType::kBf16, KvType::kInt8}) {
            if (!is_short || (layout == Layout::kQ8) == (kv == KvType::kInt8)) {
                decode_and_prefill({layout, kv, 64, 0, false, length}, is_short);
            }
        }
    }
    for (const int64_t head_dim : {int64_t{24}, int64_t{128}, int64_t{256}}) {
        for (const KvType kv : {KvType::kBf16, KvType::kInt8}) {
            if (!is_short || (head_dim == 128) == (kv == KvType::kBf16)) {
                decode_and_prefill({Layout::kBf16, kv, head_dim, 40, true, length}, is_short);
            }
        }
    }
    all_experts(is_short);
    draw();
}

}  // namespace

int main(int n_arguments, char** arguments) {
    try {
        run(n_arguments > 1 && std::strcmp(arguments[1], "short") == 0);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    std::puts("all kernels have run");
    return 0;
}
