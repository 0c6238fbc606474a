// Counter-based random numbers for the sampler.
#pragma once

#include <cstdint>

namespace soliton {

// Uniform in [0, 1): the same bits as uniform() in engine/sampling/random_numbers.py, which defines
// them.
double uniform(uint64_t seed, uint64_t position, uint32_t purpose, uint32_t attempt);

}  // namespace soliton
