// Prepares rows for attention: norm and rotation of a head, keys and values in the form that the
// caches store, queries in the form that a tile multiplies. Compiled once per instruction set (see
// kernels.h), with the same result in all of them.
#include "attention_elements.h"

namespace soliton::SOLITON_ISA {
namespace {

// Rounds to nearest, ties to even. The carry could turn a NaN into infinity, so a NaN is truncated
// instead and stays quiet.
SOLITON_INLINE uint16_t to_bfloat16(float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40u;
    return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

// Writes codes -127..127 and returns their scale, which is NaN for a row with a NaN or an infinity.
float to_int8(const float* values, int64_t n, int8_t* codes) {
    // Without their sign, floats have the same order as their bits, and NaN is the largest.
    uint32_t largest_bits = 0;
#pragma omp simd reduction(max : largest_bits)
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t bits = __builtin_bit_cast(uint32_t, values[i]) & 0x7fffffffu;
        largest_bits = bits > largest_bits ? bits : largest_bits;
    }
    const float largest = __builtin_bit_cast(float, largest_bits);
    const bool usable = largest >= kSmallest && largest < kInfinity;
    const float inverse = usable ? 127.0f / largest : 0.0f;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
        // Adding 1.5 * 2^23 rounds to nearest, ties to even, and leaves the integer in the low
        // bits.
        const float scaled = usable ? values[i] * inverse : 0.0f;
        codes[i] = static_cast<int8_t>(__builtin_bit_cast(int32_t, scaled + 0x1.8p23f));
    }
    return largest < kInfinity ? (usable ? largest / 127.0f : 0.0f) : largest - largest;
}

// The place of element i within its group.
template <KvType kKv>
SOLITON_INLINE int64_t place_in_group(int64_t i) {
    return kKv == KvType::kInt8 ? (i & 1) << 1 | i >> 1 : i;
}

// Copies the elements of one key, or of one value, to their places in a kv head's cache.
template <KvType kKv, typename T>
void place_key(const T* key, int64_t head_dim, int64_t pos, T* cache) {
    constexpr int64_t kGroup = kPerLane<kKv>;
    T* lane = cache + pos / kLanes * kLanes * padded(head_dim) + pos % kLanes * kGroup;
    for (int64_t i = 0; i < head_dim; ++i) {
        lane[i / kGroup * kGroup * kLanes + place_in_group<kKv>(i % kGroup)] = key[i];
    }
}

template <KvType kKv, typename T>
void place_value(const T* value, int64_t head_dim, int64_t pos, int64_t max_seq_len, T* cache) {
    constexpr int64_t kGroup = kPerLane<kKv>;
    T* row = cache + pos / kGroup * kGroup * kLanes + place_in_group<kKv>(pos % kGroup);
    const int64_t panel = padded(max_seq_len) * kLanes;
    for (int64_t i = 0; i < head_dim; ++i) {
        row[i / kLanes * panel + i % kLanes * kGroup] = value[i];
    }
}

template <KvType kKv, typename T>
void place(const AttentionArgs& args, const T* key, const T* value, int64_t kv_head, int64_t pos) {
    const int64_t head = kv_head * padded(args.max_seq_len) * padded(args.head_dim);
    place_key<kKv>(key, args.head_dim, pos, static_cast<T*>(args.k_cache) + head);
    place_value<kKv>(value, args.head_dim, pos, args.max_seq_len,
                     static_cast<T*>(args.v_cache) + head);
}

// `pos`: the place in the caches.
void store_position(const AttentionArgs& args, const float* key, const float* value,
                    int64_t kv_head, int64_t pos) {
    const int64_t n = args.head_dim;
    switch (args.kv) {
        case KvType::kF32:
            return place<KvType::kF32>(args, key, value, kv_head, pos);
        case KvType::kBf16: {
            uint16_t rounded[2][kMaxHeadDim];
            for (int64_t i = 0; i < n; ++i) {
                rounded[0][i] = to_bfloat16(key[i]);
                rounded[1][i] = to_bfloat16(value[i]);
            }
            return place<KvType::kBf16>(args, rounded[0], rounded[1], kv_head, pos);
        }
        case KvType::kInt8: {
            int8_t codes[2][kMaxHeadDim];
            const int64_t scale = kv_head * padded(args.max_seq_len) + pos;
            args.k_scales[scale] = to_int8(key, n, codes[0]);
            args.v_scales[scale] = to_int8(value, n, codes[1]);
            return place<KvType::kInt8>(args, codes[0], codes[1], kv_head, pos);
        }
    }
}

// Up to 16 columns of x from k on, then zeros.
SOLITON_INLINE Floats load_columns(const float* x, int64_t k, int64_t n) {
    return n - k >= kLanes ? load(x + k) : load_first(x + k, n - k);
}

// The optional norm, then the rotation of the first 2 * rotary_half dimensions (NEOX halves) for
// one position. Column i is always added in lane i % 16.
void norm_and_rotate(const AttentionArgs& args, const float* x, const float* norm, int64_t position,
                     float* out) {
    const int64_t head_dim = args.head_dim;
    if (norm) {
        Floats squares = broadcast(0.0f);
        for (int64_t i = 0; i < head_dim; i += kLanes) {
            const Floats columns = load_columns(x, i, head_dim);
            squares = multiply_add(columns, columns, squares);
        }
        const float mean = sum(squares) / static_cast<float>(head_dim);
        const float inverse = 1.0f / __builtin_sqrtf(mean + args.eps);
#pragma omp simd
        for (int64_t i = 0; i < head_dim; ++i) {
            out[i] = x[i] * inverse * norm[i];
        }
    } else {
        __builtin_memcpy(out, x, head_dim * sizeof(float));
    }
    const int64_t half = args.rotary_half;
    const float* cos = args.cos + position * half;
    const float* sin = args.sin + position * half;
#pragma omp simd
    for (int64_t i = 0; i < half; ++i) {
        const float first = out[i];
        const float second = out[i + half];
        out[i] = first * cos[i] - second * sin[i];
        out[i + half] = second * cos[i] + first * sin[i];
    }
}

}  // namespace

void store_keys_values(const AttentionArgs& args, int64_t pos, int64_t kv_head, int64_t begin_row,
                       int64_t end_row) {
    const int64_t head_dim = args.head_dim;
    const int64_t row_size = qkv_width(args);
    float key[kMaxHeadDim];
    for (int64_t row = begin_row; row < end_row; ++row) {
        const float* keys = args.qkv + row * row_size + args.n_heads * head_dim;
        const float* values = keys + args.n_kv_heads * head_dim;
        norm_and_rotate(args, keys + kv_head * head_dim, args.k_norm, pos + row, key);
        store_position(args, key, values + kv_head * head_dim, kv_head, place_of(args, pos + row));
    }
}

void load_queries(const AttentionArgs& args, const QueryTile& tile, AttentionWork& work) {
    const int64_t head_dim = args.head_dim;
    const int64_t row_size = qkv_width(args);
    const int64_t group = args.n_heads / args.n_kv_heads;
    const float scale = args.scale * kLog2E;
    const int64_t stride = is_wide(head_dim) ? kWideStride : kTileStride;
    for (int64_t i = 0; i < tile.count; ++i) {
        const int64_t row = (tile.first + i) / group;
        const int64_t head = tile.kv_head * group + (tile.first + i) % group;
        float* query = work.queries + i * stride;
        norm_and_rotate(args, args.qkv + row * row_size + head * head_dim, args.q_norm,
                        tile.position(row), query);
        fill(query, head_dim, padded(head_dim), 0.0f);
        for (int64_t j = 0; j < head_dim; j += kLanes) {
            store(query + j, multiply(load(query + j), broadcast(scale)));
        }
        if (args.kv == KvType::kInt8) {
            work.query_scales[i] = to_codes(query, head_dim, work.query_codes + i * stride);
        }
    }
}

}  // namespace soliton::SOLITON_ISA
