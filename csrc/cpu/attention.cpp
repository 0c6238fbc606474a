// Attention over one block of keys, and what stands before and after it: the norm and rotation of a
// head, keys and values as the cache stores them, the merge of blocks. Compiled once per
// instruction set (see kernels.h), with the same result in all of them; ops_attention.cpp says who
// does which block.
//
// Scores and values are one product of small matrices: scores are queries times keys, outputs are
// probabilities times values, and both caches lie in panels (attention.h) that make the lanes of a
// vector 16 keys or 16 dimensions. So each stored number is unpacked once for several queries and
// every sum is one chain in ascending order, whatever the tile. Beside int8 keys and values the
// other factor is rounded to 15 bits, and sums are integers.
#include "kernels.h"
#include "lanes.h"

namespace soliton::SOLITON_ISA {
namespace {

static_assert(kLanes == kKvLanes);

constexpr float kInfinity = __builtin_inff();
constexpr float kLargestCode = 32767.0f;  // of queries and probabilities
// Below it kLargestCode / largest could overflow, and no sum of other numbers would notice.
constexpr float kSmallest = 0x1p-100f;
constexpr int64_t kLaneBytes = 4;
constexpr int64_t kRowBytes = kLanes * kLaneBytes;  // of a panel

// 2^x for -126 <= x <= 0 to about one unit in the last place, about 0 below, NaN of NaN.
SOLITON_INLINE Floats exp2_or_zero(Floats x) {
    // x = n + r with |r| <= 1/2. Of n = -127, power_of_two makes 0.
    x = larger(broadcast(-127.0f), x);
    const Ints n = round(x);
    const Floats r = multiply_add(to_floats(n), broadcast(-1.0f), x);
    Floats p = broadcast(0x1.41fbc2p-13f);  // minimax for the relative error
    p = multiply_add(p, r, broadcast(0x1.5f3e52p-10f));
    p = multiply_add(p, r, broadcast(0x1.3b2d4cp-7f));
    p = multiply_add(p, r, broadcast(0x1.c6aee8p-5f));
    p = multiply_add(p, r, broadcast(0x1.ebfbdcp-3f));
    p = multiply_add(p, r, broadcast(0x1.62e430p-1f));
    p = multiply_add(p, r, broadcast(1.0f));
    return multiply(p, power_of_two(n));
}

SOLITON_INLINE float first_lane(Floats a) {
    float lanes[kLanes];
    store(lanes, a);
    return lanes[0];
}

// Of what is not NaN.
SOLITON_INLINE float largest(Floats a) {
    float lanes[kLanes];
    store(lanes, a);
    float result = lanes[0];
    for (int i = 1; i < kLanes; ++i) {
        result = lanes[i] > result ? lanes[i] : result;
    }
    return result;
}

// --- The product ---

// How many elements a lane of 32 bits holds.
template <KvType kKv>
constexpr int64_t kPerLane = 4;  // int8
template <>
constexpr int64_t kPerLane<KvType::kF32> = 1;
template <>
constexpr int64_t kPerLane<KvType::kBf16> = 2;

template <KvType kKv>
constexpr int64_t kElementBytes = kLaneBytes / kPerLane<kKv>;

// The factor of a panel: rows kTileStride apart.
template <KvType kKv>
struct Factor {
    const float* rows;
};
template <>
struct Factor<KvType::kInt8> {
    const int16_t* rows;
    const float* scales;  // one per row
};

// out (rows, n_panels * 16) = factor (rows, n) times panels (n_panels, n / group, 16, group).
template <KvType kKv>
struct Product {
    Factor<kKv> factor;
    int64_t rows;
    int64_t n;
    const uint8_t* panels;
    int64_t pitch;  // bytes from panel to panel
    int64_t n_panels;
    float* out;
    int64_t out_stride;
};

template <KvType kKv>
SOLITON_INLINE Floats load_element(const uint8_t* lanes, bool second) {
    if constexpr (kKv == KvType::kF32) {
        return load(reinterpret_cast<const float*>(lanes));
    } else {
        return load_bfloat16(lanes, second);
    }
}

template <KvType kKv, int kRows, int kPanels>
void multiply_floats(const Product<kKv>& product, int64_t row, int64_t panel) {
    const float* factor = product.factor.rows + row * kTileStride;
    const uint8_t* panels = product.panels + panel * product.pitch;
    Floats sums[kRows][kPanels];
    for (auto& of_row : sums) {
        for (Floats& sum : of_row) {
            sum = broadcast(0.0f);
        }
    }
    const auto step = [&](const float* a, const uint8_t* lanes, bool second)
                          __attribute__((always_inline)) {
                              Floats columns[kPanels];
                              for (int j = 0; j < kPanels; ++j) {
                                  columns[j] = load_element<kKv>(lanes + j * product.pitch, second);
                              }
                              for (int k = 0; k < kRows; ++k) {
                                  const Floats value = broadcast(a[k * kTileStride]);
                                  for (int j = 0; j < kPanels; ++j) {
                                      sums[k][j] = multiply_add(value, columns[j], sums[k][j]);
                                  }
                              }
                          };
    const float* end = factor + product.n;
    for (; factor + kPerLane<kKv> <= end; factor += kPerLane<kKv>, panels += kRowBytes) {
        __builtin_prefetch(panels + kPanels * product.pitch);
        step(factor, panels, false);
        if constexpr (kKv == KvType::kBf16) {
            step(factor + 1, panels, true);
        }
    }
    if (factor < end) {
        step(factor, panels, false);
    }
    for (int k = 0; k < kRows; ++k) {
        for (int j = 0; j < kPanels; ++j) {
            store(product.out + (row + k) * product.out_stride + (panel + j) * kLanes, sums[k][j]);
        }
    }
}

// The factor's codes from n up to the next multiple of 4 are 0.
template <int kRows, int kPanels>
void multiply_codes(const Product<KvType::kInt8>& product, int64_t row, int64_t panel) {
    const int16_t* factor = product.factor.rows + row * kTileStride;
    const uint8_t* panels = product.panels + panel * product.pitch;
    Ints sums[kRows][kPanels];
    for (auto& of_row : sums) {
        for (Ints& sum : of_row) {
            sum = broadcast(0);
        }
    }
    const auto step = [&](const int16_t* a,
                          const Ints(&words)[kPanels]) __attribute__((always_inline)) {
        for (int k = 0; k < kRows; ++k) {
            int32_t pair;
            __builtin_memcpy(&pair, a + k * kTileStride, sizeof pair);
            for (int j = 0; j < kPanels; ++j) {
                sums[k][j] = multiply_add_words(broadcast(pair), words[j], sums[k][j]);
            }
        }
    };
    const int16_t* end = factor + product.n;
    for (; factor < end; factor += 4, panels += kRowBytes) {
        __builtin_prefetch(panels + kPanels * product.pitch);
        Ints lanes[kPanels];
        Ints words[kPanels];
        for (int j = 0; j < kPanels; ++j) {
            lanes[j] = load_ints(panels + j * product.pitch);
            words[j] = even_bytes(lanes[j]);
        }
        step(factor, words);
        for (int j = 0; j < kPanels; ++j) {
            words[j] = odd_bytes(lanes[j]);
        }
        step(factor + 2, words);
    }
    for (int k = 0; k < kRows; ++k) {
        const Floats scale = broadcast(product.factor.scales[row + k]);
        for (int j = 0; j < kPanels; ++j) {
            store(product.out + (row + k) * product.out_stride + (panel + j) * kLanes,
                  multiply(to_floats(sums[k][j]), scale));
        }
    }
}

template <KvType kKv, int kRows, int kPanels>
SOLITON_INLINE void multiply_tile(const Product<kKv>& product, int64_t row, int64_t panel) {
    if constexpr (kKv == KvType::kInt8) {
        multiply_codes<kRows, kPanels>(product, row, panel);
    } else {
        multiply_floats<kKv, kRows, kPanels>(product, row, panel);
    }
}

// All panels for rows begin.. before end. Panels outside, so that each comes from far once.
template <KvType kKv, int kRows, int kPanels>
void multiply_rows(const Product<kKv>& product, int64_t begin, int64_t end) {
    int64_t panel = 0;
    for (; panel + kPanels <= product.n_panels; panel += kPanels) {
        for (int64_t row = begin; row < end; row += kRows) {
            multiply_tile<kKv, kRows, kPanels>(product, row, panel);
        }
    }
    if constexpr (kPanels > 1) {
        for (; panel < product.n_panels; ++panel) {
            for (int64_t row = begin; row < end; row += kRows) {
                multiply_tile<kKv, kRows, 1>(product, row, panel);
            }
        }
    }
}

template <KvType kKv>
void multiply(const Product<kKv>& product) {
    // At least 8 sums at once, or they wait for each other; no more than there are registers for.
#if defined(SOLITON_LANES_AVX512)
    constexpr int kRows = 8;
    constexpr int kPanels = 2;
#else
    constexpr int kRows = 4;
    constexpr int kPanels = 1;
#endif
    const int64_t whole = product.rows / kRows * kRows;
    if (whole) {
        multiply_rows<kKv, kRows, kPanels>(product, 0, whole);
    }
    int64_t row = whole;
    if constexpr (kRows > 4) {
        if (product.rows - row >= 4) {
            multiply_rows<kKv, 4, kPanels>(product, row, row + 4);
            row += 4;
        }
    }
    switch (product.rows - row) {
        case 3:
            return multiply_rows<kKv, 3, kPanels>(product, row, row + 3);
        case 2:
            return multiply_rows<kKv, 2, 2>(product, row, row + 2);
        case 1:
            return multiply_rows<kKv, 1, 4>(product, row, row + 1);
        default:
            return;
    }
}

// --- Keys and values in the cache ---

// Round to nearest, ties to even. The carry could turn a NaN into infinity, so a NaN is cut
// instead, kept quiet.
SOLITON_INLINE uint16_t to_bfloat16(float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40u;
    return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

// Codes -127..127 and their scale; a row with a NaN or an infinity gets a scale that is none.
float to_int8(const float* values, int64_t n, int8_t* codes) {
    // Among floats without a sign the order is that of their bits, and NaN is the largest.
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
        // Adding 1.5 * 2^23 rounds to nearest even and leaves the integer in the low bits.
        const float scaled = usable ? values[i] * inverse : 0.0f;
        codes[i] = static_cast<int8_t>(__builtin_bit_cast(int32_t, scaled + 0x1.8p23f));
    }
    return largest < kInfinity ? (usable ? largest / 127.0f : 0.0f) : largest - largest;
}

// Where element i of its group stands.
template <KvType kKv>
SOLITON_INLINE int64_t place_in_group(int64_t i) {
    return kKv == KvType::kInt8 ? (i & 1) << 1 | i >> 1 : i;
}

// The elements of one key, and of one value, to their places of a kv head's cache.
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

// x of up to 16 columns from k on, then zeros.
SOLITON_INLINE Floats load_columns(const float* x, int64_t k, int64_t n) {
    return n - k >= kLanes ? load(x + k) : load_first(x + k, n - k);
}

// The optional norm, then the rotation of the first 2 * rotary_half dimensions (NEOX halves) for
// one position. A column is always added in lane i % 16.
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

// --- A block ---

// values (padded n,) as codes, and their scale; one that is no number where there is such a value.
float to_codes(const float* values, int64_t n, int16_t* codes) {
    Ints bits = broadcast(0);
    for (int64_t i = 0; i < n; i += kLanes) {
        bits = larger(bits, magnitude_bits(load(values + i)));
    }
    const float magnitude = __builtin_bit_cast(float, largest(bits));
    const bool usable = magnitude >= kSmallest && magnitude < kInfinity;
    const Floats inverse = broadcast(usable ? kLargestCode / magnitude : 0.0f);
    for (int64_t i = 0; i < n; i += kLanes) {
        store_words(codes + i, round(multiply(load(values + i), inverse)));
    }
    if (usable) {
        return magnitude / kLargestCode;
    }
    return magnitude < kSmallest ? 0.0f : magnitude - magnitude;
}

// Which keys of a block a query sees: from begin, before end.
struct Visible {
    int64_t begin;
    int64_t end;
};

Visible visible_keys(const AttentionArgs& args, int64_t position, int64_t block) {
    const int64_t first = block * kKeyBlock;
    const int64_t oldest = args.window ? position - args.window + 1 : 0;
    const int64_t begin = oldest > first ? oldest - first : 0;
    const int64_t behind = position + 1 - first;
    const int64_t end = behind < kKeyBlock ? behind : kKeyBlock;
    return begin < end ? Visible{begin, end} : Visible{0, 0};
}

void fill(float* values, int64_t begin, int64_t end, float value) {
    for (int64_t i = begin; i < end; ++i) {
        values[i] = value;
    }
}

// Scores of columns begin..end become probabilities without their normalisation, 0 for what the
// query does not see; what was largest and what they sum to goes into the record's tail.
void softmax(float* scores, int64_t begin, int64_t end, Visible visible, const float* key_scales,
             const float* value_scales, float* tail) {
    if (key_scales) {
        for (int64_t i = begin; i < end; i += kLanes) {
            store(scores + i, multiply(load(scores + i), load(key_scales + i)));
        }
    }
    fill(scores, begin, visible.begin, -kInfinity);
    fill(scores, visible.end, end, -kInfinity);
    Floats tops = broadcast(-kInfinity);
    for (int64_t i = begin; i < end; i += kLanes) {
        tops = larger(load(scores + i), tops);
    }
    const float top = largest(tops);
    Floats sums = broadcast(0.0f);
    for (int64_t i = begin; i < end; i += kLanes) {
        Floats p = exp2_or_zero(add(load(scores + i), broadcast(-top)));
        sums = add(sums, p);
        if (value_scales) {
            p = multiply(p, load(value_scales + i));
        }
        store(scores + i, p);
    }
    tail[0] = top;
    tail[1] = sum(sums);
}

// The part of a block that a tile sees, at whole lanes of keys.
struct Span {
    int64_t begin;   // of the block, a multiple of 16
    int64_t end;     // the last query's
    int64_t behind;  // the next multiple of 16

    int64_t size() const { return behind - begin; }
};

template <KvType kKv>
Factor<kKv> queries_of(const AttentionWork& work) {
    if constexpr (kKv == KvType::kInt8) {
        return {work.query_codes, work.query_scales};
    } else {
        return {work.queries};
    }
}

template <KvType kKv>
Factor<kKv> probabilities_of(AttentionWork& work, int64_t rows, Span span) {
    if constexpr (kKv == KvType::kInt8) {
        for (int64_t i = 0; i < rows; ++i) {
            work.probability_scales[i] =
                to_codes(work.scores + i * kTileStride + span.begin, span.size(),
                         work.probability_codes + i * kTileStride);
        }
        return {work.probability_codes, work.probability_scales};
    } else {
        return {work.scores + span.begin};
    }
}

template <KvType kKv>
void attend(const AttentionArgs& args, const QueryTile& tile, int64_t block, AttentionWork& work,
            float* records) {
    const int64_t head_dim = padded(args.head_dim);
    const int64_t positions = padded(args.max_seq_len);
    const int64_t record_size = head_dim + kRecordTail;
    const int64_t group = args.n_heads / args.n_kv_heads;

    Visible visible[kQueryTile];
    Span span = {kKeyBlock, 0, 0};
    for (int64_t i = 0; i < tile.count; ++i) {
        visible[i] = visible_keys(args, tile.pos + (tile.first + i) / group, block);
        if (visible[i].end) {
            span.begin = visible[i].begin < span.begin ? visible[i].begin : span.begin;
            span.end = visible[i].end > span.end ? visible[i].end : span.end;
        }
        float* tail = records + i * record_size + head_dim;
        tail[0] = -kInfinity;
        tail[1] = 0.0f;
    }
    if (span.begin >= span.end) {
        return;  // outputs of a record that says so are not looked at
    }
    span.begin = span.begin / kLanes * kLanes;
    span.behind = padded(span.end);

    const int64_t first = block * kKeyBlock + span.begin;
    const int64_t head = tile.kv_head * positions * head_dim;
    const uint8_t* keys =
        static_cast<const uint8_t*>(args.k_cache) + (head + first * head_dim) * kElementBytes<kKv>;
    const uint8_t* values =
        static_cast<const uint8_t*>(args.v_cache) + (head + first * kLanes) * kElementBytes<kKv>;

    multiply<kKv>({
        .factor = queries_of<kKv>(work),
        .rows = tile.count,
        .n = args.head_dim,
        .panels = keys,
        .pitch = kLanes * head_dim * kElementBytes<kKv>,
        .n_panels = span.size() / kLanes,
        .out = work.scores + span.begin,
        .out_stride = kTileStride,
    });

    const float* key_scales = nullptr;
    const float* value_scales = nullptr;
    if constexpr (kKv == KvType::kInt8) {
        const int64_t begin = tile.kv_head * positions + block * kKeyBlock;
        key_scales = args.k_scales + begin;
        // A copy, because what nobody has written may be anything, and it meets probability 0.
        fill(work.value_scales, span.end, span.behind, 0.0f);
        __builtin_memcpy(work.value_scales + span.begin, args.v_scales + begin + span.begin,
                         (span.end - span.begin) * sizeof(float));
        value_scales = work.value_scales;
    }
    for (int64_t i = 0; i < tile.count; ++i) {
        float* scores = work.scores + i * kTileStride;
        if (visible[i].end) {
            softmax(scores, span.begin, span.behind, visible[i], key_scales, value_scales,
                    records + i * record_size + head_dim);
        } else {
            fill(scores, span.begin, span.behind, 0.0f);
        }
    }

    // A key that a query does not see has probability 0 and leaves its sums as they are.
    multiply<kKv>({
        .factor = probabilities_of<kKv>(work, tile.count, span),
        .rows = tile.count,
        .n = span.end - span.begin,
        .panels = values,
        .pitch = positions * kLanes * kElementBytes<kKv>,
        .n_panels = head_dim / kLanes,
        .out = records,
        .out_stride = record_size,
    });
}

}  // namespace

void store_keys_values(const AttentionArgs& args, int64_t pos, int64_t kv_head, int64_t begin_row,
                       int64_t end_row) {
    const int64_t head_dim = args.head_dim;
    const int64_t row_size = (args.n_heads + 2 * args.n_kv_heads) * head_dim;
    float key[kMaxHeadDim];
    for (int64_t row = begin_row; row < end_row; ++row) {
        const float* keys = args.qkv + row * row_size + args.n_heads * head_dim;
        const float* values = keys + args.n_kv_heads * head_dim;
        norm_and_rotate(args, keys + kv_head * head_dim, args.k_norm, pos + row, key);
        store_position(args, key, values + kv_head * head_dim, kv_head, pos + row);
    }
}

void load_queries(const AttentionArgs& args, const QueryTile& tile, AttentionWork& work) {
    const int64_t head_dim = args.head_dim;
    const int64_t row_size = (args.n_heads + 2 * args.n_kv_heads) * head_dim;
    const int64_t group = args.n_heads / args.n_kv_heads;
    const float scale = args.scale * 0x1.715476p0f;  // log2(e): exp(x) = 2^(x log2(e))
    for (int64_t i = 0; i < tile.count; ++i) {
        const int64_t row = (tile.first + i) / group;
        const int64_t head = tile.kv_head * group + (tile.first + i) % group;
        float* query = work.queries + i * kTileStride;
        norm_and_rotate(args, args.qkv + row * row_size + head * head_dim, args.q_norm,
                        tile.pos + row, query);
        fill(query, head_dim, padded(head_dim), 0.0f);
        for (int64_t j = 0; j < head_dim; j += kLanes) {
            store(query + j, multiply(load(query + j), broadcast(scale)));
        }
        if (args.kv == KvType::kInt8) {
            work.query_scales[i] = to_codes(query, head_dim, work.query_codes + i * kTileStride);
        }
    }
}

void attend_block(const AttentionArgs& args, const QueryTile& tile, int64_t block,
                  AttentionWork& work, float* records) {
    switch (args.kv) {
        case KvType::kF32:
            return attend<KvType::kF32>(args, tile, block, work, records);
        case KvType::kBf16:
            return attend<KvType::kBf16>(args, tile, block, work, records);
        case KvType::kInt8:
            return attend<KvType::kInt8>(args, tile, block, work, records);
    }
}

void merge_record(float* merged, const float* record, int64_t head_dim) {
    const int64_t size = padded(head_dim);
    const float before = merged[size];
    const float block = record[size];
    if (block == -kInfinity && record[size + 1] == 0.0f) {
        return;  // the query sees nothing of the block
    }
    const float top = block > before ? block : before;
    const Floats keep = exp2_or_zero(broadcast(before - top));
    const Floats take = exp2_or_zero(broadcast(block - top));
    for (int64_t i = 0; i < size; i += kLanes) {
        store(merged + i, multiply_add(load(record + i), take, multiply(load(merged + i), keep)));
    }
    merged[size] = top;
    const Floats kept = multiply(broadcast(merged[size + 1]), keep);
    merged[size + 1] = first_lane(multiply_add(broadcast(record[size + 1]), take, kept));
}

void finish_record(const float* merged, int64_t head_dim, float* out) {
    const float inverse = 1.0f / merged[padded(head_dim) + 1];
#pragma omp simd
    for (int64_t i = 0; i < head_dim; ++i) {
        out[i] = merged[i] * inverse;
    }
}

}  // namespace soliton::SOLITON_ISA
