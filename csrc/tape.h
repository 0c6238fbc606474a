// Ops recorded once, in order, and run any number of times on the pool. Owns copies of their
// arguments. Knows no particular op and no Python. The caller who appends an op keeps alive what
// its arguments point to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "fetcher.h"
#include "ops.h"
#include "pool.h"

namespace soliton {

class Tape {
  public:
    // `op` is a function (const Args&, const StepState&, Worker&) that does all its work in
    // Worker::share; `scratch_bytes` is the Worker::scratch that it needs. Beside an op that reads
    // much memory may stand expect(const Args&, const StepState&, const Worker&, Readings&), which
    // says what a thread reads.
    template <auto op, typename Args>
    void append(const char* name, const Args& args, size_t scratch_bytes = 0) {
        static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= kMaxArgsBytes);
        Step step;
        step.name = name;
        step.run = [](const std::byte* bytes, const StepState& state, Worker& worker) {
            op(*reinterpret_cast<const Args*>(bytes), state, worker);
        };
        step.expect = nullptr;
        if constexpr (requires(const StepState& state, const Worker& worker, Readings& readings) {
                          expect(args, state, worker, readings);
                      }) {
            step.expect = [](const std::byte* bytes, const StepState& state, const Worker& worker,
                             Readings& readings) {
                expect(*reinterpret_cast<const Args*>(bytes), state, worker, readings);
            };
        }
        std::memcpy(step.args, &args, sizeof args);
        append(step, scratch_bytes);
    }

    size_t size() const { return steps_->size(); }

    const char* name(size_t i) const { return (*steps_)[i].name; }

    // Runs all ops, one after the other. Returns false if chunks of work were left out because
    // state.abort was not 0; what the ops wrote is then useless. `ns` (size(),), unless null,
    // receives the nanoseconds that each op took.
    bool run(const StepState& state, int64_t* ns = nullptr);

    // The next run will most likely be that of `state`, so helpers begin it (pool.h). Unless
    // `is_open`, they do not begin the last op before the same is begun again, open: the caller
    // still reads what that op writes.
    void begin(const StepState& state, bool is_open = true);

  private:
    static constexpr size_t kMaxArgsBytes = 576;

    struct Step {
        void (*run)(const std::byte* args, const StepState& state, Worker& worker);
        void (*expect)(const std::byte* args, const StepState& state, const Worker& worker,
                       Readings& readings);  // or null
        const char* name;
        alignas(8) std::byte args[kMaxArgsBytes];
    };

    class Pass;

    void append(const Step& step, size_t scratch_bytes);

    // Shared with threads that are late for a pass.
    std::shared_ptr<std::vector<Step>> steps_ = std::make_shared<std::vector<Step>>();
    size_t scratch_bytes_ = 0;
    std::shared_ptr<const Pass> begun_;  // and not run since
};

}  // namespace soliton
