// The sampler's launches in their order, and the layout of their work in the scratch.
//
// First the bounds of the logits, then a histogram of them, then the choice: each needs the result
// of the one before for the whole row.
#include <algorithm>
#include <cstddef>

#include "sample.h"
#include "sample_row.cuh"

namespace soliton::cuda {
namespace {

int64_t chunks_of(int64_t vocab_size) {
    return (vocab_size + kChunk - 1) / kChunk;
}

// Hands out parts of a block of memory, one after the other.
class Parts {
  public:
    explicit Parts(void* begin) : begin_(static_cast<std::byte*>(begin)) {}

    template <typename T>
    T* next(int64_t count) {
        constexpr size_t kAlignment = 16;
        auto* part = reinterpret_cast<T*>(begin_ + used_);
        used_ +=
            (static_cast<size_t>(count) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
        return part;
    }
    size_t used() const { return used_; }

  private:
    std::byte* begin_;
    size_t used_ = 0;
};

SampleWork lay_out(Parts& parts, int64_t vocab_size) {
    const int64_t n_chunks = chunks_of(vocab_size);
    SampleWork work;
    work.adjusted = parts.next<float>(vocab_size);
    work.bounds = parts.next<Bounds>(kMostRows * n_chunks);
    work.moments = parts.next<double>(n_chunks);
    work.rows = parts.next<Row>(kMostRows);
    work.totals = parts.next<Totals>(1);
    work.members = parts.next<Word>(kMostRows * vocab_size);
    return work;
}

}  // namespace

cudaError_t sample(const SampleArgs& args, cudaStream_t stream, const Knobs& knobs) {
    Parts parts(args.scratch);
    const Sampling sampling = {
        .args = args,
        .work = lay_out(parts, args.vocab_size),
        .n_chunks = static_cast<int32_t>(chunks_of(args.vocab_size)),
        .n_rows = args.adjustments.any() ? 2 : 1,
        .is_tempered = args.rate != 1.0,
    };
    LaunchAt at = {stream, false};  // what was launched before may be anything
    for (const auto step : {read_rows, count_rows, choose}) {
        if (const cudaError_t error = step(sampling, at); error != cudaSuccess) {
            return error;
        }
        at.overlaps = knobs.overlap;
    }
    return cudaSuccess;
}

int64_t sample_scratch_bytes(int64_t vocab_size) {
    Parts parts(nullptr);
    lay_out(parts, vocab_size);
    return static_cast<int64_t>(parts.used());
}

}  // namespace soliton::cuda
