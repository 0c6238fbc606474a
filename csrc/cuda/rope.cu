// What attention of a prompt's chunk needs: norm and rotation of its queries and keys, storing keys
// and values in the caches, and converting int8 caches to bfloat16. A warp takes a row of a head.
// For decode steps, attention.cu does the norm, rotation and storing.
#include <algorithm>

#include "attention.h"
#include "common.cuh"
#include "head_row.cuh"

namespace soliton::cuda {
namespace {

constexpr int kRowsPerBlock = 8;
constexpr int kThreads = kRowsPerBlock * kWarp;

// In every row of the chunk: heads of queries, then of keys, then of values.
template <KvType kKv, int kWidth>
__global__ void __launch_bounds__(kThreads)
    rope_kernel(const AttentionArgs args, int64_t pos, int64_t n_rows, __nv_bfloat16* queries) {
    wait_for_previous_launch();
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int64_t n_all = args.n_heads + 2 * args.n_kv_heads;
    const int64_t index = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kWarp;
    if (index >= n_rows * n_all) {
        return;
    }
    const int64_t row = index / n_all;
    const int64_t head = index % n_all;
    const float* x = args.qkv + index * args.head_dim;
    const Rotation rotation = rotation_at(args, pos + row);
    const auto padded = static_cast<int>(padded_head_dim(args.head_dim));
    float elements[kRowElements<kWidth>];

    if (head < args.n_heads) {
        rotated_row<kWidth>(elements, x, args.q_norm, rotation, lane);
        auto* to = reinterpret_cast<uint8_t*>(queries + (row * args.n_heads + head) * padded);
        write_row<KvType::kBf16, kWidth>(to, stored_row<KvType::kBf16, kWidth>(elements), padded,
                                         lane);
        return;
    }
    const bool is_key = head < args.n_heads + args.n_kv_heads;
    if (is_key) {
        rotated_row<kWidth>(elements, x, args.k_norm, rotation, lane);
    } else {
        load_row<kWidth>(elements, x, rotation.head_dim, lane);
    }
    const auto stored = stored_row<kKv, kWidth>(elements);
    const int64_t kv_head = (head - args.n_heads) % args.n_kv_heads;
    const int64_t at = kv_head * args.max_seq_len + pos + row;
    auto* cache = static_cast<uint8_t*>(is_key ? args.k_cache : args.v_cache);
    write_row<kKv, kWidth>(cache + at * padded * kElementBytes<kKv>, stored, padded, lane);
    if (kKv == KvType::kInt8 && lane == 0) {
        (is_key ? args.k_scales : args.v_scales)[at] = stored.scale;
    }
}

template <int kWidth>
cudaError_t rope_of_width(const AttentionArgs& args, int64_t pos, int64_t n_rows,
                          __nv_bfloat16* queries, cudaStream_t stream) {
    const int64_t n = n_rows * (args.n_heads + 2 * args.n_kv_heads);
    const dim3 grid(static_cast<unsigned>((n + kRowsPerBlock - 1) / kRowsPerBlock));
    auto* kernel = args.kv == KvType::kBf16 ? rope_kernel<KvType::kBf16, kWidth>
                                            : rope_kernel<KvType::kInt8, kWidth>;
    return launch(kernel, grid, dim3(kThreads), 0, {stream}, args, pos, n_rows, queries);
}

// A thread converts 16 codes, which share one scale, to two times 16 bytes.
__global__ void __launch_bounds__(kThreads) unpack_kv_kernel(const UnpackKvArgs args) {
    wait_for_previous_launch();
    const int64_t padded = padded_head_dim(args.head_dim);
    const int64_t n_pieces = padded / 16;
    const int64_t n = args.end - args.begin;
    const int64_t piece = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (piece >= n * n_pieces) {
        return;
    }
    const int64_t position = blockIdx.y * args.max_seq_len + args.begin + piece / n_pieces;
    const float scale = args.scales[position];
    const auto* from = static_cast<const uint8_t*>(args.codes) + position * padded;
    const auto codes = reinterpret_cast<const uint4*>(from)[piece % n_pieces];
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
    uint32_t pairs[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const uint32_t both = words[i / 2] >> i % 2 * 16;
        const float first = static_cast<float>(static_cast<int>(both & 0xff) - 128);
        const float second = static_cast<float>(static_cast<int>(both >> 8 & 0xff) - 128);
        pairs[i] = bf16_bits(first * scale) | bf16_bits(second * scale) << 16;
    }
    auto* to = static_cast<uint4*>(args.out) + (blockIdx.y * n * n_pieces + piece) * 2;
    to[0] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    to[1] = make_uint4(pairs[4], pairs[5], pairs[6], pairs[7]);
}

}  // namespace

cudaError_t rope(const AttentionArgs& args, int64_t pos, int64_t n_rows, void* queries,
                 cudaStream_t stream) {
    auto* to = static_cast<__nv_bfloat16*>(queries);
    switch (head_width(args.head_dim)) {
        case 64:
            return rope_of_width<64>(args, pos, n_rows, to, stream);
        case 128:
            return rope_of_width<128>(args, pos, n_rows, to, stream);
        default:
            return rope_of_width<256>(args, pos, n_rows, to, stream);
    }
}

cudaError_t unpack_kv(const UnpackKvArgs& args, cudaStream_t stream) {
    const int64_t n = (args.end - args.begin) * (padded_head_dim(args.head_dim) / 16);
    const dim3 grid(static_cast<unsigned>((n + kThreads - 1) / kThreads),
                    static_cast<unsigned>(args.n_kv_heads));
    return launch(unpack_kv_kernel, grid, dim3(kThreads), 0, {stream}, args);
}

}  // namespace soliton::cuda
