#include "tape.h"

#include <chrono>

namespace soliton {
namespace {

int64_t now_ns() {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace

size_t Tape::run(const StepState& state, int64_t* ns) const {
    // What the threads share; the caller's alone writes.
    struct Run {
        const std::vector<Step>& steps;
        const StepState& state;
        int64_t* begins;  // (steps,) or null
        size_t n_done;
    } run = {steps_, state, ns, 0};

    const auto take_part = [](void* context, Worker& worker) {
        Run& run = *static_cast<Run*>(context);
        size_t i = 0;
        for (; i < run.steps.size(); ++i) {
            if (i > 0) {
                worker.barrier();
            }
            if (worker.aborted()) {
                break;
            }
            if (worker.index == 0 && run.begins != nullptr) {
                run.begins[i] = now_ns();
            }
            run.steps[i].run(run.steps[i].args, run.state, worker);
        }
        if (worker.index == 0) {
            run.n_done = i;
        }
    };
    run_on_all_threads({take_part, &run, &state.abort, scratch_bytes_});

    if (ns != nullptr) {  // each op took until the next began, the last one until now
        int64_t end = now_ns();
        for (size_t i = run.n_done; i-- > 0;) {
            const int64_t begin = ns[i];
            ns[i] = end - begin;
            end = begin;
        }
    }
    return run.n_done;
}

}  // namespace soliton
