#include "routing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace soliton {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// numbers -> e^(number - largest) / their sum.
void softmax(std::span<float> numbers) {
    const float largest = *std::max_element(numbers.begin(), numbers.end());
    float sum = 0.0f;
    for (float& number : numbers) {
        number = std::exp(number - largest);
        sum += number;
    }
    for (float& number : numbers) {
        number /= sum;
    }
}

// The index of the largest that is not taken; the first one if there is no number among them.
int32_t best_of(std::span<const float> values) {
    size_t best = 0;
    for (size_t i = 1; i < values.size(); ++i) {
        if (values[i] > values[best] || std::isnan(values[best])) {
            best = i;
        }
    }
    return static_cast<int32_t>(best);
}

// The sum of the `count` best values.
float sum_of_best(std::span<const float> values, int64_t count) {
    float sum = 0.0f;
    float bound = std::numeric_limits<float>::infinity();
    int64_t left = count;
    while (left > 0) {
        float next = kNever;
        int64_t n_equal = 0;
        for (const float value : values) {
            if (value < bound && value > next) {
                next = value;
                n_equal = 0;
            }
            n_equal += value == next ? 1 : 0;
        }
        if (n_equal == 0) {
            break;
        }
        for (int64_t i = 0; i < n_equal && left > 0; ++i, --left) {
            sum += next;
        }
        bound = next;
    }
    return sum;
}

// Takes all but the best groups of experts out of the choice.
void drop_groups(const Routing& routing, std::span<float> values) {
    const size_t width = values.size() / static_cast<size_t>(routing.n_groups);
    const auto group = [&](int64_t i) {
        return values.subspan(static_cast<size_t>(i) * width, width);
    };
    // The worst ones go first, of equal ones the last.
    for (int64_t n = routing.n_groups; n > routing.n_groups_used; --n) {
        int64_t worst = -1;
        float lowest = 0.0f;
        for (int64_t i = 0; i < routing.n_groups; ++i) {
            if (group(i)[0] == kNever) {
                continue;
            }
            const float sum = sum_of_best(group(i), routing.group_best);
            if (worst < 0 || sum <= lowest) {
                worst = i;
                lowest = sum;
            }
        }
        if (worst >= 0) {
            std::ranges::fill(group(worst), kNever);
        }
    }
}

void weigh(const Routing& routing, std::span<const float> scores, std::span<Choice> choices) {
    float sum = 0.0f;
    for (Choice& choice : choices) {
        choice.weight = scores[static_cast<size_t>(choice.expert)];
        sum += choice.weight;
    }
    for (Choice& choice : choices) {
        choice.weight =
            (routing.is_renormalized ? choice.weight / sum : choice.weight) * routing.scale;
    }
}

// The softmax of the numbers of those that are chosen.
void weigh_chosen(const Routing& routing, std::span<const float> numbers,
                  std::span<Choice> choices) {
    const float largest = numbers[static_cast<size_t>(choices.front().expert)];
    float sum = 0.0f;
    for (Choice& choice : choices) {
        choice.weight = std::exp(numbers[static_cast<size_t>(choice.expert)] - largest);
        sum += choice.weight;
    }
    for (Choice& choice : choices) {
        choice.weight = choice.weight / sum * routing.scale;
    }
}

// The weight of the best number of those that are left; those that are taken are kNever.
float weigh_close(const Routing& routing, std::span<const float> left, float best) {
    float sum = 0.0f;
    for (const float number : left) {
        const bool is_far = (best - number) / std::max(std::abs(number), best) > routing.spread;
        if (number != kNever && !is_far) {
            sum += std::exp(number - best);
        }
    }
    return routing.scale / sum;
}

}  // namespace

float sigmoid(float x) {
    return 1.0f / (1.0f + std::exp(-x));
}

void choose_experts(const Routing& routing, const float* numbers, std::span<float> room,
                    std::span<Choice> choices) {
    const auto n = static_cast<size_t>(routing.n_experts);
    const std::span<float> scores = room.first(n);
    const std::span<float> values = room.subspan(n, n);
    std::copy_n(numbers, n, scores.begin());
    if (routing.scoring == Scoring::kSoftmax) {
        softmax(scores);
    } else if (routing.scoring == Scoring::kSigmoid) {
        std::ranges::transform(scores, scores.begin(), sigmoid);
    }
    for (size_t i = 0; i < n; ++i) {
        values[i] =
            scores[i] + (routing.selection_bias == nullptr ? 0.0f : routing.selection_bias[i]);
    }
    if (routing.n_groups > routing.n_groups_used) {
        drop_groups(routing, values);
    }
    for (Choice& choice : choices) {
        choice.expert = best_of(values);
        if (routing.scoring == Scoring::kSparseMixer) {
            const float best = values[static_cast<size_t>(choice.expert)];
            choice.weight = weigh_close(routing, values, best);
        }
        values[static_cast<size_t>(choice.expert)] = kNever;
    }
    if (routing.scoring == Scoring::kChosenSoftmax) {
        weigh_chosen(routing, scores, choices);
    } else if (routing.scoring != Scoring::kSparseMixer) {
        weigh(routing, scores, choices);
    }
    for (Choice& choice : choices) {
        if (routing.expert_scales != nullptr) {
            choice.weight *= routing.expert_scales[choice.expert];
        }
    }
}

Groups::Groups(const Routing& routing, std::span<const Choice> choices, int32_t* memory) {
    const auto n = static_cast<size_t>(routing.n_experts);
    begins_ = {memory, n + 1};
    used_ = {memory + n + 1, n + 1};
    pairs_ = {used_.data() + used_.size(), choices.size()};
    slots_ = {pairs_.data() + pairs_.size(), choices.size()};
    std::ranges::fill(begins_, 0);
    for (const Choice& choice : choices) {
        ++begins_[static_cast<size_t>(choice.expert) + 1];
    }
    size_t n_used = 0;
    for (size_t i = 0; i < n; ++i) {
        if (begins_[i + 1] > 0) {
            used_[n_used++] = static_cast<int32_t>(i);
        }
        begins_[i + 1] += begins_[i];
    }
    // The begins move to the ends while the pairs are put in, and back afterwards.
    for (size_t i = 0; i < choices.size(); ++i) {
        int32_t& next = begins_[static_cast<size_t>(choices[i].expert)];
        slots_[i] = next;
        pairs_[static_cast<size_t>(next)] = static_cast<int32_t>(i);
        ++next;
    }
    for (size_t i = n; i > 0; --i) {
        begins_[i] = begins_[i - 1];
    }
    begins_[0] = 0;
    used_ = used_.first(n_used);
}

}  // namespace soliton
