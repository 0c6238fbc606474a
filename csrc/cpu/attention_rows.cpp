// Prepares rows for attention: norm and rotation of a head, keys and values in the form that the
// caches store, queries in the form that a tile multiplies. Compiled once per instruction set (see
// kernels.h), with the same result in all of them.
#include "attention_common.h"
#include "attention_elements.h"
#include "attention_rotation.h"

namespace soliton::SOLITON_ISA {
namespace {

// How many scales are tried for a block of 4-bit codes: 0.75, 0.8, ... of the one with which the
// largest number is that of the levels' range.
constexpr int kScaleTrials = 8;

// Rounds to nearest, ties to even. The carry could turn a NaN into infinity, so a NaN is truncated
// instead and stays quiet.
SOLITON_INLINE uint16_t to_bfloat16(float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40u;
    return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

// Rotates a head, writes its codes, -127..127, and returns their scale, which is NaN for a row with
// a NaN or an infinity.
float to_int8(const float* head, int64_t n, int8_t* codes) {
    float values[kMaxHeadDim];
    __builtin_memcpy(values, head, n * sizeof(float));
    rotate_head(values, n, Side::kStored);
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

// 32 numbers or fewer, then zeros, and what 4 bits make of them.
struct Int4Block {
    float values[kScaledDims];
    int32_t codes[kScaledDims];
    float lost[kScaledDims];  // of each number
};

// The nearest level of each number in units of the scale. Returns the squared error of all.
float to_levels(float scale, int64_t n, Int4Block& block) {
    const float inverse = 1.0f / scale;
    float levels[kScaledDims];
    for (int64_t i = 0; i < kScaledDims; ++i) {
        block.codes[i] = 0;
        levels[i] = kLevels.at[0];
        block.lost[i] = 0.0f;
    }
    for (int level = 1; level < 16; ++level) {
        const float step = static_cast<float>(kLevels.at[level] - kLevels.at[level - 1]);
        const float between = static_cast<float>(kLevels.at[level]) - 0.5f * step;
#pragma omp simd
        for (int64_t i = 0; i < kScaledDims; ++i) {
            const bool above = block.values[i] * inverse > between;
            block.codes[i] += above ? 1 : 0;
            levels[i] += above ? step : 0.0f;
        }
    }
    for (int64_t i = 0; i < n; ++i) {
        block.lost[i] = block.values[i] - levels[i] * scale;
    }
    Floats squares = broadcast(0.0f);
    for (int64_t i = 0; i < kScaledDims; i += kLanes) {
        const Floats lost = load(block.lost + i);
        squares = multiply_add(lost, lost, squares);
    }
    return sum(squares);
}

// The scale as it is stored, in its upper half.
SOLITON_INLINE float as_stored(uint16_t scale) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(scale) << 16);
}

// Writes the codes of n rotated numbers, at most 32, and returns the bits of their scale: that of
// the tried ones which loses least. It is NaN where a number is NaN or infinite.
uint16_t to_int4(const float* values, int64_t n, uint8_t* codes) {
    Int4Block block = {};
    __builtin_memcpy(block.values, values, n * sizeof(float));
    Ints bits = broadcast(0);
    for (int64_t i = 0; i < kScaledDims; i += kLanes) {
        bits = larger(bits, magnitude_bits(load(block.values + i)));
    }
    const float magnitude = __builtin_bit_cast(float, largest(bits));
    if (!(magnitude >= kSmallest && magnitude < kInfinity)) {
        for (int64_t i = 0; i < n; ++i) {
            codes[i] = 0;
        }
        return magnitude < kSmallest ? uint16_t{0} : uint16_t{0x7fc0};
    }
    float least = kInfinity;
    uint16_t best = 0;
    for (int trial = 0; trial < kScaleTrials; ++trial) {
        const float share = 0.75f + 0.05f * static_cast<float>(trial);
        const uint16_t scale = to_bfloat16(magnitude / kLevelRange * share);
        const float error = to_levels(as_stored(scale), n, block);
        if (error < least) {
            least = error;
            best = scale;
        }
    }
    to_levels(as_stored(best), n, block);
    for (int64_t i = 0; i < n; ++i) {
        codes[i] = static_cast<uint8_t>(block.codes[i]);
    }
    return best;
}

// The place of element i within its group, or in half of one.
template <KvType kKv>
SOLITON_INLINE int64_t place_in_group(int64_t i) {
    return kHasCodes<kKv> ? (i & 1) << 1 | i >> 1 : i;
}

// Puts the code of element i of a group into its half of a byte. The other half stays.
SOLITON_INLINE void put_nibble(uint8_t* lane, int64_t i, uint8_t code) {
    uint8_t* byte = lane + place_in_group<KvType::kInt4>(i % 4);
    const int shift = i < 4 ? 0 : 4;
    *byte = static_cast<uint8_t>((*byte & ~(15 << shift)) | code << shift);
}

// Rotates a head and writes its codes of 4 bits, and their scales to where they belong.
void to_int4(const AttentionArgs& args, const float* head, int64_t kv_head, int64_t pos,
             void* scales, uint8_t* codes) {
    const int64_t n = args.head_dim;
    float rotated[kMaxHeadDim];
    __builtin_memcpy(rotated, head, n * sizeof(float));
    rotate_head(rotated, n, Side::kStored);
    const int64_t positions = padded(args.max_seq_len);
    uint16_t* pairs =
        static_cast<uint16_t*>(scales) + 2 * (kv_head * scale_pairs(n) * positions + pos);
    for (int64_t i = 0, block = 0; i < n; i += kScaledDims, ++block) {
        const int64_t left = n - i;
        pairs[block / 2 * 2 * positions + block % 2] =
            to_int4(rotated + i, left < kScaledDims ? left : kScaledDims, codes + i);
    }
}

// The lane of a key that holds its first dimensions. Those of the next ones follow a row of lanes
// later each.
uint8_t* key_lane(const AttentionArgs& args, int64_t kv_head, int64_t pos) {
    const int64_t head_dim = padded(args.head_dim);
    const int64_t first = kv_head * padded(args.max_seq_len) + pos / kLanes * kLanes;
    return static_cast<uint8_t*>(args.k_cache) + stored_bytes(args.k_type, first * head_dim) +
           pos % kLanes * kLaneBytes;
}

// Calls `store(lane, i)` for each dimension i of a value, with the lane that holds it.
template <typename Store>
SOLITON_INLINE void for_value_lanes(const AttentionArgs& args, int64_t kv_head, int64_t pos,
                                    const Store& store) {
    const ValuePlaces places = value_places(args);
    uint8_t* head = static_cast<uint8_t*>(args.v_cache) + kv_head * places.head_bytes();
    for (int64_t first = 0; first < args.head_dim; first += kWovenDims) {
        uint8_t* row = head + places.row(first, pos);
        const int64_t left = args.head_dim - first;
        for (int64_t i = 0; i < (left < kWovenDims ? left : kWovenDims); ++i) {
            store(row + i * kLaneBytes, first + i);
        }
    }
}

void store_key_int4(const AttentionArgs& args, const float* key, int64_t kv_head, int64_t pos) {
    uint8_t codes[kMaxHeadDim];
    to_int4(args, key, kv_head, pos, args.k_scales, codes);
    uint8_t* lane = key_lane(args, kv_head, pos);
    for (int64_t i = 0; i < args.head_dim; ++i) {
        put_nibble(lane + i / 8 * kLanes * kLaneBytes, i % 8, codes[i]);
    }
}

void store_value_int4(const AttentionArgs& args, const float* value, int64_t kv_head, int64_t pos) {
    uint8_t codes[kMaxHeadDim];
    to_int4(args, value, kv_head, pos, args.v_scales, codes);
    for_value_lanes(args, kv_head, pos,
                    [&](uint8_t* lane, int64_t i) { put_nibble(lane, pos % 8, codes[i]); });
}

// Copies the elements of one key, or of one value, to their places in the cache.
template <KvType kKv, typename T>
void place_key(const AttentionArgs& args, const T* key, int64_t kv_head, int64_t pos) {
    constexpr int64_t kGroup = kPerLane<kKv>;
    T* lane = reinterpret_cast<T*>(key_lane(args, kv_head, pos));
    for (int64_t i = 0; i < args.head_dim; ++i) {
        lane[i / kGroup * kGroup * kLanes + place_in_group<kKv>(i % kGroup)] = key[i];
    }
}

template <KvType kKv, typename T>
void place_value(const AttentionArgs& args, const T* value, int64_t kv_head, int64_t pos) {
    const int64_t place = place_in_group<kKv>(pos % kPerLane<kKv>);
    for_value_lanes(args, kv_head, pos, [&](uint8_t* lane, int64_t i) {
        reinterpret_cast<T*>(lane)[place] = value[i];
    });
}

// `pos`: the place in the caches.
void store_key(const AttentionArgs& args, const float* key, int64_t kv_head, int64_t pos) {
    const int64_t n = args.head_dim;
    switch (args.k_type) {
        case KvType::kF32:
            return place_key<KvType::kF32>(args, key, kv_head, pos);
        case KvType::kBf16: {
            uint16_t rounded[kMaxHeadDim];
            for (int64_t i = 0; i < n; ++i) {
                rounded[i] = to_bfloat16(key[i]);
            }
            return place_key<KvType::kBf16>(args, rounded, kv_head, pos);
        }
        case KvType::kInt8: {
            int8_t codes[kMaxHeadDim];
            float* scales = static_cast<float*>(args.k_scales);
            scales[kv_head * padded(args.max_seq_len) + pos] = to_int8(key, n, codes);
            return place_key<KvType::kInt8>(args, codes, kv_head, pos);
        }
        case KvType::kInt4:
            return store_key_int4(args, key, kv_head, pos);
    }
}

void store_value(const AttentionArgs& args, const float* value, int64_t kv_head, int64_t pos) {
    const int64_t n = args.head_dim;
    switch (args.v_type) {
        case KvType::kF32:
            return place_value<KvType::kF32>(args, value, kv_head, pos);
        case KvType::kBf16: {
            uint16_t rounded[kMaxHeadDim];
            for (int64_t i = 0; i < n; ++i) {
                rounded[i] = to_bfloat16(value[i]);
            }
            return place_value<KvType::kBf16>(args, rounded, kv_head, pos);
        }
        case KvType::kInt8: {
            int8_t codes[kMaxHeadDim];
            float* scales = static_cast<float*>(args.v_scales);
            scales[kv_head * padded(args.max_seq_len) + pos] = to_int8(value, n, codes);
            return place_value<KvType::kInt8>(args, codes, kv_head, pos);
        }
        case KvType::kInt4:
            return store_value_int4(args, value, kv_head, pos);
    }
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
        if (args.common_keys) {
            take_common(args, kv_head, pos + row, key);
        }
        const int64_t place = place_of(args, pos + row);
        store_key(args, key, kv_head, place);
        store_value(args, values + kv_head * head_dim, kv_head, place);
    }
}

void load_queries(const AttentionArgs& args, const QueryTile& tile, AttentionWork& work) {
    const int64_t head_dim = args.head_dim;
    const int64_t row_size = qkv_width(args);
    const int64_t group = args.n_heads / args.n_kv_heads;
    const float scale = args.scale * kLog2E;
    const int64_t stride = is_wide(head_dim) ? kWideStride : kTileStride;
    const bool has_codes = args.k_type == KvType::kInt8 || args.k_type == KvType::kInt4;
    float factors[kMaxHeadDim];
    for (int64_t i = 0; i < tile.count; ++i) {
        const int64_t row = (tile.first + i) / group;
        const int64_t head = tile.kv_head * group + (tile.first + i) % group;
        float* query = work.queries + i * stride;
        norm_and_rotate(args, args.qkv + row * row_size + head * head_dim, args.q_norm,
                        tile.position(row), query);
        if (args.common_keys) {
            work.common_scores[i] = multiply_common(args, tile.kv_head, scale, query, factors);
        }
        if (has_codes) {
            rotate_head(query, head_dim, Side::kRead);
        }
        fill(query, head_dim, padded(head_dim), 0.0f);
        for (int64_t j = 0; j < head_dim; j += kLanes) {
            store(query + j, multiply(load(query + j), broadcast(scale)));
        }
        if (has_codes) {
            work.query_scales[i] = to_codes(query, head_dim, work.query_codes + i * stride);
        }
        if (args.common_keys) {
            __builtin_memcpy(query, factors, 2 * args.rotary_half * sizeof(float));
        }
    }
}

}  // namespace soliton::SOLITON_ISA
