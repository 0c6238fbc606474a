// Which thread computes which part of attention, and the order in which the parts are merged.
// Included by what is compiled for the baseline; the arithmetic is in cpu/attention.cpp.
//
// Every row is the same sum in the same order, whatever the number of rows and threads: its keys
// are cut into blocks at fixed positions, and the blocks are merged one by one, ascending. With few
// rows the work is split by kv heads if they divide evenly among the threads, and otherwise by
// blocks, so that all threads share the keys of a long context. With many rows it is split by rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "cpu/kernels.h"
#include "fetcher.h"
#include "ops.h"
#include "pool.h"

namespace soliton {

// Up to this many rows, the work is split by heads or blocks.
inline constexpr int64_t kFewRows = 16;
// Records of blocks that are kept for one head before they are merged. They cover 128k positions
// with one row and 8k with 16 rows; a longer context takes several rounds.
inline constexpr int64_t kRecordsPerHead = 512;

inline int64_t record_size(int64_t head_dim) {
    return padded(head_dim) + kRecordTail;
}

// One call of the op, as all threads see it.
class Attention {
  public:
    // `rows` rows from position `pos` on, or, with a `step` of 0, all of them there.
    Attention(const AttentionArgs& args, int64_t pos, int64_t rows, Worker& worker,
              int64_t step = 1)
        : kernels_(cpu_kernels()),
          args_(args),
          worker_(worker),
          work_(*reinterpret_cast<AttentionWork*>(worker.scratch)),
          pos_(pos),
          step_(step),
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
        const int64_t own_end = args_.n_kv_heads * (worker_.index + 1) / worker_.count;
        worker_.share(args_.n_kv_heads, [&](int64_t head) {
            attend_head(head, head + 1 < own_end ? first_keys(head + 1) : worker_.next_reading());
        });
    }

    // All that one kv head does. The thread reads `after` next.
    void attend_head(int64_t head, const Reading& after) {
        fetch_first_keys(head);
        if (args_.stores) {
            kernels_.store_keys_values(args_, pos_, head, 0, rows_);
        }
        for (int64_t first = 0; first < queries_; first += tile_) {
            QueryTile tile = tile_from(head, first);
            if (first + tile.count == queries_) {
                tile.after = after.begin;
                tile.after_bytes = after.n_bytes;
            }
            attend_tile(tile);
        }
    }

    // The same for branches: `attend_own(row, tile, merged)` goes through the blocks from
    // `own_block` on, for those queries of one row that a tile has.
    template <typename AttendOwn>
    void attend_head_of_branches(int64_t head, int64_t own_block, AttendOwn&& attend_own) {
        const int64_t group = queries_ / rows_;
        fetch_first_keys(head);
        for (int64_t first = 0; first < queries_; first += tile_) {
            const QueryTile tile = tile_from(head, first);
            start(tile, work_.records[0]);
            attend_blocks(tile, first_block(0), own_block, work_.records[0]);
            const int64_t end = first + tile.count;
            for (int64_t query = first; query < end;) {
                const int64_t row = row_of(query);
                const int64_t own_end = std::min((row + 1) * group, end);
                attend_own(row, {head, query - row * group, own_end - query, pos_, step_},
                           work_.records[0] + (query - first) * record_size_);
                query = own_end;
            }
        }
    }

    // Blocks from `begin` on for queries of the only row, and then their outputs. `merged`: of the
    // blocks before.
    void complete(const QueryTile& tile, int64_t begin, float* merged) {
        if (args_.stores) {
            kernels_.store_keys_values(args_, pos_, tile.kv_head, 0, 1);
        }
        kernels_.load_queries(args_, tile, work_);
        attend_blocks(tile, std::max(begin, first_block(0)), block_of(0) + 1, merged);
        finish(tile, merged);
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
    // The keys of the first block that the rows see.
    Reading first_keys(int64_t head) const {
        const int64_t begin = first_block(0) * kKeyBlock;
        const int64_t n_keys = std::min(kKeyBlock, position(rows_ - 1) + 1 - begin);
        const int64_t head_dim = padded(args_.head_dim);
        const int64_t first = head * padded(args_.max_seq_len) + place_of(args_, begin);
        return {.begin = static_cast<const std::byte*>(args_.k_cache) +
                         stored_bytes(args_.k_type, first * head_dim),
                .n_places = 1,
                .pitch = 0,
                .n_bytes = stored_bytes(args_.k_type, padded(n_keys) * head_dim)};
    }

    // Fetches the first keys while the queries are prepared, as many as memory delivers meanwhile:
    // no block before them fetches them.
    void fetch_first_keys(int64_t head) const {
        constexpr int64_t kMostBytes = 16 * 1024;
        const Reading keys = first_keys(head);
        for (int64_t i = 0; i < std::min(keys.n_bytes, kMostBytes); i += kKvLanes * kLaneBytes) {
            __builtin_prefetch(keys.begin + i, 0, 2);
        }
    }

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
            kernels_.finish_record(args_, merged, sink_of(kv_head, query), out_of(kv_head, query));
        }
    }

    // All blocks for one tile of queries.
    void attend_tile(const QueryTile& tile) {
        float* merged = work_.records[0];
        start(tile, merged);
        const int64_t last_block = block_of(row_of(tile.first + tile.count - 1));
        attend_blocks(tile, first_block(row_of(tile.first)), last_block + 1, merged);
        finish(tile, merged);
    }

    void start(const QueryTile& tile, float* merged) {
        for (int64_t i = 0; i < tile.count; ++i) {
            clear(merged + i * record_size_);
        }
        kernels_.load_queries(args_, tile, work_);
    }

    // Merges blocks [begin, end) for the queries that have been loaded.
    void attend_blocks(const QueryTile& tile, int64_t begin, int64_t end, float* merged) {
        float* block_records = work_.records[1];
        for (int64_t block = begin; block < end; ++block) {
            kernels_.attend_block(args_, tile, block, work_, block_records);
            for (int64_t i = 0; i < tile.count; ++i) {
                kernels_.merge_record(merged + i * record_size_, block_records + i * record_size_,
                                      args_.head_dim);
            }
        }
    }

    void finish(const QueryTile& tile, const float* merged) {
        for (int64_t i = 0; i < tile.count; ++i) {
            kernels_.finish_record(args_, merged + i * record_size_,
                                   sink_of(tile.kv_head, tile.first + i),
                                   out_of(tile.kv_head, tile.first + i));
        }
    }

    QueryTile tile_from(int64_t kv_head, int64_t first) const {
        return {kv_head, first, std::min(tile_, queries_ - first), pos_, step_};
    }

    int64_t row_of(int64_t query) const { return query / (args_.n_heads / args_.n_kv_heads); }

    int64_t position(int64_t row) const { return pos_ + row * step_; }

    int64_t block_of(int64_t row) const { return position(row) / kKeyBlock; }

    // The first block with a key that the row sees.
    int64_t first_block(int64_t row) const {
        return args_.window ? std::max<int64_t>(position(row) - args_.window + 1, 0) / kKeyBlock
                            : 0;
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
    const int64_t step_;
    const int64_t rows_;
    const int64_t queries_;  // per kv head
    const int64_t record_size_;
    const int64_t tile_;  // queries
};

}  // namespace soliton
