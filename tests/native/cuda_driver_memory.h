// Memory of a device for cuda_driver.cpp, where each array is a separate allocation of exactly the
// bytes that it needs.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "layout.h"
#include "ops.h"
#include "tape.h"

namespace soliton::cuda {

// Device memory for the time of a scope.
class Memory {
  public:
    Memory() = default;
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory() {
        for (void* address : all_) {
            cudaFree(address);
        }
    }

    void* zeros(int64_t n_bytes) {
        void* address = nullptr;
        check(cudaMalloc(&address, static_cast<size_t>(n_bytes)), "memory");
        all_.push_back(address);
        check(cudaMemset(address, 0, static_cast<size_t>(n_bytes)), "zeros");
        return address;
    }

    // Every second byte is 0x2c to 0x2f: as float32, float16 and bfloat16 these are small positive
    // numbers, and as codes they differ.
    void* bytes(int64_t n_bytes) {
        std::vector<uint8_t> values(static_cast<size_t>(n_bytes));
        for (size_t i = 0; i < values.size(); ++i) {
            random_ = random_ * 6364136223846793005u + 1442695040888963407u;
            const auto drawn = static_cast<uint8_t>(random_ >> 56);
            values[i] = i % 2 == 0 ? drawn : static_cast<uint8_t>(0x2c + drawn % 4);
        }
        return copied(values.data(), n_bytes);
    }

    float* floats(int64_t n) { return static_cast<float*>(bytes(4 * n)); }

    void* copied(const void* values, int64_t n_bytes) {
        void* address = zeros(n_bytes);
        check(cudaMemcpy(address, values, static_cast<size_t>(n_bytes), cudaMemcpyHostToDevice),
              "a copy");
        return address;
    }

  private:
    std::vector<void*> all_;
    uint64_t random_ = 1;
};

inline int64_t matrix_bytes(Layout layout, int64_t n_out, int64_t n_in, bool gated) {
    const int64_t panels = gated ? 2 * panels_for(n_out / 2) : panels_for(n_out);
    return layout == Layout::kBf16 ? n_out * padded_columns(n_in) * 2
                                   : panels * blocks_for(n_in) * block_bytes(layout);
}

inline Matrix matrix(Memory& memory, Layout layout, int64_t n_out, int64_t n_in,
                     bool gated = false) {
    return {memory.bytes(matrix_bytes(layout, n_out, n_in, gated)), n_out, n_in, layout};
}

inline void wait() {
    check(cudaDeviceSynchronize(), "the kernels");
}

}  // namespace soliton::cuda
