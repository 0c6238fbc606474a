// Attention over one block of keys, and the merge of blocks. Compiled once per instruction set (see
// kernels.h), with the same result in all of them. attention_run.h divides the blocks among the
// threads; attention_rows.cpp prepares queries, keys and values.
//
// Both steps are the same product of small matrices: scores are queries times keys, outputs are
// probabilities times values. Both caches lie in panels (attention.h), in which the lanes of a
// vector are 16 keys or 16 dimensions. So each stored number is unpacked once for several queries,
// and every sum is one chain in ascending order, in every tile. With int8 keys and values the other
// factor is rounded to 15 bits, and sums are integers.
#include "attention_product.h"
#include "functions.h"

namespace soliton::SOLITON_ISA {
namespace {

// 2^x for -126 <= x <= 0, to about one unit in the last place; about 0 for smaller x; NaN for NaN.
SOLITON_INLINE Floats exp2_or_zero(Floats x) {
    // x = n + r with |r| <= 1/2. For n = -127, power_of_two gives 0.
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

// No lane may be NaN.
SOLITON_INLINE float largest(Floats a) {
    float lanes[kLanes];
    store(lanes, a);
    float result = lanes[0];
    for (int i = 1; i < kLanes; ++i) {
        result = lanes[i] > result ? lanes[i] : result;
    }
    return result;
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

// The scores are in units of log2(e), as the queries are.
void cap_scores(float* scores, int64_t begin, int64_t end, float softcap) {
    for (int64_t i = begin; i < end; i += kLanes) {
        store(scores + i, capped(load(scores + i), softcap * kLog2E));
    }
}

// Turns the scores of columns [begin, end) into probabilities that are not yet normalised, 0 for
// keys that the query does not see. Writes the largest score and the sum of the probabilities to
// the record's tail.
void softmax(float* scores, int64_t begin, int64_t end, Visible visible, const float* key_scales,
             const float* value_scales, float softcap, float* tail) {
    if (key_scales) {
        for (int64_t i = begin; i < end; i += kLanes) {
            store(scores + i, multiply(load(scores + i), load(key_scales + i)));
        }
    }
    if (softcap != 0.0f) {
        cap_scores(scores, begin, end, softcap);
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
        visible[i] = visible_keys(args, tile.position((tile.first + i) / group), block);
        if (visible[i].end) {
            span.begin = visible[i].begin < span.begin ? visible[i].begin : span.begin;
            span.end = visible[i].end > span.end ? visible[i].end : span.end;
        }
        float* tail = records + i * record_size + head_dim;
        tail[0] = -kInfinity;
        tail[1] = 0.0f;
    }
    if (span.begin >= span.end) {
        return;  // the outputs of an empty record are not read
    }
    span.begin = span.begin / kLanes * kLanes;
    span.padded_end = padded(span.end);

    const int64_t block_place = place_of(args, block * kKeyBlock);
    const int64_t place = block_place + span.begin;
    const int64_t head = tile.kv_head * positions * head_dim;
    const uint8_t* head_keys =
        static_cast<const uint8_t*>(args.k_cache) + head * kElementBytes<kKv>;
    const uint8_t* keys = head_keys + place * head_dim * kElementBytes<kKv>;
    const uint8_t* values =
        static_cast<const uint8_t*>(args.v_cache) + (head + place * kLanes) * kElementBytes<kKv>;

    // While the scores are computed, this block's values are fetched, and then the next block's
    // keys.
    const int64_t lines = span.size() / kPerLane<kKv>;
    const int64_t value_pitch = positions * kRowBytes / kPerLane<kKv>;
    Upcoming block_values(values, lines, value_pitch, head_dim / kLanes);
    const int64_t last = tile.position((tile.first + tile.count - 1) / group);
    const int64_t next = (block + 1) * kKeyBlock;
    const int64_t seen = last + 1 - next;  // behind this block
    const int64_t n_keys = padded(seen < kKeyBlock ? seen : kKeyBlock);
    const int64_t next_place = seen > 0 ? place_of(args, next) : 0;
    Upcoming block_keys(head_keys + next_place * head_dim * kElementBytes<kKv>,
                        n_keys / kLanes * head_dim / kPerLane<kKv>, 0, seen > 0);
    const Product<kKv> scores_of_block = {
        .factor = queries_of<kKv>(work),
        .rows = tile.count,
        .n = args.head_dim,
        .panels = keys,
        .pitch = kLanes * head_dim * kElementBytes<kKv>,
        .n_panels = span.size() / kLanes,
        .out = work.scores + span.begin,
        .out_stride = kTileStride,
        .upcoming = &block_values,
    };
    if (is_wide(args.head_dim)) {
        multiply<kKv, kWideStride>(scores_of_block);
    } else {
        multiply<kKv>(scores_of_block);
    }

    const float* key_scales = nullptr;
    const float* value_scales = nullptr;
    if constexpr (kKv == KvType::kInt8) {
        const int64_t begin = tile.kv_head * positions + block_place;
        key_scales = args.k_scales + begin;
        // A copy, because unwritten scales may hold anything, and 0 (their probability) times NaN
        // is NaN.
        fill(work.value_scales, span.end, span.padded_end, 0.0f);
        __builtin_memcpy(work.value_scales + span.begin, args.v_scales + begin + span.begin,
                         (span.end - span.begin) * sizeof(float));
        value_scales = work.value_scales;
    }
    for (int64_t i = 0; i < tile.count; ++i) {
        float* scores = work.scores + i * kTileStride;
        if (visible[i].end) {
            softmax(scores, span.begin, span.padded_end, visible[i], key_scales, value_scales,
                    args.softcap, records + i * record_size + head_dim);
        } else {
            fill(scores, span.begin, span.padded_end, 0.0f);
        }
    }

    // A key that a query does not see has probability 0 and does not change the sums.
    multiply<kKv>({
        .factor = probabilities_of<kKv>(work, tile.count, span),
        .rows = tile.count,
        .n = span.end - span.begin,
        .panels = values,
        .pitch = value_pitch,
        .n_panels = head_dim / kLanes,
        .out = records,
        .out_stride = record_size,
        .upcoming = &block_keys,
    });
}

}  // namespace

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

void finish_record(const float* merged, int64_t head_dim, const float* sink, float* out) {
    const int64_t size = padded(head_dim);
    const float inverse =
        sink ? inverse_with_sink(merged[size], merged[size + 1], *sink) : 1.0f / merged[size + 1];
#pragma omp simd
    for (int64_t i = 0; i < head_dim; ++i) {
        out[i] = merged[i] * inverse;
    }
}

}  // namespace soliton::SOLITON_ISA
