// What can be set while the process runs, so that one run on a GPU can compare: none of it changes
// a bit of the results. Owns the names, the defaults and the process's values; bind.cpp sets them.
//
// A launch reads the values at the time when it is launched or captured. Each set of values has its
// own graphs (tape.h), so that a change takes effect in the next pass.
#pragma once

#include <compare>
#include <cstdint>

namespace soliton::cuda {

struct Knobs {
    // Launches of a pass overlap, on devices that can (programmatic dependent launch).
    bool overlap = true;
    // Of the weights that the next ops read, so many bytes are prefetched into L2 by attention, for
    // each multiprocessor. 0: none. 132 x 96 KiB are 13 MB, 3 us of an H200's memory; at most half
    // of L2 is filled. Worth up to 1 % of a pass there; products that prefetched cost 2 to 5.
    int32_t attention_prefetch_bytes = 96 * 1024;
    // Thread blocks per multiprocessor in products of up to 4 rows with 4-bit weights, 1 or 2. With
    // eight warps such a product is bound by the latency of its instructions.
    int32_t q4_blocks = 2;
    // The same with 8-bit weights.
    int32_t q8_blocks = 1;

    auto operator<=>(const Knobs&) const = default;
};

// The process's values. Change them only while no pass is being launched.
inline Knobs& knobs() {
    static Knobs values;
    return values;
}

}  // namespace soliton::cuda
