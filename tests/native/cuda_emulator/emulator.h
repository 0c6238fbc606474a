// Runs a kernel's grid on a CPU: what a thread of the grid can request, and what a launch does.
// Blocks run one after the other. Each thread of a block is a fiber that yields only where threads
// meet. SOLITON_CUDA_EMULATOR_SEED shuffles which block, warp and lane continues, so that results
// that depend on an unspecified order differ from seed to seed.
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
    bool may_overlap;  // may begin before the previous launch has ended
};

// Runs the grid to its end. Returns the error, or an empty string. If `next` is given, one of its
// blocks runs up to its wait for this grid before this grid begins, as can happen on a GPU. The
// next call must then run `next`.
std::string run(const Grid& grid, const Grid* next = nullptr);

// ---- For the threads of a grid. ----

enum class Meeting { kShuffle, kVote, kSyncWarp, kMultiply, kLoadTransposed, kTranspose };

// Waits until the lanes of `mask` that have not ended are all in the same meeting at the same
// place. Then `settle` is called once with `mine` of each lane; null for lanes that do not take
// part.
void meet(Meeting meeting, unsigned mask, void* mine, void (*settle)(void* const (&lanes)[32]),
          const Where& where);

// Waits for all threads of the block that have not ended.
void barrier(const Where& where);

void wait_for_previous_grid();

// The copies of cp.async. They happen when they are waited for; until then the destination holds
// NaN.
void copy_async(void* shared, const void* global, bool valid, const Where& where);
void commit_copies();
void wait_for_copies(int n_pending);

std::byte* shared_memory();

// Ends the grid with an error unless the address is a multiple of 16.
void expect_aligned(const void* address, const Where& where);

// The same, and also unless the 16 bytes from there are in the block's shared memory.
void expect_shared(const void* address, const Where& where);

// Of the running thread.
unsigned lane();

}  // namespace soliton::emulator
