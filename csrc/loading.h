// What is done with weights once, while a model loads, by all threads of the pool. Knows no file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/linear.h"

namespace soliton {

// Packs the panels of `args`; which weight it says is bad does not depend on the threads. Throws
// what run_on_all_threads throws.
WeightIndex pack_on_all_threads(const PackArgs& args);

// 64 bits that tell apart what bytes were from what they have become: any change within one word
// of 8 bytes gives another number, other changes do but for one in 2^64. No secret: whoever wants
// to can make bytes for a number. The same for every number of threads.
uint64_t checksum_on_all_threads(const std::byte* bytes, int64_t n_bytes);

}  // namespace soliton
