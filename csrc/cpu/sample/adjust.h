// Adjusts the logits before they become probabilities: penalties, bias, DRY, bans. Owns walking
// over the context. engine/sampling/reference/adjustments.py has the formulas.
#pragma once

#include <cstdint>
#include <vector>

#include "../../ops.h"

namespace soliton {

// Whether the set holds the id.
bool is_in(const int32_t* set, int64_t id);

// Whether all ids of both are in the vocabulary.
bool have_valid_ids(const SampleSettings& settings, const SampleArgs& args);

// Whether anything may change a logit.
bool has_adjustments(const SampleSettings& settings, const SampleArgs& args);

class Adjuster {
  public:
    explicit Adjuster(const SampleSettings& settings) : settings_(settings) {}

    // Changes args.work, except for the mask, whose place is between DRY and the bans; applying it
    // after the bans gives the same. All ids must be valid. Returns false if a logit becomes +inf
    // or NaN.
    bool adjust(const SampleArgs& args, int64_t argmax);

    // The tokens whose logits may have changed.
    const std::vector<int32_t>& changed() const { return changed_; }

    // Empty unless the settings want a trace.
    const std::vector<SampleTraceStep>& trace() const { return trace_; }

  private:
    // What the context says about one of its tokens.
    struct Seen {
        int32_t id;
        bool in_completion;  // of its newest occurrence that counts
        double weight;       // of that occurrence
        double count;        // the sum of the weights of those in the completion
        int64_t length;      // of the longest match that ends before it
    };

    void penalize(const SampleArgs& args);
    void dry(const SampleArgs& args);
    void note_mask(const SampleArgs& args);
    void ban(const SampleArgs& args);

    Seen& seen(int32_t id);
    void forget_seen();
    void write(const SampleArgs& args, int32_t id, float logit);
    void begin(SampleStage stage);

    const SampleSettings& settings_;
    std::vector<int32_t> slots_;  // (V,), index in seen_ plus 1; 0 = not in it
    std::vector<Seen> seen_;
    std::vector<int32_t> changed_;
    std::vector<SampleTraceStep> trace_;
    int64_t argmax_ = 0;
    bool all_numbers_ = true;
};

}  // namespace soliton
