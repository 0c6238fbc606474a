// Ops recorded once, in order, and launched as often as wanted: one by one, or as a graph. Owns the
// copies of their arguments and the graphs. Knows no particular op and no Python; whoever appends
// an op keeps alive what its arguments point to.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "ops.h"

namespace soliton::cuda {

// What CUDA said, and of what.
class CudaError : public std::runtime_error {
  public:
    CudaError(const std::string& what, cudaError_t error)
        : std::runtime_error(what + ": " + cudaGetErrorString(error)) {}
};

// Throws a CudaError unless the error is none.
void check(cudaError_t error, const char* what);

class Tape {
  public:
    Tape() = default;
    Tape(Tape&&) = default;
    Tape& operator=(Tape&&) = default;

    // `op` is a function cudaError_t(const Args&, const Pass&) that launches on the pass's stream
    // and does not wait.
    template <auto op, typename Args>
    void append(const char* name, const Args& args) {
        static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= kMaxArgsBytes);
        Step step;
        step.name = name;
        step.launch = [](const std::byte* bytes, const Pass& pass) {
            return op(*reinterpret_cast<const Args*>(bytes), pass);
        };
        std::memcpy(step.args, &args, sizeof args);
        steps_.push_back(step);
        graphs_.clear();
    }

    size_t size() const { return steps_.size(); }

    const char* name(size_t i) const { return steps_[i].name; }

    // All of these return when the launches are under way, or throw a CudaError that names the op.
    // What a kernel does wrong shows in a later call, as ever with CUDA.

    // The ops, one launch after the other.
    void run(const Pass& pass) const;

    // The same as one launch of a graph, except for the first time with such a pass: that runs the
    // ops one by one, which also loads their kernels, and makes the graph.
    void replay(const Pass& pass);

    // The ops twice, one by one; `ns` (size(),) receives the nanoseconds on the device that each
    // took the second time. Waits until they have.
    void profile(const Pass& pass, int64_t* ns) const;

  private:
    static constexpr size_t kMaxArgsBytes = 240;

    struct Step {
        cudaError_t (*launch)(const std::byte* args, const Pass& pass);
        const char* name;
        alignas(8) std::byte args[kMaxArgsBytes];
    };

    struct DestroyGraph {
        void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
    };
    using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyGraph>;
    // What a graph has of its pass: all but the stream.
    using Key = std::tuple<const StepState*, int, int64_t>;

    Graph capture(Pass pass) const;

    std::vector<Step> steps_;
    std::map<Key, Graph> graphs_;
};

}  // namespace soliton::cuda
