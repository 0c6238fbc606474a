// Attention of a sequence, and of branches of one.
//
// Branches go through the blocks before the fork together, as rows at one position. In the others
// they take turns: the tail of each is laid into the cache where the positions of a sequence of its
// own would be, so its sums are those of that sequence. With a window it may lie where positions
// are that other branches still see: then it changes places with them, and back.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "attention_run.h"
#include "ops.h"
#include "pool.h"

namespace soliton {
namespace {

// The tail of one branch, of one kv head. Panels hold 16 positions, so whole panels move.
class Tail {
  public:
    Tail(const BranchAttentionArgs& args, int64_t branch, int64_t kv_head)
        : args_(args),
          caches_(args.attention),
          fork_(*args.fork),
          start_(panel_of(fork_)),
          kv_head_(kv_head),
          own_head_(branch * caches_.n_kv_heads + kv_head) {}

    // What a row at `pos` sees of the branch. The first panel came from the cache, so it brings the
    // positions before the fork back unchanged.
    void lay_in(int64_t pos) const {
        if (caches_.window) {
            if (pos == fork_ && caches_.stores) {
                move<Way::kOut>(start_, start_ + kKvLanes);
            }
            exchange(pos);
        } else if (const int64_t end = caches_.stores ? pos : pos + 1; end > fork_) {
            move<Way::kIn>(start_, padded(end));
        }
    }

    // What a row at `pos` has added. Without keys of its own, another layer has taken it out.
    void take_out(int64_t pos) const {
        if (caches_.window) {
            exchange(pos);
        } else if (caches_.stores) {
            move<Way::kOut>(panel_of(pos), panel_of(pos) + kKvLanes);
        }
    }

  private:
    enum class Way { kIn, kOut, kBoth };

    static int64_t panel_of(int64_t pos) { return pos / kKvLanes * kKvLanes; }

    // What a row at `pos` sees of the branch, itself included, changes places with what the cache
    // has there. The cache may go round within it.
    void exchange(int64_t pos) const {
        const int64_t oldest = std::max<int64_t>(pos - caches_.window + 1, 0);
        const int64_t end = padded(pos + 1);
        int64_t begin = std::max(start_, panel_of(oldest));
        while (begin < end) {
            const int64_t room = padded(caches_.max_seq_len) - place_of(caches_, begin);
            const int64_t next = std::min(end, begin + room);
            move<Way::kBoth>(begin, next);
            begin = next;
        }
    }

    // Panels of keys follow each other; those of values do for 64 dimensions each.
    template <Way kWay>
    void move(int64_t begin, int64_t end) const {
        const int64_t positions = padded(caches_.max_seq_len);
        const int64_t head_dim = padded(caches_.head_dim);
        const int64_t place = place_of(caches_, begin);
        const int64_t first = begin - start_;
        const int64_t n = end - begin;
        const auto k_bytes = [&](int64_t n) { return stored_bytes(caches_.k_type, n); };
        copy<kWay>(caches_.k_cache, k_bytes((kv_head_ * positions + place) * head_dim),
                   args_.k_tails, k_bytes((own_head_ * args_.tail_len + first) * head_dim),
                   k_bytes(n * head_dim));
        const ValuePlaces cache = value_places(caches_);
        const ValuePlaces tail = {cache.kv, args_.tail_len, head_dim};
        for (int64_t i = 0; i < head_dim; i += kWovenDims) {
            copy<kWay>(caches_.v_cache, kv_head_ * cache.head_bytes() + cache.row(i, place),
                       args_.v_tails, own_head_ * tail.head_bytes() + tail.row(i, first),
                       stored_bytes(cache.kv, n * cache.n_woven(i)));
        }
        move_scales<kWay>(caches_.k_type, caches_.k_scales, args_.k_tail_scales, place, first, n);
        move_scales<kWay>(caches_.v_type, caches_.v_scales, args_.v_tail_scales, place, first, n);
    }

    // A head has one row of scales, or one for each pair of them; a scale of kInt8 takes as much
    // memory as a pair.
    template <Way kWay>
    void move_scales(KvType kv, void* cache, void* tail, int64_t place, int64_t first,
                     int64_t n) const {
        if (kv != KvType::kInt8 && kv != KvType::kInt4) {
            return;
        }
        const int64_t rows = kv == KvType::kInt4 ? scale_pairs(caches_.head_dim) : 1;
        for (int64_t row = 0; row < rows; ++row) {
            const int64_t from = (kv_head_ * rows + row) * padded(caches_.max_seq_len) + place;
            const int64_t to = (own_head_ * rows + row) * args_.tail_len + first;
            copy<kWay>(cache, from * kLaneBytes, tail, to * kLaneBytes, n * kLaneBytes);
        }
    }

    template <Way kWay>
    static void copy(void* cache, int64_t in_cache, void* tail, int64_t in_tail, int64_t size) {
        std::byte* own = static_cast<std::byte*>(tail) + in_tail;
        std::byte* shared = static_cast<std::byte*>(cache) + in_cache;
        if constexpr (kWay == Way::kBoth) {
            std::swap_ranges(own, own + size, shared);
        } else {
            constexpr bool kIn = kWay == Way::kIn;
            std::memcpy(kIn ? shared : own, kIn ? own : shared, size);
        }
    }

    const BranchAttentionArgs& args_;
    const AttentionArgs& caches_;
    const int64_t fork_;
    const int64_t start_;  // the position where the tail begins
    const int64_t kv_head_;
    const int64_t own_head_;  // among those of all branches
};

// The arguments of rows from this one on.
AttentionArgs from_row(const AttentionArgs& args, int64_t row) {
    AttentionArgs later = args;
    later.qkv += row * qkv_width(args);
    later.out += row * args.n_heads * args.head_dim;
    return later;
}

// One kv head of rows that stand at the same position.
void attend_branches(const BranchAttentionArgs& args, int64_t first_row, int64_t n_rows,
                     int64_t head, Worker& worker) {
    const AttentionArgs together = from_row(args.attention, first_row);
    const int64_t pos = args.rows[first_row].pos;
    const int64_t own_block = *args.fork / kKeyBlock;
    const auto attend_own = [&](int64_t row, const QueryTile& tile, float* merged) {
        const AttentionArgs own = from_row(together, row);
        const Tail tail(args, args.rows[first_row + row].branch, head);
        tail.lay_in(pos);
        Attention(own, pos, 1, worker).complete(tile, own_block, merged);
        tail.take_out(pos);
    };
    Attention(together, pos, n_rows, worker, 0)
        .attend_head_of_branches(head, own_block, attend_own);
}

}  // namespace

int64_t attention_scratch_floats(int64_t n_heads, int64_t head_dim, int64_t max_seq_len) {
    const int64_t n_blocks = (max_seq_len + kKeyBlock - 1) / kKeyBlock;
    const int64_t records = std::min(kRecordsPerHead, kFewRows * n_blocks);
    return (kFewRows + records) * n_heads * record_size(head_dim);
}

void attention(const AttentionArgs& args, const StepState& state, Worker& worker) {
    Attention op(args, state.pos, state.n_rows, worker);
    if (state.n_rows > kFewRows) {
        op.by_rows();
    } else if (op.heads_are_even()) {
        op.by_heads();
    } else {
        op.by_blocks();
    }
}

// A chunk writes and reads only its own head, so one region is enough.
void branch_attention(const BranchAttentionArgs& args, const StepState& state, Worker& worker) {
    worker.share(args.attention.n_kv_heads, [&](int64_t head) {
        int64_t end = 0;
        for (int64_t begin = 0; begin < state.n_rows; begin = end) {
            while (end < state.n_rows && args.rows[end].pos == args.rows[begin].pos) {
                ++end;
            }
            attend_branches(args, begin, end - begin, head, worker);
        }
    });
}

}  // namespace soliton
