// The threads that ops run on: the caller and others that help it. Owns starting, waking and
// parking them, and how they divide work. Knows no op and no Python.
//
// All threads go through the same regions of chunks, each taking chunks that nobody has taken, and
// a region ends when its chunks are done: not when all threads have come. So a thread that the
// machine does not let run delays nobody, unless it was stopped within a chunk; it finds done what
// it missed, and goes on to where the others are.
//
// One pool per process, since a machine has its cores once. It begins with the first run, and anew
// in a process that was forked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <vector>

namespace soliton {

class Pool;
struct Run;

// A thread cannot be started: for those who ask, memory has ended.
class NoThreads final : public std::bad_alloc {
  public:
    const char* what() const noexcept override { return "the system gives no more threads"; }
};

// One thread's view of a run.
class Worker {
  public:
    int index;           // 0: the thread that called
    int count;           // threads of the pool
    std::byte* scratch;  // this thread's alone, on a cache line of its own

    // Calls body(i) once for each chunk i = 0..n - 1, in any order, each on one of the threads, and
    // returns when all have returned: what they wrote can be read then. After an abort the chunks
    // that are left are not called.
    //
    // All threads of a run must come to the same regions with the same n, below kMostChunks. A
    // thread may be late, so it touches what others write only within chunks. Neighbouring chunks
    // go to the same thread, in each run the same ones, unless another has nothing left to do.
    template <typename Body>
    void share(int64_t n, Body&& body) {
        int64_t n_taken = 0;
        begin(n);
        for (int64_t i = next(); i >= 0; i = next()) {
            if (!aborted()) {
                body(i);
            }
            ++n_taken;
        }
        end(n_taken);
    }

    static constexpr int64_t kMostChunks = int64_t{1} << 20;

  private:
    friend class Pool;

    void begin(int64_t n);
    int64_t next();  // -1: all are taken
    bool aborted();
    void end(int64_t n_taken);

    Pool* pool_ = nullptr;
    Run* run_ = nullptr;
    uint64_t region_ = 0;  // how many there were in the life of the pool, the present one included
    uint64_t goal_ = 0;    // chunks of all of them
    int64_t n_ = 0;        // chunks of the present one
    int helped_ = 0;       // whose share chunks are taken of: so many threads after this one
};

// What the threads of a pool call.
class Work {
  public:
    virtual ~Work() = default;

    // A late thread calls this even after the run has ended: what is read outside of chunks must be
    // this object's own.
    virtual void take_part(Worker& worker) const = 0;
};

// From the next run on, the pool has so many threads, the caller included. Thread i keeps to
// processors[i - 1], where the machine allows that; without processors (empty) it may run on any.
void set_threads(int count, std::vector<int> processors);

int threads();

// Calls the work on all threads and returns when its last region is done. False if chunks were left
// out, because `*abort` was not 0. `scratch_bytes` is what Worker::scratch has at least. Throws
// std::runtime_error, before anything ran, when a run is under way in another thread, and
// std::bad_alloc when there is no memory, or no thread. A chunk must not throw.
bool run_on_all_threads(std::shared_ptr<const Work> work, const int64_t* abort,
                        size_t scratch_bytes);

template <typename Body>
class Chunks final : public Work {
  public:
    Chunks(int64_t n, Body body) : n_(n), body_(body) {}

    void take_part(Worker& worker) const override { worker.share(n_, body_); }

  private:
    const int64_t n_;
    const Body body_;  // refers to the caller's memory: called in chunks alone
};

// Calls body(i) once for each chunk i = 0..n - 1, on all threads. Throws as run_on_all_threads
// does.
template <typename Body>
void chunks_on_all_threads(int64_t n, Body body) {
    const int64_t no_abort = 0;
    run_on_all_threads(std::make_shared<Chunks<Body>>(n, body), &no_abort, 0);
}

// The same; false, with nothing called, where that throws.
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
