// What all threads of the pool do with weights once, while a model loads.
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

// What was read from a file.
struct FileBytes {
    int error;          // errno; 0 is none, and kFileEnds that the file has fewer bytes
    uint64_t checksum;  // of the bytes, if there is no error
};
inline constexpr int kFileEnds = -1;

// Reads `n_bytes` from `begin` on of an open file into `bytes`. Two threads read a file that the
// system has in memory in two thirds of the time that one needs, and the checksum comes from their
// caches.
FileBytes read_on_all_threads(int file, int64_t begin, std::byte* bytes, int64_t n_bytes);

// Has the system give its pages to the first `n_bytes` of each of `n_rows` rows that are `pitch`
// bytes apart. What is in them stays, so others may read and write there meanwhile. It runs on the
// calling thread; systems that cannot do it (Linux before 5.14) give pages when they are first
// used.
void touch_pages(std::byte* rows, int64_t n_rows, int64_t pitch, int64_t n_bytes);

}  // namespace soliton
