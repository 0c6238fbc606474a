// A claim that only one thread can hold at a time.
#pragma once

#include <atomic>
#include <stdexcept>

namespace soliton {

// Holds `is_taken` while it lives. The constructor throws std::runtime_error at once if it is
// already taken.
class Exclusive {
  public:
    Exclusive(std::atomic<bool>& is_taken, const char* refusal) : is_taken_(is_taken) {
        if (is_taken.exchange(true, std::memory_order_acquire)) {
            throw std::runtime_error(refusal);
        }
    }
    ~Exclusive() { is_taken_.store(false, std::memory_order_release); }
    Exclusive(const Exclusive&) = delete;
    Exclusive& operator=(const Exclusive&) = delete;

  private:
    std::atomic<bool>& is_taken_;
};

}  // namespace soliton
