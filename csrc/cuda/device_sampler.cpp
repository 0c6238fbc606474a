#include "device_sampler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "tape.h"

namespace soliton::cuda {
namespace {

constexpr int kMaskBits = 32;

int64_t padded(int64_t n_bytes) {
    constexpr int64_t kAlignment = 16;
    return (n_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

double as_real(uint64_t mass) {
    return std::ldexp(static_cast<double>(mass), -kMassBits);
}

bool penalizes(const DeviceSettings& settings) {
    return settings.repetition_penalty != 1.0 || settings.frequency_penalty != 0.0 ||
           settings.presence_penalty != 0.0;
}

}  // namespace

template <typename T>
std::span<const T> Copied<T>::news(std::span<const T> items) const {
    const size_t n_known = std::min(host_.size(), items.size());
    const auto same = std::mismatch(items.begin(), items.begin() + n_known, host_.begin());
    return items.subspan(same.first - items.begin());
}

template <typename T>
void Copied<T>::update(std::span<const T> items, cudaStream_t stream) {
    const std::span<const T> added = news(items);
    if (!added.empty()) {
        const size_t n_kept = items.size() - added.size();
        // The source is not pinned, so the call returns only when it has been read.
        check(cudaMemcpyAsync(device_ + n_kept, added.data(), added.size_bytes(),
                              cudaMemcpyHostToDevice, stream),
              "copying a list of the sampler");
        host_.resize(n_kept);
        host_.insert(host_.end(), added.begin(), added.end());
    }
}

DeviceSampler::DeviceSampler(int64_t vocab_size, int64_t max_context, void* memory,
                             SampleReport* report)
    : vocab_size_(vocab_size), scratch_(memory), report_(report) {
    auto* next = static_cast<std::byte*>(memory) + padded(sample_scratch_bytes(vocab_size));
    const auto place = [&next]<typename T>(Copied<T>& list, int64_t capacity) {
        list.place(reinterpret_cast<T*>(next), capacity);
        next += padded(capacity * static_cast<int64_t>(sizeof(T)));
    };
    place(context_, max_context);
    place(mask_, (vocab_size + kMaskBits - 1) / kMaskBits);
    place(banned_ids_, vocab_size);
    place(bias_ids_, vocab_size);
    place(bias_deltas_, vocab_size);
    check(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), "creating the sampler's event");
}

DeviceSampler::~DeviceSampler() {
    cudaEventSynchronize(done_);  // kernels write the report and read the lists until then
    cudaEventDestroy(done_);
}

bool DeviceSampler::begin(const DeviceArgs& args, cudaStream_t stream) {
    const auto n_context = std::ssize(args.context);
    const bool is_penalized = penalizes(settings_);
    if (!update_lists(args, is_penalized ? args.context : std::span<const int32_t>(), stream)) {
        return false;
    }
    const int64_t range = settings_.repetition_range;
    const int64_t n_seen = !is_penalized ? 0 : range < 0 ? n_context : std::min(n_context, range);
    SampleArgs sampling = {
        .logits = args.logits,
        .vocab_size = vocab_size_,
        .adjustments =
            {
                .seen = context_.device() + (n_context - n_seen),
                .n_seen = n_seen,
                .n_completion = std::clamp<int64_t>(n_context - settings_.n_prompt, 0, n_seen),
                .factor = 1.0 + (settings_.repetition_penalty - 1.0),
                .frequency = settings_.frequency_penalty,
                .presence = settings_.presence_penalty,
                .bias_ids = bias_ids_.device(),
                .bias_deltas = bias_deltas_.device(),
                .n_biases = std::ssize(settings_.bias_ids),
                .mask = args.mask.empty() ? nullptr : mask_.device(),
                .banned_ids = banned_ids_.device(),
                .n_banned = std::ssize(args.banned_ids),
            },
        .greedy = settings_.greedy,
        .u = args.u,
        .rate = settings_.rate,
        .filters = {},
        .n_filters = static_cast<int32_t>(settings_.filters.size()),
        .n_top = settings_.n_top,
        .scratch = scratch_,
        .report = report_,
        .state = args.state,
    };
    std::copy(settings_.filters.begin(), settings_.filters.end(), sampling.filters);
    check(sample(sampling, stream, knobs()), "launching the sampler");
    check(cudaEventRecord(done_, stream), "recording the sampler's event");
    return true;
}

void DeviceSampler::copy_logits(const float* logits, float* host, cudaStream_t stream) {
    const auto n_bytes = static_cast<size_t>(vocab_size_) * sizeof(float);
    check(cudaMemcpyAsync(host, logits, n_bytes, cudaMemcpyDeviceToHost, stream), "copying logits");
    check(cudaEventRecord(done_, stream), "recording the sampler's event");
}

void DeviceSampler::wait() {
    check(cudaEventSynchronize(done_), "waiting for the sampler");
}

bool DeviceSampler::read(DeviceResult& result) const {
    const SampleReport& report = *report_;
    if (report.is_drawn == 0) {
        return false;
    }
    const double raw_total = as_real(report.raw_mass);
    const double log_total = std::log(raw_total);
    const auto logprob = [&](float logit) {
        return static_cast<double>(logit) - report.raw_largest - log_total;
    };
    result.token_id = report.token.id;
    result.logprob_raw = logprob(report.token.raw);
    result.p_raw = std::exp(result.logprob_raw);
    result.p_sampled = p_sampled(report.token);
    result.top.clear();
    for (const SampledToken& token : std::span(report.top, report.n_top)) {
        result.top.push_back({token.id, logprob(token.raw), p_sampled(token)});
    }
    result.rank = report.rank;
    result.entropy = std::max(log_total - report.raw_moment / raw_total, 0.0);
    result.margin = std::exp(-log_total) - std::exp(logprob(report.raw_second));
    result.kept_mass = report.is_filtered == 0
                           ? 1.0
                           : std::min(as_real(report.kept_plain) / as_real(report.drawn_mass), 1.0);
    return true;
}

// The probability with which the token was, or could have been, drawn.
double DeviceSampler::p_sampled(const SampledToken& token) const {
    if (settings_.greedy) {
        return token.id == report_->token.id ? 1.0 : 0.0;
    }
    const double exponent =
        (static_cast<double>(token.drawn) - report_->drawn_largest) * settings_.rate;
    if (token.is_kept == 0 || !(exponent > kLowestExponent)) {
        return 0.0;
    }
    return std::min(std::exp(exponent) / as_real(report_->kept_mass), 1.0);
}

// Checks only the new ids: those that the device already has were checked before.
bool DeviceSampler::update_lists(const DeviceArgs& args, std::span<const int32_t> seen,
                                 cudaStream_t stream) {
    const std::span<const int32_t> bias_ids = settings_.bias_ids;
    if (!context_.fits(seen) || !banned_ids_.fits(args.banned_ids) || !bias_ids_.fits(bias_ids) ||
        !are_ids(context_.news(seen)) || !are_ids(banned_ids_.news(args.banned_ids)) ||
        !are_ids(bias_ids_.news(bias_ids))) {
        return false;
    }
    context_.update(seen, stream);
    mask_.update(args.mask, stream);
    banned_ids_.update(args.banned_ids, stream);
    bias_ids_.update(bias_ids, stream);
    bias_deltas_.update(settings_.bias_deltas, stream);
    return true;
}

bool DeviceSampler::are_ids(std::span<const int32_t> ids) const {
    return std::all_of(ids.begin(), ids.end(),
                       [this](int32_t id) { return id >= 0 && id < vocab_size_; });
}

int64_t device_sampler_bytes(int64_t vocab_size, int64_t max_context) {
    const int64_t n_words = (vocab_size + kMaskBits - 1) / kMaskBits;
    return padded(sample_scratch_bytes(vocab_size)) + padded(max_context * 4) +
           padded(n_words * 4) + 3 * padded(vocab_size * 4);
}

}  // namespace soliton::cuda
