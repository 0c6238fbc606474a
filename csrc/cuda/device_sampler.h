// The sampler of one device and its memory: the lists of a request, and how much of them the device
// already has. Owns the copies to the device and the wait for a report. Knows no Python.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sample.h"

namespace soliton::cuda {

// A list with a copy on the device. Only new items are copied.
template <typename T>
class Copied {
  public:
    void place(T* device, int64_t capacity) {
        device_ = device;
        capacity_ = capacity;
    }

    const T* device() const { return device_; }

    // The items from the first one on that the device does not have yet.
    std::span<const T> news(std::span<const T> items) const;

    bool fits(std::span<const T> items) const { return std::ssize(items) <= capacity_; }

    void update(std::span<const T> items, cudaStream_t stream);

  private:
    T* device_ = nullptr;
    int64_t capacity_ = 0;
    std::vector<T> host_;
};

// What all tokens of a request have in common.
struct DeviceSettings {
    bool greedy = false;
    double rate = 1.0;            // 1 / temperature
    std::vector<Filter> filters;  // up to kMostFilters
    int32_t n_top = 0;
    int64_t n_prompt = 0;
    double repetition_penalty = 1.0;
    double frequency_penalty = 0.0;
    double presence_penalty = 0.0;
    int64_t repetition_range = -1;
    std::vector<int32_t> bias_ids;
    std::vector<float> bias_deltas;
};

// The fields of engine/sampling/request.py's SampleResult.
struct DeviceResult {
    struct Top {
        int32_t id;
        double logprob_raw;
        double p_sampled;
    };

    int64_t token_id;
    double p_raw;
    double p_sampled;
    double logprob_raw;
    std::vector<Top> top;
    int64_t rank;
    double entropy;
    double margin;
    double kept_mass;
};

// What differs from one token to the next, as in engine/sampling/request.py's SampleRequest.
struct DeviceArgs {
    const float* logits;  // (V,), on the device
    double u;
    std::span<const int32_t> context;
    std::span<const int32_t> mask;  // empty: all allowed
    std::span<const int32_t> banned_ids;
    StepState* state;  // on the device, or null
};

// For one thread at a time and one stream. Throws a CudaError for every error that CUDA reports.
class DeviceSampler {
  public:
    // `memory` has device_sampler_bytes(); `report` is host memory that the device can write. Both
    // must outlive the sampler, which waits for its kernels when it is destroyed.
    DeviceSampler(int64_t vocab_size, int64_t max_context, void* memory, SampleReport* report);
    ~DeviceSampler();
    DeviceSampler(const DeviceSampler&) = delete;
    DeviceSampler& operator=(const DeviceSampler&) = delete;

    int64_t vocab_size() const { return vocab_size_; }

    void set(DeviceSettings settings) { settings_ = std::move(settings); }

    // Launches without waiting. Returns false, and launches nothing, for ids outside the vocabulary
    // and for lists that do not fit.
    bool begin(const DeviceArgs& args, cudaStream_t stream);

    // Copies V floats to the host; does not wait.
    void copy_logits(const float* logits, float* host, cudaStream_t stream);

    // Waits for the last `begin` or `copy_logits`.
    void wait();

    // The result of the last `begin`, after `wait`. Returns false if nothing could be drawn from
    // the logits; a copy of them is then at the beginning of the memory.
    bool read(DeviceResult& result) const;

  private:
    double p_sampled(const SampledToken& token) const;
    bool update_lists(const DeviceArgs& args, std::span<const int32_t> seen, cudaStream_t stream);
    bool are_ids(std::span<const int32_t> ids) const;

    const int64_t vocab_size_;
    void* scratch_ = nullptr;
    SampleReport* report_;
    DeviceSettings settings_;
    Copied<int32_t> context_;
    Copied<int32_t> mask_;
    Copied<int32_t> banned_ids_;
    Copied<int32_t> bias_ids_;
    Copied<float> bias_deltas_;
    cudaEvent_t done_ = nullptr;
};

int64_t device_sampler_bytes(int64_t vocab_size, int64_t max_context);

}  // namespace soliton::cuda
