// Ops recorded once, in order, and launched any number of times: one by one, or as a graph. Owns
// copies of their arguments, and the graphs. Knows no particular op and no Python. The caller who
// appends an op keeps alive what its arguments point to.
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

// An error that CUDA reported, and the operation that it belongs to.
class CudaError : public std::runtime_error {
  public:
    CudaError(const std::string& what, cudaError_t error)
        : std::runtime_error(what + ": " + cudaGetErrorString(error)) {}
};

// Throws a CudaError unless `error` is cudaSuccess.
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

    // With knobs.overlap each launch may begin before the previous one has ended, but the first:
    // what was launched before the tape may not know of overlap. So an op may read, before its
    // wait, what earlier passes and uploads have written, and what no op of the tape writes.
    //
    // All of these return when the ops have been launched, or throw a CudaError that names the op.
    // As always with CUDA, a later call reports what a kernel does wrong.

    // Launches the ops one after the other.
    void run(const Pass& pass) const;

    // The same in a single launch of a graph. The first call with such a pass launches the ops one
    // by one, which also loads their kernels, and builds the graph.
    void replay(const Pass& pass);

    // Builds the graph of such a pass without launching anything. A pass with as many rows must
    // have run before, because kernels cannot be loaded meanwhile.
    void prepare(const Pass& pass);

    // Runs the ops twice, one by one, and waits for them. `ns` (size(),) receives the nanoseconds
    // on the device that each took the second time. Events between the launches keep these from
    // overlapping, so the sum is longer than a pass.
    void profile(const Pass& pass, int64_t* ns) const;

  private:
    static constexpr size_t kMaxArgsBytes = 448;

    struct Step {
        cudaError_t (*launch)(const std::byte* args, const Pass& pass);
        const char* name;
        alignas(8) std::byte args[kMaxArgsBytes];
    };

    struct DestroyGraph {
        void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
    };
    using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyGraph>;
    // The part of a pass that a graph depends on: all but the stream.
    using Key = std::tuple<const StepState*, int, int64_t, Knobs>;

    cudaError_t launch(size_t i, Pass pass) const;
    Graph capture(Pass pass) const;
    static Key key_of(const Pass& pass);

    std::vector<Step> steps_;
    std::map<Key, Graph> graphs_;
};

}  // namespace soliton::cuda
