#include "stages.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "adjust.h"
#include "distribution.h"

namespace soliton {
namespace {

// engine/sampling/reference/stages.py has the same number.
constexpr double kLowestTemperature = 1e-300;

constexpr double kLn2 = 0.693147180559945309417;

// Whether the stage works on logits or temperatures, so that candidates without mass still count.
bool is_before_softmax(SampleStage stage) {
    return stage == SampleStage::kSmoothing || stage == SampleStage::kTemperature ||
           stage == SampleStage::kTopNSigma;
}

}  // namespace

void Candidates::assign(const std::vector<Candidate>& sorted, const Softmax& softmax) {
    items_.clear();
    has_masses_ = false;
    for (const Candidate& candidate : sorted) {
        items_.push_back({exponent_of(softmax, candidate.logit), 0.0, 0.0, candidate});
    }
}

int64_t Candidates::run(SampleStage stage, const double* parameters, const SampleSettings& settings,
                        const SampleArgs& args, int64_t argmax, bool& removed_argmax) {
    if (!is_before_softmax(stage)) {
        drop_massless();
        weigh();
    }
    const auto holds = [&] {
        return std::any_of(items_.begin(), items_.end(),
                           [&](const Item& item) { return item.token.id == argmax; });
    };
    const bool held = settings.want_trace && holds();
    const int64_t n_before = std::ssize(items_);
    const double first = parameters[0];
    switch (stage) {
        case SampleStage::kSmoothing:
            for (Item& item : items_) {
                item.nats *= -first * item.nats;
            }
            has_masses_ = false;
            break;
        case SampleStage::kTemperature:
            scale(first);
            break;
        case SampleStage::kDynamicTemperature:
            dynamic_temperature(first, parameters[1], parameters[2]);
            break;
        case SampleStage::kTopNSigma: {
            const double lowest = -first * sigma();
            std::erase_if(items_, [&](const Item& item) { return !(item.nats >= lowest); });
            break;
        }
        case SampleStage::kTopK:
            keep_first(std::min(n_before, static_cast<int64_t>(first)));
            break;
        case SampleStage::kTopP:
            keep_first(n_to_reach(first));
            break;
        case SampleStage::kTopA:
            keep_first(n_at_least(first * items_[0].p * items_[0].p));
            break;
        case SampleStage::kMinP:
            keep_first(n_at_least(first * items_[0].p));
            break;
        case SampleStage::kTfs:
            tail_free(first);
            break;
        case SampleStage::kTypical:
            typical(first);
            break;
        case SampleStage::kMirostat:
            mirostat(args.mirostat_mu);
            break;
        case SampleStage::kXtc:
            if (args.u_xtc < first) {
                exclude_top(parameters[1], settings.xtc_protected);
            }
            break;
        default:
            break;
    }
    // Relative to the first remaining candidate.
    if (const double nats = items_[0].nats; nats != 0.0) {
        for (Item& item : items_) {
            item.nats -= nats;
        }
        has_masses_ = false;
    }
    removed_argmax = held && !holds();
    return n_before - std::ssize(items_);
}

Draw Candidates::draw(double u, double skew) {
    drop_massless();
    weigh();
    double cumulative = 0.0;
    for (const Item& item : items_) {
        cumulative += item.p;
    }
    const double total = cumulative;
    const double exponent = std::exp(skew);
    const Item* drawn = nullptr;
    cumulative = 0.0;
    double before = 0.0;
    for (Item& item : items_) {
        cumulative += item.p;
        double after = cumulative / total;
        if (skew != 0.0) {
            after = std::pow(after, exponent);
            item.p = after - before;
        }
        before = after;
        if (drawn == nullptr && after > u) {
            drawn = &item;
        }
    }
    drawn = drawn == nullptr ? &items_.back() : drawn;
    return {drawn->token.id, drawn->p};
}

double Candidates::p_of(const Candidate& candidate) const {
    const auto found = std::lower_bound(
        items_.begin(), items_.end(), candidate,
        [](const Item& item, const Candidate& wanted) { return before(item.token, wanted); });
    return found != items_.end() && found->token.id == candidate.id ? found->p : 0.0;
}

double Candidates::mass(const Softmax& softmax) const {
    double total = 0.0;
    for (const Item& item : items_) {
        total += mass_of(softmax, item.token.logit);
    }
    return total;
}

void Candidates::drop_massless() {
    const auto end = std::find_if(items_.begin(), items_.end(),
                                  [](const Item& item) { return !(item.nats > kLowestExponent); });
    items_.erase(end, items_.end());
}

void Candidates::weigh() {
    if (!has_masses_) {
        for (Item& item : items_) {
            item.mass = std::exp(item.nats);
        }
        has_masses_ = true;
    }
    double total = 0.0;
    for (const Item& item : items_) {
        total += item.mass;
    }
    for (Item& item : items_) {
        item.p = item.mass / total;
    }
    log_total_ = std::log(total);
}

double Candidates::entropy() const {
    double sum = 0.0;
    for (const Item& item : items_) {
        sum += item.p * surprise(item);
    }
    return sum;
}

void Candidates::scale(double temperature) {
    const double divisor = std::max(temperature, kLowestTemperature);
    for (Item& item : items_) {
        item.nats /= divisor;
    }
    has_masses_ = false;
}

// The items are in descending order of p.
int64_t Candidates::n_at_least(double p) const {
    const auto end = std::find_if(items_.begin() + 1, items_.end(),
                                  [p](const Item& item) { return !(item.p >= p); });
    return end - items_.begin();
}

int64_t Candidates::n_to_reach(double mass) const {
    double total = 0.0;
    for (const Item& item : items_) {
        total += item.p;
    }
    double cumulative = 0.0;
    int64_t count = 0;
    for (const Item& item : items_) {
        cumulative += item.p;
        ++count;
        if (cumulative >= mass * total) {
            break;
        }
    }
    return count;
}

double Candidates::sigma() const {
    double mean = 0.0;
    double count = 0.0;
    for (const Item& item : items_) {
        if (item.nats > -std::numeric_limits<double>::infinity()) {
            mean += item.nats;
            count += 1.0;
        }
    }
    mean /= count;
    double squares = 0.0;
    for (const Item& item : items_) {
        if (item.nats > -std::numeric_limits<double>::infinity()) {
            squares += (item.nats - mean) * (item.nats - mean);
        }
    }
    return std::sqrt(squares / count);
}

void Candidates::tail_free(double z) {
    const int64_t n = std::ssize(items_);
    const auto bending = [this](int64_t i) {
        return std::abs(items_[i].p - 2.0 * items_[i + 1].p + items_[i + 2].p);
    };
    double total = 0.0;
    for (int64_t i = 0; i + 2 < n; ++i) {
        total += bending(i);
    }
    double cumulative = 0.0;
    for (int64_t i = 0; i + 2 < n; ++i) {
        cumulative += bending(i);
        if (cumulative > z * total) {
            keep_first(i + 1);
            return;
        }
    }
}

// The items are in ascending order of surprise, so those nearest to the entropy surround one place,
// and their distance grows on both sides of it.
void Candidates::typical(double mass) {
    const int64_t n = std::ssize(items_);
    const double expected = entropy();
    const auto distance = [&, this](int64_t i) { return std::abs(surprise(items_[i]) - expected); };
    const auto middle = std::partition_point(
        items_.begin(), items_.end(), [&](const Item& item) { return surprise(item) <= expected; });
    double total = 0.0;
    for (const Item& item : items_) {
        total += item.p;
    }
    is_kept_.assign(items_.size(), 0);
    double cumulative = 0.0;
    const auto keep = [&](int64_t i) {
        is_kept_[i] = 1;
        cumulative += items_[i].p;
        return cumulative >= mass * total;
    };
    bool is_done = false;
    int64_t left = middle - items_.begin();  // none before this is kept
    int64_t right = left;
    while (!is_done && (left > 0 || right < n)) {
        if (left == 0 || (right < n && distance(right) < distance(left - 1))) {
            is_done = keep(right++);
            continue;
        }
        // Among equals, the first item comes first.
        const int64_t end = left;
        do {
            --left;
        } while (left > 0 && distance(left - 1) == distance(left));
        for (int64_t i = left; i < end && !is_done; ++i) {
            is_done = keep(i);
        }
    }
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) {
        if (is_kept_[i]) {
            items_[count++] = items_[i];
        }
    }
    keep_first(count);
}

void Candidates::mirostat(double mu) {
    const auto end = std::find_if(items_.begin() + 1, items_.end(), [mu, this](const Item& item) {
        return !(surprise(item) <= mu * kLn2);
    });
    items_.erase(end, items_.end());
}

void Candidates::dynamic_temperature(double low, double high, double exponent) {
    if (items_.size() == 1) {
        return;
    }
    const double most = std::log(static_cast<double>(items_.size()));
    const double share = std::min(entropy() / most, 1.0);
    scale(low + (high - low) * std::pow(share, exponent));
}

void Candidates::exclude_top(double threshold, const int32_t* is_protected) {
    const auto counts = [&](const Item& item) {
        return item.p >= threshold &&
               (is_protected == nullptr || !is_in(is_protected, item.token.id));
    };
    const auto n_above = std::count_if(items_.begin(), items_.end(), counts);
    int64_t n_left = n_above - 1;  // still to be removed
    std::erase_if(items_, [&](const Item& item) { return counts(item) && n_left-- > 0; });
}

}  // namespace soliton
