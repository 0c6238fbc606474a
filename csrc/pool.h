// The threads that ops run on: the caller and others that wait for it between runs. Owns starting,
// waking and parking them, and their barrier. Knows no op and no Python.
//
// One pool per process, since a machine has its cores once. It begins with the first run, and anew
// in a process that was forked.
#pragma once

#include <cstddef>
#include <cstdint>

namespace soliton {

class Pool;

// How long a thread looks for a change before it sleeps; pool.cpp says how it learns.
inline constexpr int64_t kLongestLookNs = 20'000;
struct Patience {
    int64_t ns = kLongestLookNs;
    int32_t failures = 0;
};

// One thread's view of a run. All threads of a run must come to the same barriers.
struct Worker {
    int index;           // 0: the thread that called
    int count;           // threads of this run
    std::byte* scratch;  // this thread's alone, on a cache line of its own

    // Returns when all threads are here; what any of them wrote before can be read after.
    void barrier();

    // The next of the chunks 0, 1, 2, … that no thread has taken since the last barrier. Which
    // thread gets which chunk must not change a result.
    int64_t claim();

    // Whether the run shall end, as it stood at the last barrier: the same for all threads.
    bool aborted() const;

    // The pool's own.
    Pool* pool;
    uint32_t stage = 0;  // barriers so far
    Patience at_barrier = {};
};

// A function that every thread of the pool calls, with what it is called on.
struct Work {
    void (*function)(void* context, Worker& worker);
    void* context;
    const int64_t* abort;  // read at every barrier: not 0 makes Worker::aborted true
    size_t scratch_bytes;  // that Worker::scratch has at least
};

// From the next run on, the pool has so many threads, the caller included. `pinned` ties each of
// the others to a processor of its own among those that the process may use.
void set_threads(int count, bool pinned);

int threads();

// Calls the work on all threads and returns when all are done. Throws std::runtime_error, before
// anything ran, when a run is under way in another thread or a thread cannot be started.
void run_on_all_threads(const Work& work);

}  // namespace soliton
