// The sampler of one device with the memory that it works in: what the requests' lists are, and
// which of them the device has already. Owns the copies to the device and the wait for a report.
// Knows no Python.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sample.h"

namespace soliton::cuda {

// A list that the device has a copy of. Only what is new is copied.
template <typename T>
class Copied {
  public:
    void place(T* device, int64_t capacity) {
        device_ = device;
        capacity_ = capacity;
    }

    const T* device() const { return device_; }

    // What of `items` the device has not; all of it if it does not fit.
    std::span<const T> news(std::span<const T> items) const;

    bool fits(std::span<const T> items) const { return std::ssize(items) <= capacity_; }

    void update(std::span<const T> items, cudaStream_t stream);

  private:
    T* device_ = nullptr;
    int64_t capacity_ = 0;
    std::vector<T> host_;
};

// What is the same for every token of a request.
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

// The fields of engine/sampling/op.py's SampleResult.
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

// What differs from one token to the next; the same as in engine/sampling/op.py.
struct DeviceArgs {
    const float* logits;  // (V,), of the device
    double u;
    std::span<const int32_t> context;
    std::span<const int32_t> mask;  // empty: all is allowed
    std::span<const int32_t> banned_ids;
    StepState* state;  // of the device, or null
};

// One thread at a time, on one stream. What CUDA refuses is thrown as a CudaError.
class DeviceSampler {
  public:
    // `memory`: device_sampler_bytes(); `report`: memory of the host that the device can write.
    DeviceSampler(int64_t vocab_size, int64_t max_context, void* memory, SampleReport* report);
    ~DeviceSampler();
    DeviceSampler(const DeviceSampler&) = delete;
    DeviceSampler& operator=(const DeviceSampler&) = delete;

    int64_t vocab_size() const { return vocab_size_; }

    void set(DeviceSettings settings) { settings_ = std::move(settings); }

    // Launches, and does not wait. False, with nothing launched, for ids outside the vocabulary and
    // for lists that do not fit.
    bool begin(const DeviceArgs& args, cudaStream_t stream);

    // Copies V floats to the host; does not wait.
    void copy_logits(const float* logits, float* host, cudaStream_t stream);

    // Until what was begun last is there.
    void wait();

    // After that, of a `begin`. False when nothing could be drawn from the logits, which then stand
    // at the beginning of the memory.
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
