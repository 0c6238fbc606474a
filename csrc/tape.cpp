#include "tape.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace soliton {
namespace {

int64_t now_ns() {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace

// One run of the steps. It has its own copy of the state, because a late thread may read it when
// the caller is already in the next pass.
class Tape::Pass : public Work {
  public:
    Pass(std::shared_ptr<const std::vector<Step>> steps, const StepState& state, int64_t* begins)
        : steps_(std::move(steps)), begins_(begins) {
        const int64_t* words = reinterpret_cast<const int64_t*>(&state);
        words_.assign(words, words + sizeof state / sizeof *words + state.n_rows);
    }

    bool is_of(const std::shared_ptr<std::vector<Step>>& steps, const StepState& state) const {
        const size_t n_bytes = sizeof state + state.n_rows * sizeof(int64_t);
        return steps_ == steps && n_bytes == words_.size() * sizeof(int64_t) &&
               std::memcmp(words_.data(), &state, n_bytes) == 0;
    }

    void take_part(Worker& worker) const override {
        const StepState& state = *reinterpret_cast<const StepState*>(words_.data());
        for (size_t i = 0; i < steps_->size(); ++i) {
            if (worker.index == 0 && begins_ != nullptr) {
                begins_[i] = now_ns();
            }
            if (i + 1 == steps_->size()) {
                worker.wait_until_open();
            }
            const Step& step = (*steps_)[i];
            worker.step = i;
            step.run(step.args, state, worker);
        }
    }

    void expect(const Worker& worker, Readings& readings) const override {
        const StepState& state = *reinterpret_cast<const StepState*>(words_.data());
        for (size_t i = worker.step + 1; i < steps_->size() && !readings.is_over(); ++i) {
            const Step& step = (*steps_)[i];
            if (step.expect != nullptr) {
                step.expect(step.args, state, worker, readings);
            }
        }
    }

  private:
    const std::shared_ptr<const std::vector<Step>> steps_;
    std::vector<int64_t> words_;  // a StepState
    int64_t* const begins_;       // (steps,) or null
};

void Tape::append(const Step& step, size_t scratch_bytes) {
    if (steps_.use_count() > 1) {
        // A late thread may still be reading the steps.
        steps_ = std::make_shared<std::vector<Step>>(*steps_);
    }
    steps_->push_back(step);
    scratch_bytes_ = std::max(scratch_bytes_, scratch_bytes);
}

bool Tape::run(const StepState& state, int64_t* ns) {
    std::shared_ptr<const Pass> pass = std::move(begun_);
    if (pass == nullptr || ns != nullptr || !pass->is_of(steps_, state)) {
        pass = std::make_shared<Pass>(steps_, state, ns);
    }
    const bool is_whole = run_on_all_threads(pass, &state.abort, scratch_bytes_);
    if (ns != nullptr) {  // an op ends when the next begins, the last one now
        int64_t end = now_ns();
        for (size_t i = size(); i-- > 0;) {
            const int64_t begin = ns[i];
            ns[i] = end - begin;
            end = begin;
        }
    }
    return is_whole;
}

void Tape::begin(const StepState& state, bool is_open) {
    if (begun_ != nullptr && begun_->is_of(steps_, state) && is_open && open_begun(begun_)) {
        return;
    }
    begun_ = std::make_shared<Pass>(steps_, state, nullptr);
    begin_on_helpers(begun_, scratch_bytes_, is_open);
}

}  // namespace soliton
