#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "bell.h"
#include "exclusive.h"

namespace soliton {

// What the threads in a run share. Each keeps it alive while it takes part.
struct Run {
    std::shared_ptr<const Work> work;
    std::atomic<const int64_t*> abort;  // that of the caller, once it has joined
    size_t scratch_bytes;
    // The pool's counters when the run begins.
    uint64_t first_region;
    uint64_t first_goal;
    std::atomic<bool> is_open;           // see Worker::wait_until_open
    std::atomic<bool> left_out = false;  // chunks were skipped because of an abort
};

namespace {

constexpr int64_t kGoOn = 0;
constexpr int64_t kStop = 1;

// Two cache lines, because processors fetch them in pairs.
constexpr size_t kApart = 128;

// What a waiting thread fetches at most; it must not push out of the second-level cache what it
// fetched first.
constexpr int64_t kMostAheadBytes = 128 * 1024;

// The chunks of one thread in the current region: how many are taken, by it or by others. The same
// word holds the region's number, so that no thread can take a chunk of a region that is over.
class alignas(kApart) Share {
  public:
    // The next of `n` chunks, counted from 0; -1 when all are taken.
    int64_t take(uint64_t region, int64_t n) {
        uint64_t word = word_.load(std::memory_order_relaxed);
        for (;;) {
            // Until the first chunk of a region is taken, the word belongs to an earlier region.
            const uint64_t taken = word >> kBits == region ? word & kMask : 0;
            if (word >> kBits > region || taken >= static_cast<uint64_t>(n)) {
                return -1;
            }
            if (word_.compare_exchange_weak(word, region << kBits | (taken + 1),
                                            std::memory_order_relaxed)) {
                return static_cast<int64_t>(taken);
            }
        }
    }

  private:
    static constexpr int kBits = 21;
    static constexpr uint64_t kMask = (uint64_t{1} << kBits) - 1;
    static_assert(Worker::kMostChunks <= int64_t{1} << (kBits - 1));

    std::atomic<uint64_t> word_ = 0;
};

// How many chunks are done, over all regions so far, and where threads wait for more.
//
// A core that writes a line of memory takes it away from the others, which costs each of them some
// 100 ns. So nobody looks at the counter while it waits: the thread that completes a region tells
// the others elsewhere.
class Progress {
  public:
    bool is_over(uint64_t goal) const { return over_.load(std::memory_order_acquire) >= goal; }

    // Returns whether `goal` chunks are done now.
    bool add(int64_t n, uint64_t goal) {
        const uint64_t before = done_.fetch_add(static_cast<uint64_t>(n) * kOne);
        if (before / kOne + static_cast<uint64_t>(n) < goal) {
            return false;
        }
        over_.store(goal, std::memory_order_release);
        if (before & kHasSlept) {
            bell_.ring();
        }
        return true;
    }

    void wait_for(uint64_t goal) {
        while (!is_over(goal)) {
            // Whoever completes the region after this mark rings. The mark stays: later, the bell
            // may be rung in vain.
            bell_.wait_until([&] { return is_over(goal); },
                             [&] { return done_.fetch_or(kHasSlept) / kOne >= goal; });
        }
    }

    // What `is_over` looks at.
    const std::atomic<uint64_t>& over() const { return over_; }

  private:
    static constexpr uint64_t kHasSlept = 1;
    static constexpr uint64_t kOne = 2;  // a chunk

    alignas(kApart) std::atomic<uint64_t> done_ = 0;
    Bell bell_;
    alignas(kApart) std::atomic<uint64_t> over_ = 0;  // the goal of the last region that is done
};

// Blocks signals in this thread while the object lives, and for good in threads started meanwhile:
// signals are for Python's main thread.
class BlockedSignals {
  public:
    BlockedSignals() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    BlockedSignals(const BlockedSignals&) = delete;
    BlockedSignals& operator=(const BlockedSignals&) = delete;

  private:
    sigset_t before_;
};

// Memory that shares no cache line with anything else.
class Scratch {
  public:
    std::byte* at_least(size_t n_bytes) {
        if (n_bytes > n_bytes_) {
            const size_t rounded = (n_bytes + kApart - 1) / kApart * kApart;
            memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kApart, rounded)));
            n_bytes_ = memory_ ? rounded : 0;
            if (!memory_) {
                throw std::bad_alloc();
            }
        }
        return memory_.get();
    }

  private:
    struct Free {
        void operator()(std::byte* memory) const { std::free(memory); }
    };
    std::unique_ptr<std::byte, Free> memory_;
    size_t n_bytes_ = 0;
};

struct Size {
    int count = 1;
    std::vector<int> processors;  // (count - 1,) or empty

    bool operator==(const Size&) const = default;
};

}  // namespace

class Pool {
  public:
    explicit Pool(const Size& size) : size_(size), shares_(size.count), caller_(worker(0)) {
        const BlockedSignals blocked;
        try {
            for (int index = 1; index < size.count; ++index) {
                std::thread& thread = threads_.emplace_back([this, index] { serve(index); });
                name(thread, index);
                if (!size.processors.empty()) {
                    pin(thread, size.processors[index - 1]);
                }
            }
        } catch (const std::system_error&) {
            stop();
            throw NoThreads();
        } catch (...) {
            stop();
            throw;
        }
    }

    ~Pool() {
        drop_begun();
        stop();
    }

    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    const Size& size() const { return size_; }

    bool run(std::shared_ptr<const Work> work, const int64_t* abort, size_t scratch_bytes) {
        if (has_begun(work)) {
            return join(abort);
        }
        const auto run = new_run(std::move(work), abort, scratch_bytes);
        if (size_.count > 1) {
            publish(run);
        }
        take_part(*run, caller_);
        return !run->left_out.load(std::memory_order_relaxed);
    }

    void begin(std::shared_ptr<const Work> work, size_t scratch_bytes, bool is_open) {
        begun_ = new_run(std::move(work), &kGoOn, scratch_bytes);
        begun_->is_open.store(is_open);
        publish(begun_);
    }

    void open_begun() { open(*begun_); }

    void wait_until_open(const Run& run) {
        run_bell_.wait_until([&run] { return run.is_open.load(); });
    }

    bool has_begun(const std::shared_ptr<const Work>& work) const {
        return begun_ != nullptr && begun_->work == work;
    }

    // The caller has to take part, because its counters go on where the run ends.
    void drop_begun() {
        if (begun_ != nullptr) {
            join(&kStop);
        }
    }

    Progress& progress() { return progress_; }

    Share& share_of(int index) { return shares_[index]; }

  private:
    Worker worker(int index) {
        Worker worker;
        worker.index = index;
        worker.count = size_.count;
        worker.scratch = nullptr;
        worker.pool_ = this;
        return worker;
    }

    void serve(int index) {
        Worker self = worker(index);
        Scratch scratch;
        for (uint32_t seen = 0;;) {
            run_bell_.wait_until([&] { return n_runs_.load(std::memory_order_acquire) != seen; });
            seen = n_runs_.load(std::memory_order_acquire);
            const std::shared_ptr<Run> run = published();
            if (run == nullptr) {
                return;
            }
            try {
                self.scratch = scratch.at_least(run->scratch_bytes);
            } catch (const std::bad_alloc&) {
                continue;  // the others run without this thread
            }
            self.region_ = run->first_region;
            self.goal_ = run->first_goal;
            take_part(*run, self);
        }
    }

    std::shared_ptr<Run> new_run(std::shared_ptr<const Work> work, const int64_t* abort,
                                 size_t scratch_bytes) {
        caller_.scratch = caller_scratch_.at_least(scratch_bytes);
        return std::make_shared<Run>(std::move(work), abort, scratch_bytes, caller_.region_,
                                     caller_.goal_, true);
    }

    // Goes on with what the helpers have begun.
    bool join(const int64_t* abort) {
        const std::shared_ptr<Run> run = std::move(begun_);
        run->abort.store(abort, std::memory_order_relaxed);
        open(*run);
        take_part(*run, caller_);
        return !run->left_out.load(std::memory_order_relaxed);
    }

    void open(Run& run) {
        if (!run.is_open.load(std::memory_order_relaxed)) {
            run.is_open.store(true);
            run_bell_.ring();
        }
    }

    static void take_part(Run& run, Worker& worker) {
        worker.run_ = &run;
        run.work->take_part(worker);
    }

    // Wakes the waiting threads to take part in the run; null ends them.
    void publish(std::shared_ptr<Run> run) {
        {
            const std::lock_guard lock(run_mutex_);
            run_.swap(run);
        }
        n_runs_.fetch_add(1);
        run_bell_.ring();
    }

    std::shared_ptr<Run> published() {
        const std::lock_guard lock(run_mutex_);
        return run_;
    }

    void stop() {
        publish(nullptr);
        for (std::thread& thread : threads_) {
            thread.join();
        }
    }

    // The name that ps, top and debuggers show.
    static void name(std::thread& thread, int index) {
        const std::string name = "soliton-" + std::to_string(index);
        pthread_setname_np(thread.native_handle(), name.c_str());
    }

    // If the system does not allow it, the thread runs unpinned.
    static void pin(std::thread& thread, int processor) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(processor, &set);
        pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
    }

    const Size size_;
    std::vector<Share> shares_;
    std::vector<std::thread> threads_;
    Worker caller_;
    Scratch caller_scratch_;
    std::shared_ptr<Run> begun_;  // by the helpers alone
    std::mutex run_mutex_;
    std::shared_ptr<Run> run_;
    Progress progress_;
    alignas(kApart) std::atomic<uint32_t> n_runs_ = 0;
    Bell run_bell_;
};

void Worker::begin(int64_t n) {
    ++region_;
    goal_ += static_cast<uint64_t>(n);
    n_ = n;
    n_taken_ = 0;
    helped_ = 0;
}

int64_t Worker::next() {
    const int owner = (index + helped_) % count;
    const int64_t first = n_ * owner / count;
    const int64_t n = n_ * (owner + 1) / count - first;
    const int64_t chunk = pool_->share_of(owner).take(region_, n);
    return chunk < 0 ? -1 : first + chunk;
}

void Worker::wait_until_open() {
    if (index != 0 && !run_->is_open.load(std::memory_order_acquire)) {
        pool_->wait_until_open(*run_);
    }
}

Reading Worker::next_reading() const {
    FirstReading first;
    run_->work->expect(*this, first);
    return first.found;
}

bool Worker::aborted() {
    const int64_t* abort = run_->abort.load(std::memory_order_relaxed);
    if (__atomic_load_n(abort, __ATOMIC_RELAXED) == 0) {
        return false;
    }
    run_->left_out.store(true, std::memory_order_relaxed);
    return true;
}

// Called when the share of thread index + helped_ is empty. A thread that has finished its own
// share first fetches what it reads next, because the others are most likely about to finish
// theirs: to look at a share takes its line of memory away from its owner.
bool Worker::has_to_help() {
    Progress& progress = pool_->progress();
    const bool is_over =
        n_taken_ > 0 ? progress.add(std::exchange(n_taken_, 0), goal_) : progress.is_over(goal_);
    if (is_over) {
        return false;
    }
    if (helped_ == 0) {
        Fetcher fetcher(progress.over(), goal_, kMostAheadBytes);
        run_->work->expect(*this, fetcher);
    }
    if (++helped_ < count) {
        return true;
    }
    progress.wait_for(goal_);
    return false;
}

namespace {

// For all of these, but the thread whose run is in progress owns the pool without it.
std::mutex pool_mutex;
Size size;
std::atomic<bool> is_taken = false;  // a run is in progress
// Not deleted at exit: its threads sleep and end with the process.
Pool* pool = nullptr;

// The parent's threads do not exist in the child, so its pool is useless there. It cannot be
// deleted either, because that would join them.
void forget_after_fork() {
    pool = nullptr;
    is_taken = false;
    new (&pool_mutex) std::mutex;
}

const int fork_is_handled = pthread_atfork(nullptr, nullptr, forget_after_fork);

}  // namespace

void set_threads(int count, std::vector<int> processors) {
    const std::lock_guard lock(pool_mutex);
    size = {count, std::move(processors)};
}

int threads() {
    const std::lock_guard lock(pool_mutex);
    return size.count;
}

bool run_on_all_threads(std::shared_ptr<const Work> work, const int64_t* abort,
                        size_t scratch_bytes) {
    std::unique_lock lock(pool_mutex);
    const Exclusive run(is_taken, "native ops are running in another thread of this process");
    if (pool == nullptr || pool->size() != size) {
        delete pool;
        pool = nullptr;
        pool = new Pool(size);
    }
    if (!pool->has_begun(work)) {
        pool->drop_begun();  // while the lock is held: see drop_begun
    }
    lock.unlock();
    return pool->run(std::move(work), abort, scratch_bytes);
}

void begin_on_helpers(std::shared_ptr<const Work> work, size_t scratch_bytes, bool is_open) {
    const std::lock_guard lock(pool_mutex);
    if (size.count > 1 && pool != nullptr && pool->size() == size && !is_taken) {
        pool->drop_begun();
        pool->begin(std::move(work), scratch_bytes, is_open);
    }
}

bool open_begun(const std::shared_ptr<const Work>& work) {
    const std::lock_guard lock(pool_mutex);
    const bool is_begun = pool != nullptr && !is_taken && pool->has_begun(work);
    if (is_begun) {
        pool->open_begun();
    }
    return is_begun;
}

void drop_begun() {
    const std::lock_guard lock(pool_mutex);
    if (pool != nullptr && !is_taken) {  // a run in progress has dropped or joined what had begun
        pool->drop_begun();
    }
}

}  // namespace soliton
