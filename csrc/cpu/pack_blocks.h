// What pack.cpp needs for rows that are stored in the blocks of a GGUF type.
#pragma once

#include "kernels.h"

namespace soliton::SOLITON_ISA {

inline constexpr int64_t kMostFileColumns = 256;

// How blocks of a file become floats.
struct BlockDecoder {
    int64_t columns;  // of a block, at most kMostFileColumns
    int64_t n_bytes;  // of a block
    void (*decode)(const uint8_t* block, float* out);
};

// Of a source that is not floats.
BlockDecoder block_decoder(SourceType source);

// Whether the layout holds the blocks of the source without loss.
bool holds_blocks(Layout layout, SourceType source);

// Packs blocks into the layout that holds them, without changing a weight. Returns where the first
// block is whose scale is not finite.
WeightIndex move_blocks(const PackArgs& args);

}  // namespace soliton::SOLITON_ISA
