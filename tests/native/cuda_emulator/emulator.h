// A grid of a kernel on a CPU: what a thread of the grid asks of the machinery, and what a launch
// does. Blocks run one after the other; each thread of a block is a fiber that gives way only where
// threads meet. Which block, warp and lane goes on is shuffled by SOLITON_CUDA_EMULATOR_SEED, so
// that whatever depends on an order nobody promised differs from seed to seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>

namespace soliton::emulator {

using Where = std::source_location;

struct Extent {
    unsigned x, y, z;
    uint64_t count() const { return uint64_t{x} * y * z; }
};

struct Grid {
    Extent grid;
    Extent block;
    size_t shared_bytes;
    Where launched_at;
    std::function<void()> kernel;
    bool may_overlap;  // launched as one that begins while the launch before it ends
};

// Runs the grid to its end. Returns what went wrong, empty when nothing did. When `next` is given,
// one of its blocks goes as far as the wait for this grid before this grid begins, as it may on a
// GPU; the next call must then run `next`.
std::string run(const Grid& grid, const Grid* next = nullptr);

// ---- For the threads of a grid. ----

enum class Meeting { kShuffle, kVote, kSyncWarp, kMultiply, kLoadTransposed, kTranspose };

// Waits for the lanes of `mask` that have not ended, all in the same meeting at the same place.
// Then `settle` is called once with `mine` of each lane, null for those that do not take part.
void meet(Meeting meeting, unsigned mask, void* mine, void (*settle)(void* const (&lanes)[32]),
          const Where& where);

// Waits for all threads of the block that have not ended.
void barrier(const Where& where);

void wait_for_previous_grid();

// The copies of cp.async: they happen when they are waited for, and until then the destination
// holds NaN.
void copy_async(void* shared, const void* global, bool valid, const Where& where);
void commit_copies();
void wait_for_copies(int n_pending);

std::byte* shared_memory();

// Ends the grid with an error unless the address is a multiple of 16.
void expect_aligned(const void* address, const Where& where);

// And unless 16 bytes from there lie in the block's shared memory.
void expect_shared(const void* address, const Where& where);

// Of the running thread.
unsigned lane();

}  // namespace soliton::emulator
