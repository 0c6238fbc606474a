// Which thread computes which part of attention, and the order in which the parts are merged.
// Compiled for the baseline; the arithmetic is in cpu/attention.cpp.
//
// Every row is the same sum in the same order, whatever the number of rows and threads: its keys
// are cut into blocks at fixed positions, and the blocks are merged one by one, ascending. With few
// rows the work is split by kv heads if they divide evenly among the threads, and otherwise by
// blocks, so that all threads share the keys of a long context. With many rows it is split by rows.
//
// Branches take turns: the tail of each is laid into the cache where the positions of a sequence of
// its own would be, so its sums are those of that sequence. A tail has few positions, so moving it
// costs little beside the weights that all rows of a pass share. With a window it may lie where
// positions are that other branches still see: then it changes places with them, and back.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "cpu/kernels.h"
#include "ops.h"
#include "pool.h"

namespace soliton {
namespace {

// Up to this many rows, the work is split by heads or blocks.
constexpr int64_t kFewRows = 16;
// Records of blocks that are kept for one head before they are merged. They cover 128k positions
// with one row and 8k with 16 rows; a longer context takes several rounds.
constexpr int64_t kRecordsPerHead = 512;

int64_t record_size(int64_t head_dim) {
    return padded(head_dim) + kRecordTail;
}

// One call of the op, as all threads see it.
class Attention {
  public:
    // `rows` rows from position `pos` on.
    Attention(const AttentionArgs& args, int64_t pos, int64_t rows, Worker& worker)
        : kernels_(cpu_kernels()),
          args_(args),
          worker_(worker),
          work_(*reinterpret_cast<AttentionWork*>(worker.scratch)),
          pos_(pos),
          rows_(rows),
          queries_(rows_ * (args.n_heads / args.n_kv_heads)),
          record_size_(record_size(args.head_dim)),
          tile_(is_wide(args.head_dim) ? kWideQueryTile : kQueryTile) {}

    // Whether threads that take whole heads finish together, or there is only one block to split.
    bool heads_are_even() const {
        return args_.n_kv_heads % worker_.count == 0 || first_block(0) == block_of(rows_ - 1);
    }

    // A chunk writes and reads only its own head, so one region is enough.
    void by_heads() {
        worker_.share(args_.n_kv_heads, [&](int64_t head) { attend_head(head); });
    }

    // All that one kv head does.
    void attend_head(int64_t head) {
        if (args_.stores) {
            kernels_.store_keys_values(args_, pos_, head, 0, rows_);
        }
        for (int64_t first = 0; first < queries_; first += tile_) {
            attend_tile(tile_from(head, first));
        }
    }

    void by_blocks() {
        const int64_t begin = first_block(0);
        const int64_t end = block_of(rows_ - 1) + 1;
        const int64_t per_round = kRecordsPerHead / rows_;
        const int64_t heads = args_.n_kv_heads;
        for (int64_t round = begin; round < end; round += per_round) {
            const int64_t n_blocks = std::min(per_round, end - round);
            // A thread takes neighbouring blocks, because sequential memory is read faster.
            worker_.share(n_blocks * heads, [&](int64_t item) {
                attend_item(item / n_blocks, round, item % n_blocks);
            });
            worker_.share(heads * queries_, [&](int64_t item) {
                merge_item(item, n_blocks, round == begin, round + n_blocks == end);
            });
        }
    }

    void by_rows() {
        if (args_.stores) {
            store_rows();
        }
        // The last rows see the most keys, so they come first.
        const int64_t n_tiles = (queries_ + tile_ - 1) / tile_;
        worker_.share(n_tiles * args_.n_kv_heads, [&](int64_t i) {
            const int64_t tile = n_tiles - 1 - i / args_.n_kv_heads;
            attend_tile(tile_from(i % args_.n_kv_heads, tile * tile_));
        });
    }

  private:
    void store_rows() {
        // Neighbouring positions share cache lines, so a chunk is a panel of them.
        const int64_t first_panel = pos_ / kKvLanes;
        const int64_t n_panels = (pos_ + rows_ - 1) / kKvLanes - first_panel + 1;
        worker_.share(args_.n_kv_heads * n_panels, [&](int64_t i) {
            const int64_t row = (first_panel + i % n_panels) * kKvLanes - pos_;
            kernels_.store_keys_values(args_, pos_, i / n_panels, std::max<int64_t>(row, 0),
                                       std::min(row + kKvLanes, rows_));
        });
    }

    // One block for all rows. Its new keys and values are stored first; no other chunk of this
    // region touches them.
    void attend_item(int64_t kv_head, int64_t round, int64_t index) {
        const int64_t block = round + index;
        const int64_t begin_row = std::max<int64_t>(block * kKeyBlock - pos_, 0);
        const int64_t end_row = std::min((block + 1) * kKeyBlock - pos_, rows_);
        if (args_.stores && begin_row < end_row) {
            kernels_.store_keys_values(args_, pos_, kv_head, begin_row, end_row);
        }
        for (int64_t first = 0; first < queries_; first += tile_) {
            const QueryTile tile = tile_from(kv_head, first);
            kernels_.load_queries(args_, tile, work_);
            kernels_.attend_block(args_, tile, block, work_, record(index, kv_head, first));
        }
    }

    // Merges the blocks of a round for one query of one kv head.
    void merge_item(int64_t item, int64_t n_blocks, bool is_first, bool is_last) {
        const int64_t kv_head = item / queries_;
        const int64_t query = item % queries_;
        float* merged = args_.scratch + item * record_size_;
        if (is_first) {
            clear(merged);
        }
        for (int64_t index = 0; index < n_blocks; ++index) {
            kernels_.merge_record(merged, record(index, kv_head, query), args_.head_dim);
        }
        if (is_last) {
            kernels_.finish_record(merged, args_.head_dim, sink_of(kv_head, query),
                                   out_of(kv_head, query));
        }
    }

    // All blocks for one tile of queries.
    void attend_tile(const QueryTile& tile) {
        float* merged = work_.records[0];
        float* block_records = work_.records[1];
        for (int64_t i = 0; i < tile.count; ++i) {
            clear(merged + i * record_size_);
        }
        kernels_.load_queries(args_, tile, work_);
        const int64_t last_block = block_of(row_of(tile.first + tile.count - 1));
        for (int64_t block = first_block(row_of(tile.first)); block <= last_block; ++block) {
            kernels_.attend_block(args_, tile, block, work_, block_records);
            for (int64_t i = 0; i < tile.count; ++i) {
                kernels_.merge_record(merged + i * record_size_, block_records + i * record_size_,
                                      args_.head_dim);
            }
        }
        for (int64_t i = 0; i < tile.count; ++i) {
            kernels_.finish_record(merged + i * record_size_, args_.head_dim,
                                   sink_of(tile.kv_head, tile.first + i),
                                   out_of(tile.kv_head, tile.first + i));
        }
    }

    QueryTile tile_from(int64_t kv_head, int64_t first) const {
        return {kv_head, first, std::min(tile_, queries_ - first), pos_};
    }

    int64_t row_of(int64_t query) const { return query / (args_.n_heads / args_.n_kv_heads); }

    int64_t block_of(int64_t row) const { return (pos_ + row) / kKeyBlock; }

    // The first block with a key that the row sees.
    int64_t first_block(int64_t row) const {
        return args_.window ? std::max<int64_t>(pos_ + row - args_.window + 1, 0) / kKeyBlock : 0;
    }

    // The scratch holds the merged records (kv head, query), then those of the round (block, kv
    // head, query).
    float* record(int64_t index, int64_t kv_head, int64_t query) const {
        const int64_t after_merged = (index + 1) * args_.n_kv_heads + kv_head;
        return args_.scratch + (after_merged * queries_ + query) * record_size_;
    }

    void clear(float* merged) const {
        std::fill(merged, merged + record_size_, 0.0f);
        merged[record_size_ - kRecordTail] = -std::numeric_limits<float>::infinity();
    }

    int64_t head_of(int64_t kv_head, int64_t query) const {
        const int64_t group = args_.n_heads / args_.n_kv_heads;
        return kv_head * group + query % group;
    }

    const float* sink_of(int64_t kv_head, int64_t query) const {
        return args_.sinks ? args_.sinks + head_of(kv_head, query) : nullptr;
    }

    float* out_of(int64_t kv_head, int64_t query) const {
        const int64_t head = row_of(query) * args_.n_heads + head_of(kv_head, query);
        return args_.out + head * args_.head_dim;
    }

    const CpuKernels& kernels_;
    const AttentionArgs& args_;
    Worker& worker_;
    AttentionWork& work_;
    const int64_t pos_;
    const int64_t rows_;
    const int64_t queries_;  // per kv head
    const int64_t record_size_;
    const int64_t tile_;  // queries
};

int64_t element_bytes(KvType kv) {
    switch (kv) {
        case KvType::kF32:
            return 4;
        case KvType::kBf16:
            return 2;
        case KvType::kInt8:
            return 1;
    }
    return 0;
}

// The tail of one branch, of one kv head. Panels hold 16 positions, so whole panels move.
class Tail {
  public:
    Tail(const BranchAttentionArgs& args, int64_t branch, int64_t kv_head)
        : args_(args),
          caches_(args.attention),
          fork_(*args.fork),
          start_(panel_of(fork_)),
          element_(element_bytes(caches_.kv)),
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

    // Panels of keys follow each other; those of values do for 16 dimensions each.
    template <Way kWay>
    void move(int64_t begin, int64_t end) const {
        const int64_t positions = padded(caches_.max_seq_len);
        const int64_t head_dim = padded(caches_.head_dim);
        const int64_t place = place_of(caches_, begin);
        const int64_t first = begin - start_;
        const int64_t n = end - begin;
        copy<kWay>(caches_.k_cache, (kv_head_ * positions + place) * head_dim * element_,
                   args_.k_tails, (own_head_ * args_.tail_len + first) * head_dim * element_,
                   n * head_dim * element_);
        for (int64_t i = 0; i < head_dim; i += kKvLanes) {
            copy<kWay>(
                caches_.v_cache,
                (kv_head_ * positions * head_dim + i * positions + place * kKvLanes) * element_,
                args_.v_tails,
                (own_head_ * args_.tail_len * head_dim + i * args_.tail_len + first * kKvLanes) *
                    element_,
                n * kKvLanes * element_);
        }
        if (caches_.kv == KvType::kInt8) {
            const int64_t from = (kv_head_ * positions + place) * sizeof(float);
            const int64_t to = (own_head_ * args_.tail_len + first) * sizeof(float);
            const int64_t size = n * sizeof(float);
            copy<kWay>(caches_.k_scales, from, args_.k_tail_scales, to, size);
            copy<kWay>(caches_.v_scales, from, args_.v_tail_scales, to, size);
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
    const int64_t start_;    // the position where the tail begins
    const int64_t element_;  // bytes
    const int64_t kv_head_;
    const int64_t own_head_;  // among those of all branches
};

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
    const AttentionArgs& all = args.attention;
    const int64_t in_size = qkv_width(all);
    const int64_t out_size = all.n_heads * all.head_dim;
    worker.share(all.n_kv_heads, [&](int64_t head) {
        for (int64_t row = 0; row < state.n_rows; ++row) {
            const BranchPlace& place = args.rows[row];
            const Tail tail(args, place.branch, head);
            AttentionArgs own = all;
            own.qkv += row * in_size;
            own.out += row * out_size;
            tail.lay_in(place.pos);
            Attention(own, place.pos, 1, worker).attend_head(head);
            tail.take_out(place.pos);
        }
    });
}

}  // namespace soliton
