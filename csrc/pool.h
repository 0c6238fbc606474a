// The threads that ops run on: the caller and its helpers. Owns starting, waking and parking them,
// and how they divide work. Knows no op and no Python.
//
// All threads go through the same regions of chunks, and each takes chunks that are still free. A
// region ends when its chunks are done, not when all threads have arrived. So a thread that the
// operating system does not schedule delays the others only if it was stopped within a chunk. When
// it runs again, it skips what was done meanwhile and joins the others.
//
// One pool per process, because all ops share the machine's cores. The first run creates it; a
// forked process creates a new one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <vector>

#include "fetcher.h"

namespace soliton {

class Pool;
struct Run;

// A thread cannot be started. Callers treat this as running out of memory.
class NoThreads final : public std::bad_alloc {
  public:
    const char* what() const noexcept override {
        return "cannot start another thread: the system's limit on threads or memory is reached";
    }
};

// One thread's view of a run.
class Worker {
  public:
    int index;           // 0 is the calling thread
    int count;           // threads of the pool
    std::byte* scratch;  // for this thread only; shares no cache line with others
    size_t step = 0;     // where the thread is in its work, which counts: for Work::expect

    // Calls body(i) once for each chunk i = 0..n - 1, in any order, on any thread. Returns when all
    // calls have returned; what they wrote can then be read. After an abort the remaining chunks
    // are skipped.
    //
    // All threads of a run must reach the same regions with the same n, below kMostChunks. A thread
    // may be late, so only chunks may touch what other threads write. Neighbouring chunks go to the
    // same thread, and to the same one in each run, unless another thread has run out of work.
    template <typename Body>
    void share(int64_t n, Body&& body) {
        begin(n);
        run_chunks(body);
        while (has_to_help()) {
            run_chunks(body);
        }
    }

    // Returns when the caller of the run allows it: see begin_on_helpers. The caller need not wait.
    void wait_until_open();

    // What this thread most likely reads first when this region is over; nothing if it is not
    // known.
    Reading next_reading() const;

    static constexpr int64_t kMostChunks = int64_t{1} << 20;

  private:
    friend class Pool;

    template <typename Body>
    void run_chunks(Body&& body) {
        for (int64_t i = next(); i >= 0; i = next()) {
            if (!aborted()) {
                body(i);
            }
            ++n_taken_;
        }
    }

    void begin(int64_t n);
    int64_t next();  // of the share of thread index + helped_; -1: all are taken
    bool aborted();
    bool has_to_help();  // false: the region is over

    Pool* pool_ = nullptr;
    Run* run_ = nullptr;
    uint64_t region_ = 0;  // regions since the pool began, including this one
    uint64_t goal_ = 0;    // chunks in all of them
    int64_t n_ = 0;        // chunks in this region
    int64_t n_taken_ = 0;  // and not reported yet
    int helped_ = 0;       // takes chunks from the share of thread index + helped_
};

// What the threads of a pool call.
class Work {
  public:
    virtual ~Work() = default;

    // A late thread calls this even after the run has ended, so code outside of chunks may read
    // only what this object owns.
    virtual void take_part(Worker& worker) const = 0;

    // Gives `readings` what the worker reads after its step, in that order. By default that is not
    // known.
    virtual void expect(const Worker&, Readings&) const {}
};

// From the next run on, the pool has `count` threads, including the caller. Thread i is pinned to
// processors[i - 1] if the system allows it; an empty list pins none.
void set_threads(int count, std::vector<int> processors);

int threads();

// Calls the work on all threads and returns when its last region is done. Returns false if chunks
// were skipped because `*abort` was not 0. Worker::scratch has at least `scratch_bytes`. Throws
// std::runtime_error, before anything has run, if another thread is in a run, and std::bad_alloc if
// memory or threads run out. A chunk must not throw.
//
// If the helpers have begun this work, the caller joins them. Other work that they have begun is
// dropped.
bool run_on_all_threads(std::shared_ptr<const Work> work, const int64_t* abort,
                        size_t scratch_bytes);

// Lets the helpers begin the work that `run_on_all_threads` will most likely be called with next.
// Does nothing if there are no helpers, or if another thread is in a run. Until the work is run or
// dropped, chunks may read and write their memory; those after Worker::wait_until_open not before
// `open_begun`, unless `is_open`. Throws std::bad_alloc.
void begin_on_helpers(std::shared_ptr<const Work> work, size_t scratch_bytes, bool is_open);

// Lets the helpers go on in this work. Returns false if it is not what they have begun.
bool open_begun(const std::shared_ptr<const Work>& work);

// Drops the work that the helpers have begun, if any: no chunk of it runs when this returns.
void drop_begun();

template <typename Body>
class Chunks final : public Work {
  public:
    Chunks(int64_t n, Body body) : n_(n), body_(body) {}

    void take_part(Worker& worker) const override { worker.share(n_, body_); }

  private:
    const int64_t n_;
    const Body body_;  // refers to the caller's memory, so it is called only within chunks
};

// Calls body(i) once for each chunk i = 0..n - 1, on all threads. Throws as run_on_all_threads
// does.
template <typename Body>
void chunks_on_all_threads(int64_t n, Body body) {
    const int64_t no_abort = 0;
    run_on_all_threads(std::make_shared<Chunks<Body>>(n, body), &no_abort, 0);
}

// The same, but returns false, without having called anything, where that throws.
template <typename Body>
bool try_chunks_on_all_threads(int64_t n, Body body) {
    try {
        chunks_on_all_threads(n, body);
    } catch (const std::runtime_error&) {
        return false;
    } catch (const std::bad_alloc&) {
        return false;
    }
    return true;
}

}  // namespace soliton
