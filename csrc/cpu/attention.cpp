// Attention over one block of keys, and the merge of blocks. Compiled once per instruction set (see
// kernels.h), with the same result in all of them. attention_run.h divides the blocks among the
// threads; attention_rows.cpp prepares queries, keys and values.
//
// Both steps are the same product of small matrices: scores are queries times keys, outputs are
// probabilities times values. Both caches lie in panels (attention.h), in which the lanes of a
// vector are 16 keys or 16 dimensions. So each stored number is unpacked once for several queries,
// and every sum is one chain in ascending order, in every tile. With codes for keys or values the
// other factor is rounded to 15 bits, and sums are integers.
#include "attention_common.h"
#include "attention_product.h"
#include "attention_rotation.h"
#include "functions.h"

namespace soliton::SOLITON_ISA {
namespace {

// 2^x for -126 <= x <= 0, to about one unit in the last place; about 0 for smaller x; NaN for NaN.
SOLITON_INLINE Floats exp2_or_zero(Floats x) {
    // x = n + r with |r| <= 1/2. For n = -127, power_of_two gives 0.
    x = larger(broadcast(-127.0f), x);
    const Ints n = round(x);
    const Floats r = subtract(x, to_floats(n));
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

// The keys of a block that a query sees: [begin, end).
struct Visible {
    int64_t begin;
    int64_t end;
};

Visible visible_keys(const AttentionArgs& args, int64_t position, int64_t block) {
    const int64_t first = block * kKeyBlock;
    const int64_t oldest = args.window ? position - args.window + 1 : 0;
    const int64_t begin = oldest > first ? oldest - first : 0;
    const int64_t n_past = position + 1 - first;
    const int64_t end = n_past < kKeyBlock ? n_past : kKeyBlock;
    return begin < end ? Visible{begin, end} : Visible{0, 0};
}

// Scales and caps the scores of columns [begin, end), and returns the largest. They are in units of
// log2(e), as the queries are.
float scale_scores(float* scores, int64_t begin, int64_t end, const float* key_scales,
                   float softcap) {
    Floats tops = broadcast(-kInfinity);
    for (int64_t i = begin; i < end; i += kLanes) {
        Floats score = load(scores + i);
        if (key_scales) {
            score = multiply(score, load(key_scales + i));
        }
        if (softcap != 0.0f) {
            score = capped(score, softcap * kLog2E);
        }
        store(scores + i, score);
        tops = larger(score, tops);
    }
    return largest_lane(tops);
}

// Turns the scores of columns [begin, end) into probabilities that are not yet normalised, 0 for
// keys that the query does not see. Writes the largest score and the sum of the probabilities to
// the record's tail.
void softmax(float* scores, int64_t begin, int64_t end, Visible visible, const float* key_scales,
             const float* value_scales, float softcap, float* tail) {
    float top = scale_scores(scores, begin, end, key_scales, softcap);
    if (begin < visible.begin || visible.end < end) {  // one that is not seen may be the largest
        fill(scores, begin, visible.begin, -kInfinity);
        fill(scores, visible.end, end, -kInfinity);
        top = scale_scores(scores, begin, end, nullptr, 0.0f);
    }
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

// What outputs are multiplied by if the sum of the probabilities, which is relative to the largest
// score `top`, also has that of a sink.
float inverse_with_sink(float top, float sum, float sink) {
    const float score = sink * kLog2E;
    if (score > top) {
        const float keep = first_lane(exp2_or_zero(broadcast(top - score)));
        return keep / (sum * keep + 1.0f);
    }
    return 1.0f / (sum + first_lane(exp2_or_zero(broadcast(score - top))));
}

// The part of a block that a tile sees, in whole lanes of keys.
struct Span {
    int64_t begin;       // of the block, a multiple of 16
    int64_t end;         // of the last query
    int64_t padded_end;  // the next multiple of 16

    int64_t size() const { return padded_end - begin; }
};

template <KvType kKv>
Factor<kKv> queries_of(const AttentionWork& work) {
    if constexpr (kHasCodes<kKv>) {
        return {work.query_codes, work.query_scales};
    } else {
        return {work.queries};
    }
}

// What a tile multiplies with a block of the caches.
struct Part {
    const AttentionArgs& args;
    const QueryTile& tile;
    AttentionWork& work;
    Span span;
    int64_t block_place;  // of the block in the caches
    int64_t block_start;  // its first position

    int64_t head_dim() const { return padded(args.head_dim); }
    int64_t positions() const { return padded(args.max_seq_len); }
    int64_t place() const { return block_place + span.begin; }
    int64_t head() const { return tile.kv_head * positions() * head_dim(); }
    // The values from the span on, in dimensions [dim, dim + 64).
    const uint8_t* values(int64_t dim) const {
        const ValuePlaces places = value_places(args);
        return static_cast<const uint8_t*>(args.v_cache) + tile.kv_head * places.head_bytes() +
               places.row(dim, place());
    }
    // The first pair of scales of kInt4 for the span, in bytes; those of a pair of blocks follow
    // `scale_pitch()` later.
    int64_t scales() const {
        return (tile.kv_head * scale_pairs(args.head_dim) * positions() + place()) * kLaneBytes;
    }
    int64_t scale_pitch() const { return positions() * kLaneBytes; }
};

// Adds what was taken from the span's keys before they were stored, if anything was.
void add_common(const Part& part) {
    const AttentionArgs& args = part.args;
    if (!args.common_keys) {
        return;
    }
    const int64_t stride = is_wide(args.head_dim) ? kWideStride : kTileStride;
    const int64_t start = part.block_start;
    for (int64_t i = 0; i < part.tile.count; ++i) {
        add_common(args, part.work.queries + i * stride, part.work.common_scores[i],
                   start + part.span.begin, start + part.span.padded_end, start,
                   part.work.scores + i * kTileStride);
    }
}

// The scores of the span's keys, without the scales of kInt8.
template <KvType kKv>
void score(const Part& part, Upcoming& values) {
    const AttentionArgs& args = part.args;
    Product<kKv> product = {
        .factor = queries_of<kKv>(part.work),
        .rows = part.tile.count,
        .n = args.head_dim,
        .panels = static_cast<const uint8_t*>(args.k_cache) +
                  stored_bytes(kKv, part.head() + part.place() * part.head_dim()),
        .pitch = stored_bytes(kKv, kLanes * part.head_dim()),
        .row_pitch = kRowBytes,
        .n_panels = part.span.size() / kLanes,
        .out = part.work.scores + part.span.begin,
        .out_stride = kTileStride,
        .upcoming = &values,
    };
    if constexpr (kKv == KvType::kInt4) {
        product.lane_scales = static_cast<const uint8_t*>(args.k_scales) + part.scales();
        product.scale_pitch = part.scale_pitch();
    }
    if (is_wide(args.head_dim)) {
        multiply<kKv, kWideStride>(product);
    } else {
        multiply<kKv>(product);
    }
    if constexpr (kKv == KvType::kInt4) {
        add_common(part);
    }
}

// The probabilities as a factor; those of kInt4 times the scales of the values, if it has codes.
template <KvType kKv>
Factor<kKv> probabilities_of(const Part& part, const float* value_scales) {
    AttentionWork& work = part.work;
    if constexpr (kHasCodes<kKv>) {
        const Span span = part.span;
        float scaled[kKeyBlock];
        for (int64_t i = 0; i < part.tile.count; ++i) {
            const float* row = work.scores + i * kTileStride + span.begin;
            if constexpr (kKv == KvType::kInt4) {
                for (int64_t k = 0; k < span.size(); k += kLanes) {
                    store(scaled + k, multiply(load(row + k), load(value_scales + span.begin + k)));
                }
                row = scaled;
            }
            work.probability_scales[i] =
                to_codes(row, span.size(), work.probability_codes + i * kTileStride);
        }
        return {work.probability_codes, work.probability_scales};
    } else {
        return {work.scores + part.span.begin};
    }
}

// The scales of values with 4 bits in dimensions [32 * block, ...) for the span.
const float* block_scales(const Part& part, int64_t block) {
    const Span span = part.span;
    const uint8_t* pairs = static_cast<const uint8_t*>(part.args.v_scales) + part.scales() +
                           block / 2 * part.scale_pitch();
    for (int64_t i = span.begin; i < span.padded_end; i += kLanes, pairs += kRowBytes) {
        store(part.work.value_scales + i, load_bfloat16(pairs, block % 2));
    }
    // Unwritten scales may hold anything, and 0 (their probability) times NaN is NaN.
    fill(part.work.value_scales, span.end, span.padded_end, 0.0f);
    return part.work.value_scales;
}

// The span's values, weighted by the probabilities: records.
template <KvType kKv>
void weigh(const Part& part, float* records, Upcoming& after) {
    const ValuePlaces places = value_places(part.args);
    constexpr bool kInBlocks = kKv == KvType::kInt4;
    // The dimensions whose values take turns, or also share their scales.
    constexpr int64_t kStep = kInBlocks ? kScaledDims : kWovenDims;
    Factor<kKv> factor;
    for (int64_t dim = 0; dim < places.head_dim; dim += kStep) {
        if (kInBlocks || dim == 0) {
            factor = probabilities_of<kKv>(
                part, kInBlocks ? block_scales(part, dim / kScaledDims) : nullptr);
        }
        const int64_t first = dim / kWovenDims * kWovenDims;
        const int64_t left = places.head_dim - dim;
        multiply<kKv>({
            .factor = factor,
            .rows = part.tile.count,
            .n = part.span.end - part.span.begin,
            .panels = part.values(first) + (dim - first) * kLaneBytes,
            .pitch = kRowBytes,
            .row_pitch = places.n_woven(first) * kLaneBytes,
            .n_panels = (left < kStep ? left : kStep) / kLanes,
            .out = records + dim,
            .out_stride = places.head_dim + kRecordTail,
            .upcoming = &after,
        });
    }
}

void score(const Part& part, Upcoming& values) {
    switch (part.args.k_type) {
        case KvType::kF32:
            return score<KvType::kF32>(part, values);
        case KvType::kBf16:
            return score<KvType::kBf16>(part, values);
        case KvType::kInt8:
            return score<KvType::kInt8>(part, values);
        case KvType::kInt4:
            return score<KvType::kInt4>(part, values);
    }
}

void weigh(const Part& part, float* records, Upcoming& after) {
    switch (part.args.v_type) {
        case KvType::kF32:
            return weigh<KvType::kF32>(part, records, after);
        case KvType::kBf16:
            return weigh<KvType::kBf16>(part, records, after);
        case KvType::kInt8:
            return weigh<KvType::kInt8>(part, records, after);
        case KvType::kInt4:
            return weigh<KvType::kInt4>(part, records, after);
    }
}

// The scores of each query become probabilities.
void soften(const Part& part, const Visible* visible, float* records, Upcoming& after) {
    const AttentionArgs& args = part.args;
    AttentionWork& work = part.work;
    const Span span = part.span;
    const int64_t begin = part.tile.kv_head * part.positions() + part.block_place;
    const float* key_scales = nullptr;
    const float* value_scales = nullptr;
    if (args.k_type == KvType::kInt8) {
        key_scales = static_cast<const float*>(args.k_scales) + begin;
    }
    if (args.v_type == KvType::kInt8) {
        // A copy, because unwritten scales may hold anything, and 0 (their probability) times NaN
        // is NaN.
        fill(work.value_scales, span.end, span.padded_end, 0.0f);
        __builtin_memcpy(work.value_scales + span.begin,
                         static_cast<const float*>(args.v_scales) + begin + span.begin,
                         (span.end - span.begin) * sizeof(float));
        value_scales = work.value_scales;
    }
    const int64_t record_size = part.head_dim() + kRecordTail;
    for (int64_t i = 0; i < part.tile.count; ++i) {
        float* scores = work.scores + i * kTileStride;
        after.fetch(kKeyBlock / kLanes);  // so that the memory does not rest meanwhile
        if (visible[i].end) {
            softmax(scores, span.begin, span.padded_end, visible[i], key_scales, value_scales,
                    args.softcap, records + i * record_size + part.head_dim());
        } else {
            fill(scores, span.begin, span.padded_end, 0.0f);
        }
    }
}

// Fetches the scales of the span's keys or values. There is a kilobyte of them in a place of its
// own, too little for the processor to foresee.
void fetch_scales(const Part& part, KvType kv, const void* scales) {
    const int64_t per_position = kv == KvType::kInt8   ? 1
                                 : kv == KvType::kInt4 ? scale_pairs(part.args.head_dim)
                                                       : 0;
    for (int64_t i = 0; i < per_position; ++i) {
        const int64_t row = part.tile.kv_head * per_position + i;
        const uint8_t* at = static_cast<const uint8_t*>(scales) +
                            (row * part.positions() + part.place()) * kLaneBytes;
        for (int64_t key = 0; key < part.span.size(); key += kLanes, at += kRowBytes) {
            __builtin_prefetch(at, 0, 2);
        }
    }
}

// What the values of the span will be read as, but for the last dimensions where 64 do not divide
// head_dim.
Upcoming values_of(const Part& part) {
    const ValuePlaces places = value_places(part.args);
    const int64_t n_dims = places.n_woven(0);
    return {part.values(0), stored_bytes(places.kv, part.span.size() * n_dims) / kRowBytes,
            stored_bytes(places.kv, places.positions * n_dims), places.head_dim / n_dims};
}

// The keys of the next block, as far as the last query at position `last` sees them; behind the
// last block, what comes after the tile.
Upcoming after_block(const Part& part, int64_t block, int64_t last) {
    const KvType kv = part.args.k_type;
    const int64_t next = (block + 1) * kKeyBlock;
    const int64_t seen = last + 1 - next;  // behind this block
    if (seen <= 0) {
        const int64_t lines = part.tile.after_bytes / kRowBytes;
        return {static_cast<const uint8_t*>(part.tile.after), lines, 0, lines > 0};
    }
    const int64_t n_keys = padded(seen < kKeyBlock ? seen : kKeyBlock);
    return {static_cast<const uint8_t*>(part.args.k_cache) +
                stored_bytes(kv, part.head() + place_of(part.args, next) * part.head_dim()),
            n_keys / kLanes * part.head_dim() / per_lane(kv), 0, 1};
}

}  // namespace

void attend_block(const AttentionArgs& args, const QueryTile& tile, int64_t block,
                  AttentionWork& work, float* records) {
    const int64_t head_dim = padded(args.head_dim);
    const int64_t group = args.n_heads / args.n_kv_heads;
    Visible visible[kQueryTile];
    Span span = {kKeyBlock, 0, 0};
    for (int64_t i = 0; i < tile.count; ++i) {
        visible[i] = visible_keys(args, tile.position((tile.first + i) / group), block);
        if (visible[i].end) {
            span.begin = visible[i].begin < span.begin ? visible[i].begin : span.begin;
            span.end = visible[i].end > span.end ? visible[i].end : span.end;
        }
        float* tail = records + i * (head_dim + kRecordTail) + head_dim;
        tail[0] = -kInfinity;
        tail[1] = 0.0f;
    }
    if (span.begin >= span.end) {
        return;  // the outputs of an empty record are not read
    }
    span.begin = span.begin / kLanes * kLanes;
    span.padded_end = padded(span.end);
    const int64_t start = block * kKeyBlock;
    const Part part = {args, tile, work, span, place_of(args, start), start};
    // While the scores are computed, this block's values are fetched, and from then on what comes
    // after the block: most often the keys of the next one.
    Upcoming values = values_of(part);
    Upcoming after = after_block(part, block, tile.position((tile.first + tile.count - 1) / group));
    fetch_scales(part, args.k_type, args.k_scales);
    fetch_scales(part, args.v_type, args.v_scales);
    score(part, values);
    soften(part, visible, records, after);
    // A key that a query does not see has probability 0 and does not change the sums.
    weigh(part, records, after);
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

void finish_record(const AttentionArgs& args, const float* merged, const float* sink, float* out) {
    const int64_t head_dim = args.head_dim;
    const int64_t size = padded(head_dim);
    const float inverse =
        sink ? inverse_with_sink(merged[size], merged[size + 1], *sink) : 1.0f / merged[size + 1];
#pragma omp simd
    for (int64_t i = 0; i < head_dim; ++i) {
        out[i] = merged[i] * inverse;
    }
    if (args.v_type == KvType::kInt8 || args.v_type == KvType::kInt4) {
        rotate_head(out, head_dim, Side::kRead);
    }
}

}  // namespace soliton::SOLITON_ISA
