// Products with codes in blocks of 32 columns. Compiled once per instruction set (see kernels.h).
#include "linear_codes.h"

namespace soliton::SOLITON_ISA {

template void add_chunk<Layout::kQ8>(const Chunk&, int64_t, float*, int64_t);
template void add_chunk<Layout::kQ6>(const Chunk&, int64_t, float*, int64_t);
template void add_chunk<Layout::kQ5>(const Chunk&, int64_t, float*, int64_t);
template void add_chunk<Layout::kQ4>(const Chunk&, int64_t, float*, int64_t);
template void add_chunk<Layout::kQ4_0>(const Chunk&, int64_t, float*, int64_t);
template void add_chunk<Layout::kQ5_0>(const Chunk&, int64_t, float*, int64_t);
template void add_chunk<Layout::kIq4Nl>(const Chunk&, int64_t, float*, int64_t);
template void add_chunk<Layout::kMxfp4>(const Chunk&, int64_t, float*, int64_t);

}  // namespace soliton::SOLITON_ISA
