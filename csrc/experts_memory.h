// The memory that a mixture of experts works in: what all threads share, and what each has. Owns
// the places. Knows no thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ops.h"
#include "prepared_row.h"
#include "routing.h"

namespace soliton {

// Passes of so many rows are prepared by every thread for itself.
inline constexpr int64_t kFewRows = 16;
// Rows of an expert that are multiplied at once.
inline constexpr int64_t kMostGathered = 128;
// The columns of a chunk of down are those of so many panels: with few rows as many as there are
// for each thread, so that an expert is read in long pieces.
inline constexpr int64_t kManyRowsPanels = 8;
inline constexpr int64_t kFewRowsPanels = 64;

// Hands out memory, piece after piece.
class Room {
  public:
    // The offset of a piece.
    int64_t take(int64_t n_bytes) {
        const int64_t begin = n_bytes_;
        n_bytes_ += (n_bytes + 63) / 64 * 64;
        return begin;
    }
    int64_t n_bytes() const { return n_bytes_; }

  private:
    int64_t n_bytes_ = 0;
};

inline PreparedRow form_of_x(const ExpertsArgs& args) {
    const Matrix matrices[] = {args.routed.gate,
                               args.routed.up.n_out ? args.routed.up : args.routed.gate,
                               args.shared.hidden ? args.shared.gate : args.routed.gate,
                               args.shared.up.n_out ? args.shared.up : args.routed.gate};
    return PreparedRow(matrices);
}

// Codes of a bank's inner rows; without them the rows themselves are multiplied.
inline PreparedRow form_of_inner(const ExpertBank& bank) {
    return PreparedRow(std::span(&bank.down, bank.hidden ? 1 : 0));
}

// Rows that few rows, or many, have at most.
struct Counts {
    int64_t rows;
    int64_t pairs;
    Counts(const ExpertsArgs& args, int64_t n_rows)
        : rows(n_rows), pairs(n_rows * args.routing.n_used) {}
};

// Where rows lie that are prepared, and what is known of them.
struct RowPlaces {
    int64_t x;
    int64_t choices;
    int64_t codes;         // of the inner rows of the routed experts
    int64_t shared_codes;  // the same of the shared one
    RowPlaces(const ExpertsArgs& args, const Counts& counts, Room& room)
        : x(room.take(counts.rows * form_of_x(args).n_bytes())),
          choices(room.take(counts.pairs * int64_t{sizeof(Choice)})),
          codes(room.take(counts.pairs * form_of_inner(args.routed).code_bytes)),
          shared_codes(room.take(counts.rows * form_of_inner(args.shared).code_bytes)) {}
};

// The memory that all threads share.
struct SharedPlaces {
    Room room;
    RowPlaces many;
    int64_t inner;  // (pairs, hidden): what the activation leaves of gate and up
    int64_t shared_inner;
    explicit SharedPlaces(const ExpertsArgs& args)
        : many(args, Counts(args, args.max_rows), room),
          inner(room.take(Counts(args, args.max_rows).pairs * args.routed.hidden * 4)),
          shared_inner(room.take(args.max_rows * args.shared.hidden * 4)) {}
};

// The memory of one thread.
struct WorkerPlaces {
    Room room;
    RowPlaces few;
    int64_t normed;    // one row
    int64_t gathered;  // rows of x that belong to one expert
    int64_t routing;
    int64_t groups;
    int64_t products;  // (pairs and rows, columns of a chunk)
    explicit WorkerPlaces(const ExpertsArgs& args)
        : few(args, Counts(args, kFewRows), room),
          normed(room.take(float_row_bytes(args.dim))),
          gathered(room.take(kMostGathered * form_of_x(args).n_bytes())),
          routing(room.take(routing_room(args.routing) * 4)),
          groups(room.take(Groups::n_words(args.routing, Counts(args, args.max_rows).pairs) * 4)),
          products(room.take(4 * kPanelRows *
                             std::max(n_products(args, kFewRows) * kFewRowsPanels,
                                      n_products(args, args.max_rows) * kManyRowsPanels))) {}

    static int64_t n_products(const ExpertsArgs& args, int64_t n_rows) {
        return n_rows * (args.routing.n_used + 1);
    }
};

}  // namespace soliton
