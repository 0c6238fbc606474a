// What all threads of the pool do with weights once, while a model loads. Knows no file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/linear.h"

namespace soliton {

// Packs the panels of `args`. The bad weight that it returns does not depend on the number of
// threads. Throws what run_on_all_threads throws.
WeightIndex pack_on_all_threads(const PackArgs& args);

// A 64-bit checksum that detects changed bytes: every change within one word of 8 bytes changes the
// number, and any other change does but for one in 2^64. Not cryptographic: bytes for a given
// number are easy to construct. The same for any number of threads.
uint64_t checksum_on_all_threads(const std::byte* bytes, int64_t n_bytes);

}  // namespace soliton
