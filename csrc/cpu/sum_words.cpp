// The sum of an array, as fast as memory delivers it. Compiled once per instruction set (see
// kernels.h), with the same result in all of them: integers add up in any order.
#include "kernels.h"

namespace soliton::SOLITON_ISA {
namespace {

// One register: gcc keeps a wider vector on the stack.
#if defined(__AVX512F__)
constexpr int64_t kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int64_t kVectorBytes = 32;
#else
constexpr int64_t kVectorBytes = 16;
#endif
using Vector [[gnu::vector_size(kVectorBytes), gnu::aligned(8), gnu::may_alias]] = uint64_t;
constexpr int64_t kLanes = kVectorBytes / 8;

// More chains than an addition's latency in cycles, so that only loads limit the speed.
constexpr int64_t kChains = 8;

}  // namespace

uint64_t sum_words(const uint64_t* words, int64_t n) {
    Vector sums[kChains] = {};
    int64_t i = 0;
    for (; i + kChains * kLanes <= n; i += kChains * kLanes) {
        for (int64_t chain = 0; chain < kChains; ++chain) {
            sums[chain] += *reinterpret_cast<const Vector*>(words + i + chain * kLanes);
        }
    }
    uint64_t total = 0;
    for (int64_t chain = 0; chain < kChains; ++chain) {
        for (int64_t lane = 0; lane < kLanes; ++lane) {
            total += sums[chain][lane];
        }
    }
    for (; i < n; ++i) {
        total += words[i];
    }
    return total;
}

}  // namespace soliton::SOLITON_ISA
