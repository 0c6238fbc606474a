// The sampler's stages over a sorted list of candidates, in any order. They serve requests that a
// prefix of the descending order cannot express. engine/sampling/reference/stages.py has the
// formulas.
#pragma once

#include <cstdint>
#include <vector>

#include "../../ops.h"
#include "kernels.h"
#include "row.h"

namespace soliton {

struct Draw {
    int32_t id;
    double p;
};

class Candidates {
  public:
    // Takes at least one candidate, in descending order, with the exponents that the softmax gives
    // them.
    void assign(const std::vector<Candidate>& sorted, const Softmax& softmax);

    // `parameters` (kStageParameters,). Returns how many candidates the stage removed. If the
    // settings want a trace, `removed_argmax` says whether the id `argmax` was among them.
    int64_t run(SampleStage stage, const double* parameters, const SampleSettings& settings,
                const SampleArgs& args, int64_t argmax, bool& removed_argmax);

    // Call this after the last stage.
    Draw draw(double u, double skew);

    // After the draw: the probability with which this candidate could have been drawn; 0 if it was
    // removed.
    double p_of(const Candidate& candidate) const;

    // The candidates' mass in another softmax.
    double mass(const Softmax& softmax) const;

  private:
    struct Item {
        double nats;  // relative to the first
        double mass;  // exp(nats)
        double p;     // from the last `weigh`; after `draw`, the probability of the draw
        Candidate token;
    };

    void drop_massless();
    void weigh();
    double surprise(const Item& item) const { return log_total_ - item.nats; }  // in nats
    double entropy() const;
    void scale(double temperature);
    void keep_first(int64_t count) { items_.resize(static_cast<size_t>(count)); }
    int64_t n_at_least(double p) const;
    int64_t n_to_reach(double mass) const;
    double sigma() const;
    void tail_free(double z);
    void typical(double mass);
    void mirostat(double mu);
    void dynamic_temperature(double low, double high, double exponent);
    void exclude_top(double threshold, const int32_t* is_protected);

    std::vector<Item> items_;
    bool has_masses_ = false;
    double log_total_ = 0.0;  // of the masses
    std::vector<char> is_kept_;
};

}  // namespace soliton
