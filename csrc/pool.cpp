#include "pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace soliton {
namespace {

// Two lines: processors fetch pairs.
constexpr size_t kApart = 128;

// Looking for longer than sleeping and being woken takes helps nobody; and while another program
// has the core of the thread that is waited for, looking keeps it from moving to this one. So a
// look that came to nothing halves the next one, and one that did not makes it a little longer.
constexpr int64_t kShortestLookNs = 500;
constexpr int64_t kLookGrowthNs = 250;
constexpr int kLooksPerClock = 32;
// So many looks that came to nothing, then one of full length: the machine may have calmed down.
constexpr int32_t kFailuresBeforeRetry = 64;

int64_t now_ns() {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");
#endif
}

// A count that only grows, and threads that wait for it to reach a goal.
//
// It moves in steps of two and wraps around: the lowest bit says that somebody sleeps.
class alignas(kApart) Counter {
  public:
    static constexpr uint32_t kOne = 2;

    // Adds one; whoever reaches the goal wakes those who sleep until then.
    void add(uint32_t goal) {
        const uint32_t before = word_.fetch_add(kOne, std::memory_order_acq_rel);
        if (before == goal - kOne + kSleepers) {
            // Who falls asleep for the next goal meanwhile is woken too, and looks again.
            word_.fetch_and(~kSleepers, std::memory_order_relaxed);
            syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
        }
    }

    void wait_for(uint32_t goal, Patience& patience) {
        if (look_for(goal, patience.ns)) {
            patience.ns = std::min(patience.ns + kLookGrowthNs, kLongestLookNs);
            return;
        }
        patience.ns = ++patience.failures % kFailuresBeforeRetry == 0
                          ? kLongestLookNs
                          : std::max(patience.ns / 2, kShortestLookNs);
        sleep_until(goal);
    }

  private:
    static constexpr uint32_t kSleepers = 1;

    static bool reached(uint32_t word, uint32_t goal) {
        return static_cast<int32_t>((word & ~kSleepers) - goal) >= 0;
    }

    bool look_for(uint32_t goal, int64_t ns) const {
        int64_t begin = 0;
        for (;;) {
            for (int i = 0; i < kLooksPerClock; ++i) {
                if (reached(word_.load(std::memory_order_acquire), goal)) {
                    return true;
                }
                relax();
            }
            const int64_t now = now_ns();
            if (begin == 0) {
                begin = now;
            } else if (now - begin > ns) {
                return false;
            }
        }
    }

    void sleep_until(uint32_t goal) {
        uint32_t word = word_.load(std::memory_order_acquire);
        while (!reached(word, goal)) {
            const uint32_t marked = word | kSleepers;
            if (word == marked || word_.compare_exchange_weak(word, marked)) {
                // Returns at once if the word is another by now; may also return for no reason.
                syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, marked, nullptr, nullptr, 0);
            }
            word = word_.load(std::memory_order_acquire);
        }
    }

    std::atomic<uint32_t> word_ = 0;
};
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

// While it lives, this thread takes no signal, and threads that it starts never do: signals are for
// Python's main thread.
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

// Memory on cache lines of its own. Not touched here: its pages are put near the thread that first
// writes them.
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

// The processors that this thread may run on, ascending.
std::vector<int> allowed_processors() {
    cpu_set_t set;
    std::vector<int> processors;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        for (int i = 0; i < CPU_SETSIZE; ++i) {
            if (CPU_ISSET(i, &set)) {
                processors.push_back(i);
            }
        }
    }
    return processors;
}

}  // namespace

class Pool {
  public:
    Pool(int count, bool pinned) : count_(count), pinned_(pinned), scratch_(count) {
        const BlockedSignals blocked;
        const std::vector<int> processors = pinned ? allowed_processors() : std::vector<int>();
        try {
            for (int index = 1; index < count; ++index) {
                std::thread& thread = threads_.emplace_back([this, index] { serve(index); });
                name(thread, index);
                if (!processors.empty()) {
                    pin(thread, processors[index % processors.size()]);
                }
            }
        } catch (...) {
            stop();
            throw;
        }
    }

    ~Pool() { stop(); }

    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    bool is(int count, bool pinned) const { return count == count_ && pinned == pinned_; }

    void run(const Work& work) {
        for (Scratch& scratch : scratch_) {
            scratch.at_least(work.scratch_bytes);
        }
        work_ = &work;
        prepare(caller_.stage);
        runs_.add(n_runs_ += Counter::kOne);
        take_part(caller_);
    }

    void barrier(Worker& worker) {
        ++worker.stage;
        if (worker.index == 0) {
            prepare(worker.stage);
        }
        const uint32_t goal = worker.stage * static_cast<uint32_t>(count_) * Counter::kOne;
        arrivals_.add(goal);
        arrivals_.wait_for(goal, worker.at_barrier);
    }

    int64_t claim(const Worker& worker) {
        return next_chunk_[worker.stage % 2].fetch_add(1, std::memory_order_relaxed);
    }

    bool aborted(const Worker& worker) const { return aborted_[worker.stage % 2]; }

  private:
    void serve(int index) {
        Patience between_runs;
        Worker worker = {.index = index, .count = count_, .scratch = nullptr, .pool = this};
        for (uint32_t goal = Counter::kOne;; goal += Counter::kOne) {
            runs_.wait_for(goal, between_runs);
            if (work_ == nullptr) {
                return;
            }
            take_part(worker);
        }
    }

    void take_part(Worker& worker) {
        worker.scratch = scratch_[worker.index].at_least(0);
        work_->function(work_->context, worker);
        worker.barrier();
    }

    // What the stage behind the next barrier begins with. The caller's thread does this while
    // others may still be in the stage before: hence two of each. It writes only what changes,
    // since every line that it takes from another processor makes the barrier slower.
    void prepare(uint32_t stage) {
        const bool aborted = __atomic_load_n(work_->abort, __ATOMIC_RELAXED) != 0;
        if (aborted_[stage % 2] != aborted) {
            aborted_[stage % 2] = aborted;
        }
        std::atomic<int64_t>& next_chunk = next_chunk_[stage % 2];
        if (next_chunk.load(std::memory_order_relaxed) != 0) {
            next_chunk.store(0, std::memory_order_relaxed);
        }
    }

    void stop() {
        work_ = nullptr;
        runs_.add(n_runs_ += Counter::kOne);
        for (std::thread& thread : threads_) {
            thread.join();
        }
    }

    // For those who look at the process from outside.
    static void name(std::thread& thread, int index) {
        const std::string name = "soliton-" + std::to_string(index);
        pthread_setname_np(thread.native_handle(), name.c_str());
    }

    // Where that is not allowed, the thread runs unpinned.
    static void pin(std::thread& thread, int processor) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(processor, &set);
        pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
    }

    const int count_;
    const bool pinned_;
    std::vector<Scratch> scratch_;
    std::vector<std::thread> threads_;
    Worker caller_ = {.index = 0, .count = count_, .scratch = nullptr, .pool = this};
    const Work* work_ = nullptr;  // written while all other threads wait; null: the end
    uint32_t n_runs_ = 0;         // the goal of the last one
    bool aborted_[2] = {};        // of even stages, of odd ones
    alignas(kApart) std::atomic<int64_t> next_chunk_[2] = {};
    Counter arrivals_;  // of all threads at all barriers
    Counter runs_;
};

void Worker::barrier() {
    pool->barrier(*this);
}

int64_t Worker::claim() {
    return pool->claim(*this);
}

bool Worker::aborted() const {
    return pool->aborted(*this);
}

namespace {

struct Size {
    int32_t count;
    int32_t pinned;
};

std::atomic<Size> size = Size{1, 0};
// Whether a run is under way. Who sets it has the pool.
std::atomic<bool> is_taken = false;
// Never deleted at exit: its threads sleep, and end with the process.
Pool* pool = nullptr;

// The threads of the parent are not in the child, so its pool is of no use there; nor can it be
// deleted, for that would wait for them.
void forget_after_fork() {
    pool = nullptr;
    is_taken = false;
}

const int fork_is_handled = pthread_atfork(nullptr, nullptr, forget_after_fork);

class Lease {
  public:
    Lease() {
        if (is_taken.exchange(true, std::memory_order_acquire)) {
            throw std::runtime_error("native ops are running in another thread of this process");
        }
    }
    ~Lease() { is_taken.store(false, std::memory_order_release); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
};

}  // namespace

void set_threads(int count, bool pinned) {
    size = Size{count, pinned};
}

int threads() {
    return size.load().count;
}

void run_on_all_threads(const Work& work) {
    const Lease lease;
    const Size wanted = size;
    if (pool == nullptr || !pool->is(wanted.count, wanted.pinned)) {
        delete pool;
        pool = nullptr;
        pool = new Pool(wanted.count, wanted.pinned);
    }
    pool->run(work);
}

}  // namespace soliton
