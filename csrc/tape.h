// Ops recorded once, in order, and run as often as wanted on the pool. Owns the copies of their
// arguments and the barriers between them. Knows no particular op and no Python; whoever appends an
// op keeps alive what its arguments point to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "ops.h"
#include "pool.h"

namespace soliton {

class Tape {
  public:
    // `op` is a function (const Args&, const StepState&, Worker&); `scratch_bytes` is what it needs
    // of Worker::scratch.
    template <auto op, typename Args>
    void append(const char* name, const Args& args, size_t scratch_bytes = 0) {
        static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= kMaxArgsBytes);
        Step& step = steps_.emplace_back();
        step.name = name;
        step.run = [](const std::byte* bytes, const StepState& state, Worker& worker) {
            op(*reinterpret_cast<const Args*>(bytes), state, worker);
        };
        std::memcpy(step.args, &args, sizeof args);
        scratch_bytes_ = scratch_bytes > scratch_bytes_ ? scratch_bytes : scratch_bytes_;
    }

    size_t size() const { return steps_.size(); }

    const char* name(size_t i) const { return steps_[i].name; }

    // All ops one after the other; a barrier after each, so that an op may read what the ones
    // before it wrote. Returns how many ran: fewer than all when state.abort was not 0 before one
    // of them. `ns` (size(),), unless null, receives the nanoseconds that each of these took.
    size_t run(const StepState& state, int64_t* ns = nullptr) const;

  private:
    static constexpr size_t kMaxArgsBytes = 240;

    struct Step {
        void (*run)(const std::byte* args, const StepState& state, Worker& worker);
        const char* name;
        alignas(8) std::byte args[kMaxArgsBytes];
    };

    std::vector<Step> steps_;
    size_t scratch_bytes_ = 0;
};

}  // namespace soliton
