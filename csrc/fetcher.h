// What a thread reads next, and who wants to know it: a thread that waits for others fetches it
// into its caches meanwhile. Knows neither what it is nor who the others are.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace soliton {

// Memory that is read from several places side by side.
struct Reading {
    const std::byte* begin;
    int64_t n_places;
    int64_t pitch;    // bytes from one place to the next
    int64_t n_bytes;  // from each place
};

// Gets what a thread reads next, in that order.
class Readings {
  public:
    virtual void add(const Reading& reading) = 0;
    virtual bool is_over() const = 0;  // it wants no more

  protected:
    ~Readings() = default;
};

class FirstReading final : public Readings {
  public:
    void add(const Reading& reading) override {
        if (!is_over()) {
            found = reading;
        }
    }
    bool is_over() const override { return found.n_bytes > 0; }

    Reading found = {};
};

class Fetcher final : public Readings {
  public:
    // Goes on until `counter` has reached `goal`, and fetches `n_bytes` at most.
    Fetcher(const std::atomic<uint64_t>& counter, uint64_t goal, int64_t n_bytes)
        : counter_(counter), goal_(goal), n_left_(n_bytes) {}

    bool is_over() const override {
        return n_left_ <= 0 || counter_.load(std::memory_order_relaxed) >= goal_;
    }

    void add(const Reading& reading) override {
        for (int64_t at = 0; at < reading.n_bytes && !is_over(); at += kAtOnce) {
            for (int64_t place = 0; place < reading.n_places; ++place) {
                const std::byte* begin = reading.begin + place * reading.pitch + at;
                const int64_t n = std::min(kAtOnce, reading.n_bytes - at);
                for (int64_t line = 0; line < n; line += kLine) {
                    __builtin_prefetch(begin + line, 0, kSecondLevel);
                }
                n_left_ -= n;
            }
        }
    }

  private:
    static constexpr int64_t kLine = 64;
    static constexpr int64_t kAtOnce = 256;
    // The first-level cache has no room for what is not read at once.
    static constexpr int kSecondLevel = 2;

    const std::atomic<uint64_t>& counter_;
    const uint64_t goal_;
    int64_t n_left_;
};

}  // namespace soliton
