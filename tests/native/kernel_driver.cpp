// Runs the ops on generated numbers, with the instruction set that the first argument names, and
// prints the results. Without an argument, lists the instruction sets. test_instruction_sets.py
// builds it for two processors and compares their output.
//
// A line is "name bits <hash>", or "name near <tolerance> <numbers>" where instruction sets may
// round differently; the tolerance is relative to the largest of the numbers.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "../../csrc/cpu/attention.h"
#include "../../csrc/cpu/kernels.h"
#include "../../csrc/cpu/sample/sample.h"
#include "../../csrc/tape.h"

using namespace soliton;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// From -1 to 1, computed without rounding.
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}

    float next() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        const uint64_t bits = state_ * 0x2545f4914f6cdd1du;
        return static_cast<float>(static_cast<int32_t>(bits >> 40) - (1 << 23)) * 0x1p-23f;
    }

    std::vector<float> many(int64_t n, float largest = 1.0f) {
        std::vector<float> values(n);
        for (float& value : values) {
            value = next() * largest;
        }
        return values;
    }

  private:
    uint64_t state_;
};

// ---- Output. ----

class Hash {
  public:
    void add_bytes(const void* at, size_t n) {
        for (size_t i = 0; i < n; ++i) {
            value_ = (value_ ^ static_cast<const uint8_t*>(at)[i]) * 0x100000001b3u;
        }
    }

    // Processors produce different bit patterns of NaN.
    void add(const std::vector<float>& values) {
        for (const float value : values) {
            const float seen = std::isnan(value) ? kNan : value;
            add_bytes(&seen, sizeof seen);
        }
    }

    void write(const std::string& name) const {
        std::printf("%s bits %016llx\n", name.c_str(), static_cast<unsigned long long>(value_));
    }

  private:
    uint64_t value_ = 0xcbf29ce484222325u;
};

template <typename T>
void write_near(const std::string& name, double tolerance, const std::vector<T>& values) {
    std::printf("%s near %g", name.c_str(), tolerance);
    for (const T value : values) {
        std::printf(" %.17g", static_cast<double>(value));
    }
    std::printf("\n");
}

// ---- Inputs of the ops. ----

template <auto op, typename Args>
void run(const Args& args, int64_t n_rows, int64_t pos, int64_t scratch_bytes) {
    std::vector<int64_t> state(sizeof(StepState) / sizeof(int64_t) + n_rows);
    StepState& step = *reinterpret_cast<StepState*>(state.data());
    step.pos = pos;
    step.n_rows = n_rows;
    Tape tape;
    tape.append<op>("op", args, static_cast<size_t>(scratch_bytes));
    tape.run(step);
}

const char* const kLayoutNames[] = {"f32", "bf16", "q8", "q6", "q5", "q4"};
constexpr Layout kLayouts[] = {Layout::kF32, Layout::kBf16, Layout::kQ8,
                               Layout::kQ6,  Layout::kQ5,   Layout::kQ4};

// A GGUF type: its blocks, where they have float16 numbers (or an exponent, if nowhere), and the
// layout that holds them.
struct BlockType {
    const char* name;
    SourceType source;
    Layout layout;
    int64_t columns;
    int64_t n_bytes;
    std::vector<int> halves;
};

const BlockType kBlockTypes[] = {
    {"q4_0", SourceType::kQ4_0, Layout::kQ4_0, 32, 18, {0}},
    {"q4_1", SourceType::kQ4_1, Layout::kQ4, 32, 20, {0, 2}},
    {"q5_0", SourceType::kQ5_0, Layout::kQ5_0, 32, 22, {0}},
    {"q5_1", SourceType::kQ5_1, Layout::kQ5, 32, 24, {0, 2}},
    {"q8_0", SourceType::kQ8_0, Layout::kQ8, 32, 34, {0}},
    {"q2_k", SourceType::kQ2_K, Layout::kQ2_K, 256, 84, {80, 82}},
    {"q3_k", SourceType::kQ3_K, Layout::kQ6_K, 256, 110, {108}},
    {"q4_k", SourceType::kQ4_K, Layout::kQ4_K, 256, 144, {0, 2}},
    {"q5_k", SourceType::kQ5_K, Layout::kQ5_K, 256, 176, {0, 2}},
    {"q6_k", SourceType::kQ6_K, Layout::kQ6_K, 256, 210, {208}},
    {"iq4_nl", SourceType::kIq4Nl, Layout::kIq4Nl, 32, 18, {0}},
    {"iq4_xs", SourceType::kIq4Xs, Layout::kIq4Xs, 256, 136, {0}},
    {"mxfp4", SourceType::kMxfp4, Layout::kMxfp4, 32, 17, {}},
};

// Blocks with all kinds of codes and scales, from subnormal to large ones; in some, all bits of the
// codes are set, or those of the most negative ones.
std::vector<uint8_t> random_blocks(const BlockType& type, int64_t n_blocks) {
    Random random(static_cast<uint64_t>(type.n_bytes * 1000 + n_blocks));
    std::vector<uint8_t> bytes(n_blocks * type.n_bytes);
    for (int64_t i = 0; i < n_blocks; ++i) {
        uint8_t* block = bytes.data() + i * type.n_bytes;
        const float kind = random.next();
        for (int64_t k = 0; k < type.n_bytes; ++k) {
            const int any = static_cast<int>((random.next() + 1.0f) * 127.99f);
            block[k] = static_cast<uint8_t>(kind < -0.9f ? 0xff : kind < -0.8f ? 0x80 : any);
        }
        if (type.halves.empty()) {
            block[0] = static_cast<uint8_t>(i % 50 == 0 ? 0 : 100 + block[0] % 30);
        }
        for (const int at : type.halves) {
            block[at + 1] = static_cast<uint8_t>((block[at + 1] & 0x80) | (i * 7 + at) % 0x3c);
        }
    }
    return bytes;
}

// A matrix in panels, with rows of very different magnitude, one of zeros, and one too large for
// float16 scales; or one in the blocks of a GGUF type, which become `layout`.
struct Panels {
    std::vector<uint8_t> bytes;
    Matrix matrix;

    Panels(const BlockType& type, Layout layout, int64_t n_out, int64_t n_in) {
        const int64_t row_blocks = n_in / type.columns;
        const std::vector<uint8_t> blocks = random_blocks(type, n_out * row_blocks);
        const int64_t n_panels = panels_for(n_out);
        std::vector<int64_t> addresses(n_panels * kPanelRows);
        for (int64_t row = 0; row < n_out; ++row) {
            addresses[row] =
                reinterpret_cast<int64_t>(blocks.data()) + row * row_blocks * type.n_bytes;
        }
        bytes.resize(n_panels * panel_bytes(layout, n_in));
        cpu_kernels().pack({addresses.data(), type.source, n_in, layout, false, bytes.data(),
                            n_panels, 0, n_panels});
        matrix = {bytes.data(), n_out, n_in, layout, false};
    }

    Panels(Layout layout, int64_t n_out, int64_t n_in, bool gated = false, bool is_woven = false) {
        Random random(static_cast<uint64_t>(n_out * 1000 + n_in));
        std::vector<float> rows = random.many(n_out * n_in);
        constexpr float kSizes[] = {1.0f, 0.0f, 1e-6f, 1e7f, 0.01f, 3.0f, 0.3f};
        for (int64_t i = 0; i < n_out * n_in; ++i) {
            rows[i] *= kSizes[i / n_in % 7];
        }
        const int64_t parts = gated ? 2 : 1;
        const int64_t width = n_out / parts;
        const int64_t n_panels = panels_for(width) * parts;
        std::vector<int64_t> addresses(n_panels * kPanelRows);
        for (int64_t row = 0; row < n_out; ++row) {
            const int64_t part = row / width;
            const int64_t panel = row % width / kPanelRows * parts + part;
            addresses[panel * kPanelRows + row % width % kPanelRows] =
                reinterpret_cast<int64_t>(rows.data() + row * n_in);
        }
        // No padding: kernels prefetch but read nothing after the end.
        bytes.resize(n_panels * panel_bytes(layout, n_in));
        cpu_kernels().pack({addresses.data(), SourceType::kF32, n_in, layout, is_woven,
                            bytes.data(), n_panels, 0, n_panels});
        matrix = {bytes.data(), n_out, n_in, layout, is_woven};
    }
};

// Rows of x. If they are many, one has an infinity, one a NaN, and one is zeros.
std::vector<float> activations(int64_t n_rows, int64_t n_in) {
    std::vector<float> x = Random(static_cast<uint64_t>(n_in)).many(n_rows * n_in, 9.0f);
    if (n_rows >= 12) {
        x[7 * n_in] = kInfinity;
        x[8 * n_in + n_in / 2] = kNan;
        std::fill_n(x.begin() + 9 * n_in, n_in, 0.0f);
    }
    return x;
}

// ---- Matrices. ----

constexpr int64_t kSizes[][2] = {{16, 32}, {6, 7}, {100, 200}, {34, 64}, {48, 1000}};
constexpr int64_t kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 64, 130};

void pack_all() {
    for (const Layout layout : kLayouts) {
        for (const auto& [n_out, n_in] : kSizes) {
            Hash hash;
            const Panels panels(layout, n_out, n_in);
            hash.add_bytes(panels.bytes.data(), panels.bytes.size());
            hash.write(std::string("pack ") + kLayoutNames[static_cast<int>(layout)] + " " +
                       std::to_string(n_out) + "x" + std::to_string(n_in));
        }
    }
    // Every finite float16 and bfloat16.
    for (const SourceType source : {SourceType::kF16, SourceType::kBf16}) {
        const uint16_t exponent = source == SourceType::kF16 ? 0x7c00 : 0x7f80;
        std::vector<uint16_t> row;
        for (int bits = 0; bits < 0x10000; ++bits) {
            if ((bits & exponent) != exponent) {
                row.push_back(static_cast<uint16_t>(bits));
            }
        }
        const int64_t addresses[kPanelRows] = {reinterpret_cast<int64_t>(row.data())};
        const int64_t n_in = static_cast<int64_t>(row.size());
        for (const Layout layout : kLayouts) {
            std::vector<uint8_t> panels(panel_bytes(layout, n_in));
            cpu_kernels().pack({addresses, source, n_in, layout, false, panels.data(), 1, 0, 1});
            Hash hash;
            hash.add_bytes(panels.data(), panels.size());
            hash.write(std::string("pack all of ") + (exponent == 0x7c00 ? "f16 " : "bf16 ") +
                       kLayoutNames[static_cast<int>(layout)]);
        }
    }
}

constexpr int64_t kBlockSizes[][2] = {{16, 256}, {100, 512}, {34, 1280}};

void pack_blocks() {
    for (const BlockType& type : kBlockTypes) {
        for (const Layout layout : {type.layout, Layout::kF32, Layout::kQ8}) {
            Hash hash;
            for (const auto& [n_out, n_in] : kBlockSizes) {
                const Panels panels(type, layout, n_out, n_in);
                hash.add_bytes(panels.bytes.data(), panels.bytes.size());
            }
            hash.write(std::string("pack ") + type.name + " into layout " +
                       std::to_string(static_cast<int>(layout)));
        }
    }
}

void quantize_all() {
    for (const int64_t n_in : {1, 31, 32, 33, 100, 4096}) {
        Hash hash;
        for (const float size : {1.0f, 1e-3f, 1e30f, 1e-38f, 127.0f, 0.0f, kInfinity, kNan}) {
            std::vector<float> x = Random(static_cast<uint64_t>(n_in)).many(n_in);
            for (int64_t k = 0; k < n_in; ++k) {
                // With 127 as the largest, many values lie half way between two codes.
                x[k] = size == 127.0f ? std::floor(x[k] * 256.0f) / 2.0f : x[k] * size;
            }
            x[0] = size;
            std::vector<uint8_t> row(code_row_bytes(n_in));
            cpu_kernels().quantize_row(x.data(), n_in, reinterpret_cast<std::byte*>(row.data()));
            const int64_t n_codes = blocks_for(n_in) * kBlockColumns;
            hash.add_bytes(row.data(), n_codes);
            for (int64_t i = 0; i < blocks_for(n_in); ++i) {
                CodeBlock block;
                std::memcpy(&block, row.data() + n_codes + i * sizeof block, sizeof block);
                hash.add({block.scale, block.scaled_sum, static_cast<float>(block.offset),
                          static_cast<float>(block.half_sum)});
            }
        }
        hash.write("quantize " + std::to_string(n_in));
    }
}

void norm_all() {
    for (const int64_t dim : {1, 15, 16, 17, 64, 100, 2048}) {
        Random random(static_cast<uint64_t>(dim));
        const std::vector<float> row = random.many(dim, 5.0f);
        const std::vector<float> weight = random.many(dim);
        std::vector<float> out(dim);
        cpu_kernels().norm_row(row.data(), weight.data(), 1e-5f, dim, out.data());
        Hash hash;
        hash.add(out);
        const std::vector<float> bias = random.many(dim);
        cpu_kernels().layer_norm_row(row.data(), {weight.data(), bias.data(), 1e-5f, true}, dim,
                                     out.data());
        hash.add(out);
        hash.write("norm " + std::to_string(dim));
    }
}

void multiply_all() {
    for (const Layout layout : kLayouts) {
        for (const auto& [n_out, n_in] : kSizes) {
            const Panels plain(layout, n_out, n_in);
            const Panels gated(layout, n_out, n_in, true);
            const Stack one = {{plain.matrix}, 1};
            const std::vector<float> bias = Random(1).many(n_out);
            const std::vector<float> norm = Random(2).many(n_in);
            for (const int64_t n_rows : kRowCounts) {
                const std::vector<float> x = activations(n_rows, n_in);
                std::vector<uint8_t> scratch(linear_scratch_bytes(one, n_rows) + 64);
                const std::vector<float> residual = activations(n_rows, n_out);
                std::vector<float> product(n_rows * n_out);
                std::vector<float> gate(n_rows * n_out / 2);
                run<&linear>(LinearArgs{.x = x.data(),
                                        .matrix = one,
                                        .bias = n_rows % 2 ? bias.data() : nullptr,
                                        .residual = n_rows % 4 ? residual.data() : nullptr,
                                        .out = product.data(),
                                        .scratch = scratch.data()},
                             n_rows, 0, linear_worker_bytes(one));
                run<&norm_linear>(NormLinearArgs{.residual = x.data(),
                                                 .norm = {norm.data(), nullptr, 1e-5f, false},
                                                 .matrix = {{gated.matrix}, 1},
                                                 .bias = n_rows % 2 ? nullptr : bias.data(),
                                                 .out = gate.data(),
                                                 .epilogue = Epilogue::kSiluGate,
                                                 .scratch = scratch.data()},
                                  n_rows, 0, linear_worker_bytes(one));
                Hash hash;
                hash.add(product);
                hash.add(gate);
                hash.write(std::string("multiply ") + kLayoutNames[static_cast<int>(layout)] + " " +
                           std::to_string(n_out) + "x" + std::to_string(n_in) + " by " +
                           std::to_string(n_rows) + " rows");
            }
        }
    }
}

void multiply_and_finish() {
    constexpr int64_t kOut = 40;
    constexpr int64_t kIn = 64;
    const std::vector<float> x = activations(3, kIn);
    for (const Epilogue epilogue : {Epilogue::kGeluGate, Epilogue::kGeluTanhGate, Epilogue::kGelu,
                                    Epilogue::kGeluTanh, Epilogue::kRelu2, Epilogue::kSoftcap}) {
        const Panels panels(Layout::kF32, kOut, kIn, is_gated(epilogue));
        const Stack one = {{panels.matrix}, 1};
        std::vector<uint8_t> scratch(linear_scratch_bytes(one, 3) + 64);
        std::vector<float> out(3 * kOut / (is_gated(epilogue) ? 2 : 1));
        run<&norm_linear>(NormLinearArgs{.residual = x.data(),
                                         .norm = {nullptr, nullptr, 0.0f, false},
                                         .matrix = one,
                                         .bias = nullptr,
                                         .out = out.data(),
                                         .epilogue = epilogue,
                                         .scale = is_gated(epilogue) ? 1.0f : 0.7f,
                                         .softcap = 3.0f,
                                         .scratch = scratch.data()},
                          3, 0, linear_worker_bytes(one));
        Hash hash;
        hash.add(out);
        hash.write("epilogue " + std::to_string(static_cast<int>(epilogue)));
    }
}

void multiply_blocks() {
    for (const BlockType& type : kBlockTypes) {
        for (const auto& [n_out, n_in] : kBlockSizes) {
            const Panels panels(type, type.layout, n_out, n_in);
            const Stack one = {{panels.matrix}, 1};
            for (const int64_t n_rows : {1, 2, 5, 12, 16, 40}) {
                std::vector<float> x = activations(n_rows, n_in);
                // Blocks of nothing but the largest code.
                std::fill_n(x.begin(), 2 * kBlockColumns, 9.0f);
                std::vector<uint8_t> scratch(linear_scratch_bytes(one, n_rows) + 64);
                std::vector<float> product(n_rows * n_out);
                run<&linear>(LinearArgs{.x = x.data(),
                                        .matrix = one,
                                        .bias = nullptr,
                                        .out = product.data(),
                                        .scratch = scratch.data()},
                             n_rows, 0, linear_worker_bytes(one));
                Hash hash;
                hash.add(product);
                hash.write(std::string("multiply ") + type.name + " " + std::to_string(n_out) +
                           "x" + std::to_string(n_in) + " by " + std::to_string(n_rows) + " rows");
            }
        }
    }
}

// ---- Attention. ----

// A prompt, then some rows that see it. Norm and rotation are used only with a float32 cache, and
// int8 codes come only from integers: a rounding difference before the code could change it.
void attend(KvType kv, int64_t head_dim, int64_t pos, int64_t n_rows, int64_t window,
            const std::string& name) {
    constexpr int64_t kHeads = 4;
    constexpr int64_t kKvHeads = 2;
    const int64_t max_seq_len = pos + n_rows;
    const bool exact = kv != KvType::kF32;
    const int64_t row_size = (kHeads + 2 * kKvHeads) * head_dim;
    Random random(static_cast<uint64_t>(head_dim + pos));
    std::vector<float> qkv = random.many(max_seq_len * row_size, 3.0f);
    if (kv == KvType::kInt8) {
        for (int64_t i = 0; i < max_seq_len * row_size; ++i) {
            qkv[i] = i % head_dim == 0 ? 127.0f : std::floor(qkv[i] * 40.0f);
        }
    }
    const std::vector<float> norm = random.many(head_dim);
    const int64_t half = exact ? 0 : head_dim / 4;
    const std::vector<float> cos = random.many(max_seq_len * half);
    const std::vector<float> sin = random.many(max_seq_len * half);
    // Four bytes per element are enough for all types; rounded up for every layout.
    const int64_t n_positions = (max_seq_len + 31) / 32 * 32;
    const int64_t n_elements = kKvHeads * n_positions * ((head_dim + 31) / 32 * 32);
    std::vector<float> k_cache(n_elements);
    std::vector<float> v_cache(n_elements);
    std::vector<float> k_scales(kKvHeads * n_positions * scale_pairs(head_dim));
    std::vector<float> v_scales(kKvHeads * n_positions * scale_pairs(head_dim));
    std::vector<float> scratch(attention_scratch_floats(kHeads, head_dim, max_seq_len));
    std::vector<float> out(max_seq_len * kHeads * head_dim);
    AttentionArgs args = {};
    args.stores = true;
    args.k_cache = k_cache.data();
    args.v_cache = v_cache.data();
    args.k_scales = k_scales.data();
    args.v_scales = v_scales.data();
    args.k_type = kv;
    args.v_type = kv;
    args.n_heads = kHeads;
    args.n_kv_heads = kKvHeads;
    args.head_dim = head_dim;
    args.max_seq_len = max_seq_len;
    args.q_norm = exact ? nullptr : norm.data();
    args.k_norm = args.q_norm;
    args.eps = 1e-6f;
    args.cos = cos.data();
    args.sin = sin.data();
    args.rotary_half = half;
    args.window = window;
    args.scale = kv == KvType::kInt8 ? 1e-4f : 0.125f;
    args.softcap = head_dim == 40 ? 2.0f : 0.0f;
    args.scratch = scratch.data();
    const auto pass = [&](int64_t begin, int64_t count) {
        args.qkv = qkv.data() + begin * row_size;
        args.out = out.data() + begin * kHeads * head_dim;
        run<&attention>(args, count, begin, sizeof(AttentionWork));
    };
    if (pos > 0) {
        pass(0, pos);
    }
    pass(pos, n_rows);
    out.erase(out.begin(), out.begin() + pos * kHeads * head_dim);
    write_near("attention " + name, 1e-5, out);
    if (exact) {
        Hash hash;
        hash.add_bytes(k_cache.data(), k_cache.size() * sizeof(float));
        hash.add_bytes(v_cache.data(), v_cache.size() * sizeof(float));
        hash.add(k_scales);
        hash.add(v_scales);
        hash.write("cache " + name);
    }
}

void attend_all() {
    constexpr int64_t kPasses[][2] = {{0, 1}, {5, 3}, {20, 17}, {270, 2}};  // position, rows
    const char* const names[] = {"f32", "bf16", "int8", "int4"};
    for (const KvType kv : {KvType::kF32, KvType::kBf16, KvType::kInt8, KvType::kInt4}) {
        for (const int64_t head_dim : {24, 40, 64, 128}) {
            const int64_t window = head_dim == 64 ? 40 : 0;
            for (const auto& [pos, n_rows] : kPasses) {
                attend(kv, head_dim, pos, n_rows, window,
                       std::string(names[static_cast<int>(kv)]) + " " + std::to_string(head_dim) +
                           " after " + std::to_string(pos) + " by " + std::to_string(n_rows) +
                           " rows");
            }
        }
    }
}

// ---- Recurrent layers: the kernels, as the ops around them are compiled once. ----

void convolve(int64_t n, bool is_silu) {
    constexpr int64_t kKernel = 4;
    Random random(static_cast<uint64_t>(n));
    const int64_t pitch = n + 3;
    const std::vector<float> rows = random.many(kKernel * n, 4.0f);
    const std::vector<float> weights = random.many(kKernel * pitch);
    const std::vector<float> bias = random.many(n);
    std::vector<float> out(n);
    ConvRow args = {};
    for (int64_t i = 0; i < kKernel; ++i) {
        args.rows[i] = rows.data() + i * n;
    }
    args.kernel = kKernel;
    args.weights = weights.data();
    args.pitch = pitch;
    args.bias = is_silu ? bias.data() : nullptr;
    args.n = n;
    args.is_silu = is_silu;
    args.out = out.data();
    cpu_kernels().conv_row(args);
    Hash hash;
    hash.add(out);
    cpu_kernels().unit_row(out.data(), n, 1e-6f, 0.125f);
    hash.add(out);
    cpu_kernels().gate_row(out.data(), rows.data(), n, is_silu, out.data());
    hash.add(out);
    hash.write("convolution, unit and gate of " + std::to_string(n) +
               (is_silu ? " with silu" : ""));
}

// Several rows, each of which finds what the ones before it have left.
void step_states(int64_t columns, int64_t height) {
    constexpr int kRows = 5;
    Random random(static_cast<uint64_t>(columns * 1000 + height));
    const std::vector<float> begin = random.many(columns * height);
    std::vector<float> of_delta = begin;
    std::vector<float> of_ssm = begin;
    Hash delta_hash;
    Hash ssm_hash;
    for (int row = 0; row < kRows; ++row) {
        const std::vector<float> one = random.many(height);
        const std::vector<float> other = random.many(height);
        const std::vector<float> x = random.many(columns, 4.0f);
        std::vector<float> out(columns);
        cpu_kernels().delta_step({.state = of_delta.data(),
                                  .q = one.data(),
                                  .k = other.data(),
                                  .v = x.data(),
                                  .k_dim = height,
                                  .v_dim = columns,
                                  .decay = 0.9f,
                                  .beta = 0.3f,
                                  .out = out.data()});
        delta_hash.add(out);
        cpu_kernels().ssm_step({.state = of_ssm.data(),
                                .x = x.data(),
                                .b = one.data(),
                                .c = other.data(),
                                .head_dim = columns,
                                .state_dim = height,
                                .decay = 0.8f,
                                .time = 0.4f,
                                .skip = 1.5f,
                                .out = out.data()});
        ssm_hash.add(out);
    }
    delta_hash.add(of_delta);
    ssm_hash.add(of_ssm);
    const std::string size = std::to_string(columns) + "x" + std::to_string(height);
    delta_hash.write("delta rule " + size);
    ssm_hash.write("state space " + size);
}

void recur_all() {
    for (const int64_t n : {1, 15, 16, 40, 256}) {
        convolve(n, false);
        convolve(n, true);
    }
    for (const int64_t columns : {16, 32, 48, 128}) {
        for (const int64_t height : {16, 64, 128}) {
            step_states(columns, height);
        }
    }
}

// ---- The sampler. ----

// All settings at once, or only those of nearly all requests.
SampleSettings sample_settings(int64_t vocab_size, bool everything,
                               const std::vector<int32_t>& stages,
                               const std::vector<double>& parameters) {
    SampleSettings settings = {};
    settings.vocab_size = vocab_size;
    settings.n_top = 5;
    settings.repetition_penalty = everything ? 1.1 : 1.0;
    settings.repetition_range = 20;
    settings.repetition_decay = 10;
    settings.dry_multiplier = everything ? 0.8 : 0.0;
    settings.dry_base = 1.75;
    settings.dry_max_ngram = 20;
    settings.stages = stages.data();
    settings.parameters = parameters.data();
    settings.n_stages = static_cast<int64_t>(stages.size());
    settings.skew = everything ? 0.3 : 0.0;
    return settings;
}

void find_largest(int64_t vocab_size) {
    std::vector<float> logits = Random(7).many(vocab_size, 4.0f);
    for (float& logit : logits) {
        logit = std::round(logit);  // most have equals
    }
    for (const float unlike : {0.0f, kInfinity, -kInfinity, kNan}) {
        logits[vocab_size * 2 / 3] = unlike;
        const int64_t found = cpu_kernels().first_largest(logits.data(), vocab_size);
        const int64_t first = std::max_element(logits.begin(), logits.end()) - logits.begin();
        if (std::isnan(unlike) ? found < 0 || found >= vocab_size : found != first) {
            std::fprintf(stderr, "first_largest: %ld, not %ld\n", static_cast<long>(found),
                         static_cast<long>(first));
            std::exit(1);
        }
    }
}

void sample_all() {
    // Temperature, top-k, top-p; then with smoothing, top-a, TFS, typical, dynamic temperature,
    // XTC.
    const std::vector<int32_t> few = {17, 19, 20};
    const std::vector<int32_t> many = {17, 16, 20, 21, 23, 24, 26, 27};
    const std::vector<double> of_few = {0.7, 0, 0, 50, 0, 0, 0.9, 0, 0};
    const std::vector<double> of_many = {0.7,  0, 0, 0.2, 0, 0, 0.98, 0,   0, 0.01, 0,   0,
                                         0.98, 0, 0, 0.9, 0, 0, 0.5,  1.5, 1, 1.0,  0.2, 0};
    for (const int64_t vocab_size : {1, 63, 1000, 32001}) {
        find_largest(vocab_size);
        const std::vector<float> logits =
            Random(static_cast<uint64_t>(vocab_size)).many(vocab_size, 12.0f);
        std::vector<float> work(vocab_size);
        std::vector<int32_t> context(40);
        for (size_t i = 0; i < context.size(); ++i) {
            context[i] = static_cast<int32_t>(i % 7 % vocab_size);
        }
        const std::vector<int32_t> mask((vocab_size + 31) / 32, 0x6fffffff);
        for (const bool everything : {false, true}) {
            Sampler sampler(sample_settings(vocab_size, everything, everything ? many : few,
                                            everything ? of_many : of_few));
            for (const double u : {0.0, 0.3, 0.999}) {
                SampleArgs args = {};
                args.logits = logits.data();
                args.work = work.data();
                args.u = u;
                args.context = context.data();
                args.n_context = static_cast<int64_t>(context.size());
                args.mask = everything ? mask.data() : nullptr;
                SampleOutput out = {};
                const bool is_drawn = sampler.sample(args, out);
                const std::string name = std::to_string(vocab_size) +
                                         (everything ? " with all, " : ", ") + std::to_string(u);
                Hash hash;
                hash.add_bytes(&is_drawn, sizeof is_drawn);
                hash.add_bytes(&out.token_id, sizeof out.token_id);
                hash.add_bytes(&out.rank, sizeof out.rank);
                std::vector<double> numbers = {out.p_raw,   out.p_sampled, out.logprob_raw,
                                               out.entropy, out.margin,    out.kept_mass};
                for (const SampledTop& top : out.top) {
                    hash.add_bytes(&top.id, sizeof top.id);
                    numbers.push_back(top.logprob_raw);
                    numbers.push_back(top.p_sampled);
                }
                hash.write("sample " + name);
                write_near("probabilities " + name, 1e-13, numbers);
            }
        }
        for (const float spoiled : {kNan, kInfinity}) {
            std::vector<float> bad = logits;
            bad.back() = spoiled;
            Sampler sampler(sample_settings(vocab_size, false, few, of_few));
            SampleArgs args = {};
            args.logits = bad.data();
            args.work = work.data();
            SampleOutput out = {};
            std::printf("bad %lld bits %d\n", static_cast<long long>(vocab_size),
                        sampler.sample(args, out));
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        for (int i = 0; supported_isa(i) != nullptr; ++i) {
            std::printf("%s\n", supported_isa(i));
        }
        return 0;
    }
    if (!select_isa(argv[1])) {
        std::fprintf(stderr, "%s is no instruction set of this processor\n", argv[1]);
        return 1;
    }
    pack_all();
    pack_blocks();
    quantize_all();
    norm_all();
    multiply_all();
    multiply_and_finish();
    multiply_blocks();
    attend_all();
    recur_all();
    sample_all();
    return 0;
}
