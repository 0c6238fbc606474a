// Where threads wait for a condition until another thread rings: spinning first, then asleep on a
// futex. Knows no pool.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

namespace soliton {

// Threads sleep here until another one rings.
class Bell {
  public:
    // Call this after the condition that they wait for has become true.
    void ring() {
        if (sleepers_.load() != 0 && sleepers_.exchange(0) != 0) {
            syscall(SYS_futex, &sleepers_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
        }
    }

    template <typename Reached>
    void wait_until(Reached reached) {
        wait_until(reached, reached);
    }

    // The same, but before it sleeps, the thread asks `is_reached_at_last`, after which whoever
    // makes the condition true rings.
    template <typename Reached, typename ReachedAtLast>
    void wait_until(Reached reached, ReachedAtLast is_reached_at_last) {
        if (look(reached)) {
            return;
        }
        for (;;) {
            // The order matters: a thread that makes the condition true and then rings must see a
            // sleeper.
            sleepers_.store(1);
            if (is_reached_at_last()) {
                return;
            }
            // Returns at once if the bell has rung since; may also wake up spuriously.
            syscall(SYS_futex, &sleepers_, FUTEX_WAIT_PRIVATE, 1, nullptr, nullptr, 0);
        }
    }

  private:
    // A waiting thread first spins for kLookNs, then spins and yields its core for kYieldNs, then
    // sleeps. A chunk takes microseconds, the pause between two tokens of a stream tens to hundreds
    // of microseconds, and sleeping and waking up tens.
    static constexpr int64_t kLookNs = 20'000;
    static constexpr int64_t kYieldNs = 100'000;
    static constexpr int kLooksPerClock = 32;

    static int64_t now_ns() {
        return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
    }

    static void relax() {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("isb" ::: "memory");
#endif
    }

    template <typename Reached>
    static bool look(Reached reached) {
        const int64_t begin = now_ns();
        for (int64_t passed = 0; passed < kLookNs + kYieldNs; passed = now_ns() - begin) {
            if (passed >= kLookNs) {
                sched_yield();
            }
            for (int i = 0; i < kLooksPerClock; ++i) {
                if (reached()) {
                    return true;
                }
                relax();
            }
        }
        return false;
    }

    std::atomic<uint32_t> sleepers_ = 0;
};
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

}  // namespace soliton
