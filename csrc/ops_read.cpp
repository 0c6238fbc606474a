// All threads read memory from end to end: the time that an op would take if it only loaded its
// weights.
#include "cpu/kernels.h"
#include "ops.h"
#include "pool.h"

namespace soliton {
namespace {

void read_piece(const ReadArgs& args, int64_t piece) {
    const int64_t begin = piece * args.piece_words;
    const int64_t left = args.n_words - begin;
    args.sums[piece] = cpu_kernels().sum_words(args.words + begin,
                                               left < args.piece_words ? left : args.piece_words);
}

}  // namespace

void read_memory(const ReadArgs& args, const StepState&, Worker& worker) {
    const int64_t n_pieces = (args.n_words + args.piece_words - 1) / args.piece_words;
    worker.share(n_pieces, [&](int64_t piece) { read_piece(args, piece); });
}

}  // namespace soliton
