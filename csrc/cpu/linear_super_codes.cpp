// Products with codes in super-blocks of 256 columns. Compiled once per instruction set (see
// kernels.h).
#include "linear_codes.h"

namespace soliton::SOLITON_ISA {

template void add_chunk<Layout::kQ2_K>(const Chunk&, int64_t, float*, int64_t);
template void add_chunk<Layout::kQ4_K>(const Chunk&, int64_t, float*, int64_t);
template void add_chunk<Layout::kQ5_K>(const Chunk&, int64_t, float*, int64_t);
template void add_chunk<Layout::kQ6_K>(const Chunk&, int64_t, float*, int64_t);
template void add_chunk<Layout::kIq4Xs>(const Chunk&, int64_t, float*, int64_t);

}  // namespace soliton::SOLITON_ISA
