// The sampler of one request: logits in, one token with its probabilities out. Owns the order of
// the steps and the reported numbers. Knows no Python.
#pragma once

#include <cstdint>
#include <vector>

#include "../../ops.h"
#include "adjust.h"
#include "distribution.h"
#include "row.h"
#include "stages.h"

namespace soliton {

// The most likely tokens by raw logit.
struct SampledTop {
    int32_t id;
    double logprob_raw;
    double p_sampled;
};

struct SampleOutput {
    int64_t token_id;
    double p_raw;
    double p_sampled;
    double logprob_raw;
    std::vector<SampledTop> top;
    int64_t rank;
    double entropy;
    double margin;
    double kept_mass;
    std::vector<SampleTraceStep> trace;
};

// Keeps its memory from one token to the next; one call at a time.
class Sampler {
  public:
    // The arrays that the settings point to must outlive the sampler.
    explicit Sampler(const SampleSettings& settings) : settings_(settings), adjuster_(settings_) {}
    Sampler(const Sampler&) = delete;
    Sampler& operator=(const Sampler&) = delete;

    const SampleSettings& settings() const { return settings_; }

    // Returns false where engine/sampling/reference/op.py would raise: for logits that nothing can
    // be drawn from, before or after the adjustments, or an id outside the vocabulary.
    bool sample(const SampleArgs& args, SampleOutput& out);

    // Reports a token that was not drawn from the logits (V,): the same numbers as if it had been,
    // with the raw probabilities as sampled ones. Returns false for logits that nothing can be
    // drawn from, or an id outside the vocabulary.
    bool score(const float* logits, int64_t token_id, SampleOutput& out);

  private:
    bool read(const float* logits, float* copy, SampleOutput& out);
    bool adjust(const SampleArgs& args);
    void choose(SampleOutput& out);
    void draw(const SampleArgs& args, SampleOutput& out);
    Prefix filter(const SampleArgs& args, const Softmax& softmax, int64_t begin, int64_t end,
                  bool is_all, bool& is_complete, SampleOutput& out);
    double exponent_needed(const SampleArgs& args, int64_t begin, int64_t end, bool draws,
                           double total) const;
    float bound_needed(int64_t begin, int64_t end);
    bool is_free(int64_t begin, int64_t i) const;
    void trace_filter(const Softmax& softmax, int64_t i, bool is_first, const Prefix& given,
                      const Prefix& kept, double sigma, SampleOutput& out);
    Prefix filtered(const Prefix& kept, SampleStage stage, double parameter, double sigma);
    void draw_from_prefix(const SampleArgs& args, const Softmax& softmax, const Prefix& kept,
                          bool is_filtered, SampleOutput& out);
    void draw_from_list(const SampleArgs& args, int64_t begin, bool is_filtered, SampleOutput& out);
    double share_of(double mass) const;
    void note(int64_t stage_index, int64_t n_removed, bool removed_argmax, SampleOutput& out);
    void report_raw(SampleOutput& out);

    SampleStage stage(int64_t i) const { return static_cast<SampleStage>(settings_.stages[i]); }
    const double* parameters(int64_t i) const {
        return settings_.parameters + i * kStageParameters;
    }

    const SampleSettings settings_;
    Adjuster adjuster_;
    Row raw_;
    Row adjusted_;
    Row* row_ = nullptr;  // the one that is drawn from
    Tokens tokens_;
    std::vector<Candidate> top_;  // by raw logit; at least two, if two exist
    Distribution distribution_;
    std::vector<Candidate> sorted_;
    Candidates candidates_;
};

}  // namespace soliton
