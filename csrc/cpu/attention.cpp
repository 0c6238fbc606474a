// Attention over one block of keys, and what stands before and after it: the norm and rotation of a
// head, keys and values as the cache stores them, the merge of blocks. Compiled once per
// instruction set (see kernels.h); ops_attention.cpp says who does which block.
//
// Scores and values are one product of small matrices: scores are queries times keys, with the keys
// turned so that a vector holds one dimension of many keys; outputs are probabilities times values.
// So no sum runs across the lanes of a vector, each key is unpacked once for all queries of a tile,
// and every number is one chain of fused multiply-adds in ascending order, whatever the tile.
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "kernels.h"

namespace soliton::SOLITON_ISA {
namespace {

#ifndef SOLITON_VECTOR_BYTES  // set by hand to try a wider instruction set's code on a narrower one
#if defined(__AVX512F__)
#define SOLITON_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define SOLITON_VECTOR_BYTES 32
#else
#define SOLITON_VECTOR_BYTES 16
#endif
#endif

constexpr int kLanes = SOLITON_VECTOR_BYTES / 4;
typedef float Floats __attribute__((vector_size(SOLITON_VECTOR_BYTES)));
typedef int32_t Ints __attribute__((vector_size(SOLITON_VECTOR_BYTES)));
// The same in memory: at any address, of any type.
typedef float StoredFloats
    __attribute__((vector_size(SOLITON_VECTOR_BYTES), aligned(1), may_alias));
typedef int32_t StoredInts
    __attribute__((vector_size(SOLITON_VECTOR_BYTES), aligned(1), may_alias));

// Columns of a product come in multiples of this, so that no width of tile leaves a rest.
constexpr int64_t kColumns = 32;
static_assert(kColumns == kHeadDimMultiple && kKeyChunk % kColumns == 0);

constexpr float kInfinity = __builtin_inff();

[[gnu::always_inline]] inline Floats load(const void* at) {
    return *static_cast<const StoredFloats*>(at);
}

[[gnu::always_inline]] inline void store(void* at, Floats values) {
    *static_cast<StoredFloats*>(at) = values;
}

[[gnu::always_inline]] inline Floats broadcast(float value) {
    return value - Floats{};  // minus, because -0 plus 0 would lose the sign
}

[[gnu::always_inline]] inline Floats as_floats(Ints bits) {
    return __builtin_bit_cast(Floats, bits);
}

[[gnu::always_inline]] inline Ints as_ints(Floats values) {
    return __builtin_bit_cast(Ints, values);
}

// a * b + c, rounded once where the processor can. Spelled out, so that no compiler option and no
// neighbouring code decides about it.
[[gnu::always_inline]] inline Floats multiply_add(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__) && SOLITON_VECTOR_BYTES == 32
    return _mm256_fmadd_ps(a, b, c);
#elif defined(__FP_FAST_FMAF)
    Floats sum;
    for (int i = 0; i < kLanes; ++i) {
        sum[i] = __builtin_fmaf(a[i], b[i], c[i]);
    }
    return sum;
#else
    return a * b + c;
#endif
}

[[gnu::always_inline]] inline Floats larger(Floats a, Floats b) {
    return a > b ? a : b;  // b where a is NaN
}

// 2^x for -126 <= x <= 0 to about one unit in the last place, 0 below, NaN of NaN.
[[gnu::always_inline]] inline Floats exp2_or_zero(Floats x) {
    // x = n + r with |r| <= 1/2. Adding 1.5 * 2^23 rounds to an integer, which is left in the low
    // bits.
    const Floats shifted = x + 0x1.8p23f;
    const Floats r = x - (shifted - 0x1.8p23f);
    Floats p = broadcast(0x1.41fbc2p-13f);  // minimax for the relative error
    p = multiply_add(p, r, broadcast(0x1.5f3e52p-10f));
    p = multiply_add(p, r, broadcast(0x1.3b2d4cp-7f));
    p = multiply_add(p, r, broadcast(0x1.c6aee8p-5f));
    p = multiply_add(p, r, broadcast(0x1.ebfbdcp-3f));
    p = multiply_add(p, r, broadcast(0x1.62e430p-1f));
    p = multiply_add(p, r, broadcast(1.0f));
    const Floats power = as_floats((as_ints(shifted) << 23) + 0x3f800000);
    return as_floats(as_ints(p * power) & ~(x < -126.0f));
}

[[gnu::always_inline]] inline float exp2_or_zero(float x) {
    return exp2_or_zero(broadcast(x))[0];
}

// --- The product ---

// Memory that is fetched while a product is computed, a line with every step of its sums: what is
// unpacked next. Unpacking is all reading and the product none, so without this they take turns.
// Fetching behind the end of the cache does no harm.
struct Ahead {
    const uint8_t* at;
    const uint8_t* end;
};
constexpr int64_t kLineBytes = 64;

// c (kRows, kVectors * lanes) = or += a (kRows, n) times b (n, kVectors * lanes), in registers.
// Rows of a are kTileStride apart.
template <bool kAdd, int kRows, int kVectors>
void multiply_tile(const float* a, const float* b, int64_t b_stride, int64_t n, float* c,
                   int64_t c_stride, Ahead& ahead) {
    const uint8_t* line = ahead.at;
    const int64_t step = ahead.at < ahead.end ? kLineBytes : 0;
    ahead.at += n * step;
    Floats sums[kRows][kVectors] = {};
    if constexpr (kAdd) {
        for (int row = 0; row < kRows; ++row) {
            for (int j = 0; j < kVectors; ++j) {
                sums[row][j] = load(c + row * c_stride + j * kLanes);
            }
        }
    }
    for (int64_t i = 0; i < n; ++i) {
        __builtin_prefetch(line);
        line += step;
        Floats columns[kVectors];
        for (int j = 0; j < kVectors; ++j) {
            columns[j] = load(b + i * b_stride + j * kLanes);
        }
        for (int row = 0; row < kRows; ++row) {
            const Floats factor = broadcast(a[row * kTileStride + i]);
            for (int j = 0; j < kVectors; ++j) {
                sums[row][j] = multiply_add(factor, columns[j], sums[row][j]);
            }
        }
    }
    for (int row = 0; row < kRows; ++row) {
        for (int j = 0; j < kVectors; ++j) {
            store(c + row * c_stride + j * kLanes, sums[row][j]);
        }
    }
}

template <bool kAdd, int kRows, int kVectors>
void multiply_rows(const float* a, const float* b, int64_t b_stride, int64_t n, float* c,
                   int64_t c_stride, int64_t columns, Ahead& ahead) {
    int64_t column = 0;
    for (; column + kVectors * kLanes <= columns; column += kVectors * kLanes) {
        multiply_tile<kAdd, kRows, kVectors>(a, b + column, b_stride, n, c + column, c_stride,
                                             ahead);
    }
    for (; column < columns; column += 2 * kLanes) {
        multiply_tile<kAdd, kRows, 2>(a, b + column, b_stride, n, c + column, c_stride, ahead);
    }
}

// c (rows, columns) = or += a (rows, n) times b (n, columns); columns a multiple of kColumns.
template <bool kAdd>
void multiply(const float* a, int64_t rows, const float* b, int64_t b_stride, int64_t n, float* c,
              int64_t c_stride, int64_t columns, Ahead ahead) {
    int64_t row = 0;
    const auto take = [&](auto kernel, int64_t size) {
        for (; row + size <= rows; row += size) {
            kernel(a + row * kTileStride, b, b_stride, n, c + row * c_stride, c_stride, columns,
                   ahead);
        }
    };
    // At least 8 sums at once, or they wait for each other; no more than there are registers for.
    constexpr bool kIsWidest = kLanes == 16;
    constexpr int kOfFour = kIsWidest ? 4 : 2;
    constexpr int kOfOne = kIsWidest ? 4 : 8;  // 4 are all that a chunk of keys has
    if constexpr (kIsWidest) {
        take(multiply_rows<kAdd, 8, 2>, 8);
    }
    take(multiply_rows<kAdd, 4, kOfFour>, 4);
    take(multiply_rows<kAdd, 2, 4>, 2);
    take(multiply_rows<kAdd, 1, kOfOne>, 1);
}

// --- Keys and values in the cache ---

// How many elements a lane of 32 bits holds.
template <KvType kKv>
constexpr int64_t kPerLane = 4;  // int8
template <>
constexpr int64_t kPerLane<KvType::kF32> = 1;
template <>
constexpr int64_t kPerLane<KvType::kBf16> = 2;

template <KvType kKv>
constexpr int64_t kElementBytes = 4 / kPerLane<kKv>;

// Element `index` of each lane.
template <KvType kKv>
[[gnu::always_inline]] inline Floats unpack(Ints lanes, int64_t index) {
    if constexpr (kKv == KvType::kF32) {
        return as_floats(lanes);
    } else if constexpr (kKv == KvType::kBf16) {
        return as_floats(index == 0 ? lanes << 16 : lanes & static_cast<int32_t>(0xffff0000));
    } else {
        return __builtin_convertvector((lanes << (24 - 8 * static_cast<int>(index))) >> 24, Floats);
    }
}

template <int... kIndices>
struct Indices {};

template <int kCount, int... kIndices>
struct CountTo : CountTo<kCount - 1, kCount - 1, kIndices...> {};

template <int... kIndices>
struct CountTo<0, kIndices...> {
    using Type = Indices<kIndices...>;
};

// Lane i of the result is lane pick(i) of a and b in a row.
template <auto pick, int... i>
[[gnu::always_inline]] inline Ints shuffle(Ints a, Ints b, Indices<i...>) {
    return __builtin_shufflevector(a, b, pick(i)...);
}

template <auto pick_low, auto pick_high>
[[gnu::always_inline]] inline void exchange(Ints& a, Ints& b) {
    const Ints low = shuffle<pick_low>(a, b, CountTo<kLanes>::Type{});
    const Ints high = shuffle<pick_high>(a, b, CountTo<kLanes>::Type{});
    a = low;
    b = high;
}

// Groups of kStep lanes change places: the odd ones of a with the even ones of b.
template <int kStep>
[[gnu::always_inline]] inline void exchange_groups(Ints& a, Ints& b) {
    exchange<[](int i) { return i & kStep ? kLanes + i - kStep : i; },
             [](int i) { return i & kStep ? kLanes + i : i + kStep; }>(a, b);
}

// Lane i of row j becomes lane j of row i.
[[gnu::always_inline]] inline void transpose(Ints (&rows)[kLanes]) {
    // Within groups of four rows and four lanes by interleaving, one instruction each.
    for (int row = 0; row < kLanes; row += 4) {
        for (int j = row; j < row + 4; j += 2) {
            exchange<[](int i) { return (i & ~3) + (i & 2) / 2 + (i & 1) * kLanes; },
                     [](int i) { return (i & ~3) + 2 + (i & 2) / 2 + (i & 1) * kLanes; }>(
                rows[j], rows[j + 1]);
        }
        exchange_groups<2>(rows[row], rows[row + 2]);
        exchange_groups<2>(rows[row + 1], rows[row + 3]);
        const Ints second = rows[row + 2];
        rows[row + 2] = rows[row + 1];
        rows[row + 1] = second;
    }
    if constexpr (kLanes >= 8) {
        for (int row = 0; row < kLanes; ++row) {
            if (!(row & 4)) {
                exchange_groups<4>(rows[row], rows[row + 4]);
            }
        }
    }
    if constexpr (kLanes >= 16) {
        for (int row = 0; row < 8; ++row) {
            exchange_groups<8>(rows[row], rows[row + 8]);
        }
    }
}

// One vector's width of a stored key, for as many keys as a vector has lanes: keys (elements,
// kKeyChunk) gets one column per key. n_bytes: how many there are of the width.
template <KvType kKv, bool kWhole>
[[gnu::always_inline]] inline void turn_keys(const uint8_t* const (&rows)[kLanes], int64_t offset,
                                             int64_t n_bytes, float* keys) {
    Ints lanes[kLanes];
    for (int j = 0; j < kLanes; ++j) {
        if constexpr (kWhole) {
            lanes[j] = *reinterpret_cast<const StoredInts*>(rows[j] + offset);
        } else {
            lanes[j] = Ints{};
            __builtin_memcpy(&lanes[j], rows[j] + offset, n_bytes);
        }
    }
    transpose(lanes);
    for (int lane = 0; lane < kLanes; ++lane) {
        for (int64_t i = 0; i < kPerLane<kKv>; ++i) {
            const int64_t element = lane * kPerLane<kKv> + i;
            if (kWhole || element * kElementBytes<kKv> < n_bytes) {
                store(keys + element * kKeyChunk, unpack<kKv>(lanes[lane], i));
            }
        }
    }
}

// Keys as float, turned: keys (head_dim, kKeyChunk) from stored (n_keys, head_dim). Columns from
// n_keys on repeat the last key, so that nothing behind it is read; columns a multiple of kColumns.
template <KvType kKv>
void unpack_keys(const uint8_t* stored, int64_t n_keys, int64_t columns, int64_t head_dim,
                 float* keys) {
    const int64_t row_bytes = head_dim * kElementBytes<kKv>;
    for (int64_t column = 0; column < columns; column += kLanes) {
        const uint8_t* rows[kLanes];
        for (int j = 0; j < kLanes; ++j) {
            const int64_t key = column + j < n_keys ? column + j : n_keys - 1;
            rows[j] = stored + key * row_bytes;
        }
        int64_t offset = 0;
        float* target = keys + column;
        for (; offset + SOLITON_VECTOR_BYTES <= row_bytes; offset += SOLITON_VECTOR_BYTES) {
            turn_keys<kKv, true>(rows, offset, SOLITON_VECTOR_BYTES, target);
            target += kLanes * kPerLane<kKv> * kKeyChunk;
        }
        if (offset < row_bytes) {
            turn_keys<kKv, false>(rows, offset, row_bytes - offset, target);
        }
    }
}

template <KvType kKv>
void unpack_elements(const uint8_t* stored, int64_t n, float* out) {
    if constexpr (kKv == KvType::kF32) {
        __builtin_memcpy(out, stored, n * sizeof(float));
    } else if constexpr (kKv == KvType::kBf16) {
        const uint16_t* bits = reinterpret_cast<const uint16_t*>(stored);
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) {
            out[i] = __builtin_bit_cast(float, static_cast<uint32_t>(bits[i]) << 16);
        }
    } else {
        const int8_t* codes = reinterpret_cast<const int8_t*>(stored);
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) {
            out[i] = static_cast<float>(codes[i]);
        }
    }
}

// Values as float, zeros up to the padded dimension: values (n_keys, padded) from stored (n_keys,
// head_dim).
template <KvType kKv>
void unpack_values(const uint8_t* stored, int64_t n_keys, int64_t head_dim, int64_t padded,
                   float* values) {
    if (head_dim == padded) {
        unpack_elements<kKv>(stored, n_keys * head_dim, values);
        return;
    }
    for (int64_t key = 0; key < n_keys; ++key) {
        float* row = values + key * padded;
        unpack_elements<kKv>(stored + key * head_dim * kElementBytes<kKv>, head_dim, row);
        for (int64_t i = head_dim; i < padded; ++i) {
            row[i] = 0.0f;
        }
    }
}

// Round to nearest, ties to even. The carry could turn a NaN into infinity, so a NaN is cut
// instead, kept quiet.
[[gnu::always_inline]] inline uint16_t to_bfloat16(float value) {
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
    const float scale = largest / 127.0f;
    const bool usable = scale > 0.0f && largest < kInfinity;
    const float inverse = usable ? 127.0f / largest : 0.0f;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
        // Adding 1.5 * 2^23 rounds to nearest even and leaves the integer in the low bits.
        const float shifted = (usable ? values[i] * inverse : 0.0f) + 0x1.8p23f;
        codes[i] = static_cast<int8_t>(__builtin_bit_cast(int32_t, shifted));
    }
    return largest < kInfinity ? (usable ? scale : 0.0f) : largest - largest;
}

void store_row(const float* values, KvType kv, int64_t head_dim, void* cache, float* scales,
               int64_t row) {
    switch (kv) {
        case KvType::kF32:
            __builtin_memcpy(static_cast<float*>(cache) + row * head_dim, values,
                             head_dim * sizeof(float));
            break;
        case KvType::kBf16: {
            uint16_t* out = static_cast<uint16_t*>(cache) + row * head_dim;
#pragma omp simd
            for (int64_t i = 0; i < head_dim; ++i) {
                out[i] = to_bfloat16(values[i]);
            }
            break;
        }
        case KvType::kInt8:
            scales[row] = to_int8(values, head_dim, static_cast<int8_t*>(cache) + row * head_dim);
            break;
    }
}

// The optional norm, then the rotation of the first 2 * rotary_half dimensions (NEOX halves) for
// one position. Not inlined: queries and keys get the same code, so the same bits.
[[gnu::noinline]] void norm_and_rotate(const AttentionArgs& args, const float* x, const float* norm,
                                       int64_t position, float* out) {
    const int64_t head_dim = args.head_dim;
    if (norm) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < head_dim; ++i) {
            sum += x[i] * x[i];
        }
        const float inverse = 1.0f / __builtin_sqrtf(sum / static_cast<float>(head_dim) + args.eps);
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

// Scores of columns begin..end become probabilities without their normalisation, 0 for what the
// query does not see; what was largest and what they sum to goes into the record's tail.
void softmax(float* scores, int64_t begin, int64_t end, Visible visible, const float* key_scales,
             const float* value_scales, float* tail) {
    Floats largest = broadcast(-kInfinity);
    Ints index;
    for (int i = 0; i < kLanes; ++i) {
        index[i] = static_cast<int32_t>(begin) + i;
    }
    const int32_t first = static_cast<int32_t>(visible.begin);
    const int32_t behind = static_cast<int32_t>(visible.end);
    for (int64_t i = begin; i < end; i += kLanes, index += kLanes) {
        Floats score = load(scores + i);
        if (key_scales) {
            score *= load(key_scales + i);
        }
        const Ints seen = (index >= first) & (index < behind);
        score = as_floats((as_ints(score) & seen) | (as_ints(broadcast(-kInfinity)) & ~seen));
        store(scores + i, score);
        largest = larger(score, largest);
    }
    float top = largest[0];
    for (int i = 1; i < kLanes; ++i) {
        top = largest[i] > top ? largest[i] : top;
    }
    Floats sums = {};
    for (int64_t i = begin; i < end; i += kLanes) {
        Floats p = exp2_or_zero(load(scores + i) - top);
        sums += p;
        if (value_scales) {
            p *= load(value_scales + i);
        }
        store(scores + i, p);
    }
    float sum = sums[0];
    for (int i = 1; i < kLanes; ++i) {
        sum += sums[i];
    }
    tail[0] = top;
    tail[1] = sum;
}

template <KvType kKv>
void attend(const AttentionArgs& args, const QueryTile& tile, int64_t block, AttentionWork& work,
            float* records) {
    const int64_t head_dim = args.head_dim;
    const int64_t padded = padded_head_dim(head_dim);
    const int64_t record_size = padded + kRecordTail;
    const int64_t group = args.n_heads / args.n_kv_heads;

    Visible visible[kQueryTile];
    int64_t begin = kKeyBlock;
    int64_t end = 0;
    for (int64_t i = 0; i < tile.count; ++i) {
        visible[i] = visible_keys(args, tile.pos + (tile.first + i) / group, block);
        if (visible[i].end) {
            begin = visible[i].begin < begin ? visible[i].begin : begin;
            end = visible[i].end > end ? visible[i].end : end;
        }
        float* record = records + i * record_size;
        for (int64_t j = 0; j < padded; ++j) {
            record[j] = 0.0f;
        }
        record[padded] = -kInfinity;
        record[padded + 1] = 0.0f;
    }
    if (begin >= end) {
        return;
    }

    const int64_t first_row = tile.kv_head * args.max_seq_len + block * kKeyBlock;
    const int64_t row_bytes = head_dim * kElementBytes<kKv>;
    const uint8_t* keys = static_cast<const uint8_t*>(args.k_cache) + first_row * row_bytes;
    const uint8_t* values = static_cast<const uint8_t*>(args.v_cache) + first_row * row_bytes;

    const int64_t column_begin = begin / kColumns * kColumns;
    const int64_t column_end = (end + kColumns - 1) / kColumns * kColumns;
    for (int64_t i = column_begin; i < column_end; i += kKeyChunk) {
        const int64_t columns = column_end - i < kKeyChunk ? column_end - i : kKeyChunk;
        const int64_t n_keys = end - i < columns ? end - i : columns;
        unpack_keys<kKv>(keys + i * row_bytes, n_keys, columns, head_dim, work.keys);
        // Then comes the next chunk of keys, and after the last one the first of values.
        const int64_t next = i + columns;
        const uint8_t* ahead =
            next < column_end ? keys + next * row_bytes : values + begin * row_bytes;
        multiply<false>(work.queries, tile.count, work.keys, kKeyChunk, head_dim, work.scores + i,
                        kTileStride, columns, {ahead, ahead + kKeyChunk * row_bytes});
    }

    const float* key_scales = nullptr;
    const float* value_scales = nullptr;
    if constexpr (kKv == KvType::kInt8) {
        // A copy, because the loops below read whole vectors and the cache may end within one.
        for (int64_t i = column_begin; i < column_end; ++i) {
            work.key_scales[i] = i < end ? args.k_scales[first_row + i] : 0.0f;
            work.value_scales[i] = i < end ? args.v_scales[first_row + i] : 0.0f;
        }
        key_scales = work.key_scales;
        value_scales = work.value_scales;
    }
    for (int64_t i = 0; i < tile.count; ++i) {
        float* scores = work.scores + i * kTileStride;
        if (visible[i].end) {
            softmax(scores, column_begin, column_end, visible[i], key_scales, value_scales,
                    records + i * record_size + padded);
        } else {
            for (int64_t j = column_begin; j < column_end; ++j) {
                scores[j] = 0.0f;
            }
        }
    }

    // A key that a query does not see has probability 0 and leaves its sums as they are.
    for (int64_t i = begin; i < end; i += kKeyChunk) {
        const int64_t n_keys = end - i < kKeyChunk ? end - i : kKeyChunk;
        const float* rows = work.values;
        if (kKv == KvType::kF32 && head_dim == padded) {
            rows = reinterpret_cast<const float*>(values + i * row_bytes);
        } else {
            unpack_values<kKv>(values + i * row_bytes, n_keys, head_dim, padded, work.values);
        }
        // Then comes the next chunk of values, and after the last one the next block's keys.
        const int64_t next = i + n_keys;
        const uint8_t* ahead =
            next < end ? values + next * row_bytes : keys + kKeyBlock * row_bytes;
        multiply<true>(work.scores + i, tile.count, rows, padded, n_keys, records, record_size,
                       padded, {ahead, ahead + kKeyChunk * row_bytes});
    }
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
        const int64_t cache_row = kv_head * args.max_seq_len + pos + row;
        store_row(key, args.kv, head_dim, args.k_cache, args.k_scales, cache_row);
        store_row(values + kv_head * head_dim, args.kv, head_dim, args.v_cache, args.v_scales,
                  cache_row);
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
#pragma omp simd
        for (int64_t j = 0; j < head_dim; ++j) {
            query[j] *= scale;
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
    const int64_t padded = padded_head_dim(head_dim);
    const float before = merged[padded];
    const float block = record[padded];
    if (block == -kInfinity && record[padded + 1] == 0.0f) {
        return;  // the query sees nothing of the block
    }
    const float largest = block > before ? block : before;
    const float keep = exp2_or_zero(before - largest);
    const float take = exp2_or_zero(block - largest);
    for (int64_t i = 0; i < padded; i += kLanes) {
        const Floats kept = load(merged + i) * keep;
        store(merged + i, multiply_add(load(record + i), broadcast(take), kept));
    }
    merged[padded] = largest;
    merged[padded + 1] = merged[padded + 1] * keep + record[padded + 1] * take;
}

void finish_record(const float* merged, int64_t head_dim, float* out) {
    const float inverse = 1.0f / merged[padded_head_dim(head_dim) + 1];
#pragma omp simd
    for (int64_t i = 0; i < head_dim; ++i) {
        out[i] = merged[i] * inverse;
    }
}

}  // namespace soliton::SOLITON_ISA
