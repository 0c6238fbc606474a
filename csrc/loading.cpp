#include "loading.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <vector>

#include "cpu/kernels.h"
#include "pool.h"

namespace soliton {
namespace {

// Pieces small enough that all threads finish at nearly the same time.
constexpr int64_t kPiecesPerThread = 16;
constexpr int64_t kPieceBytes = int64_t{1} << 20;
// MADV_POPULATE_WRITE of Linux 5.14, which older headers do not have.
constexpr int kPopulateWrite = 23;

// One to one in the state for a given word, and in the word for a given state.
uint64_t mixed(uint64_t state, uint64_t word) {
    return std::rotl(state ^ word, 29) * 0x9e3779b97f4a7c15u;
}

// Eight independent sums, because a multiplication's latency is longer than the interval at which
// new ones can start.
uint64_t checksum(const std::byte* bytes, int64_t n_bytes) {
    constexpr int kSums = 8;
    uint64_t sums[kSums] = {1, 2, 3, 4, 5, 6, 7, 8};
    uint64_t words[kSums];
    int64_t at = 0;
    for (; at + int64_t{sizeof words} <= n_bytes; at += sizeof words) {
        std::memcpy(words, bytes + at, sizeof words);
        for (int i = 0; i < kSums; ++i) {
            sums[i] = mixed(sums[i], words[i]);
        }
    }
    std::fill_n(words, kSums, 0);
    if (at < n_bytes) {
        std::memcpy(words, bytes + at, static_cast<size_t>(n_bytes - at));
    }
    uint64_t result = static_cast<uint64_t>(n_bytes);
    for (int i = 0; i < kSums; ++i) {
        result = mixed(result, mixed(sums[i], words[i]));
    }
    return result ^ result >> 32;
}

// Memory in pieces, each of which has a checksum.
class Pieces {
  public:
    explicit Pieces(int64_t n_bytes)
        : n_bytes_(n_bytes),
          checksums_(static_cast<size_t>((n_bytes + kPieceBytes - 1) / kPieceBytes)) {}

    int64_t size() const { return static_cast<int64_t>(checksums_.size()); }
    int64_t begin(int64_t i) const { return i * kPieceBytes; }
    int64_t end(int64_t i) const { return std::min(begin(i) + kPieceBytes, n_bytes_); }

    // Piece i of `bytes` is as it will stay.
    void add(int64_t i, const std::byte* bytes) {
        checksums_[static_cast<size_t>(i)] = soliton::checksum(bytes + begin(i), end(i) - begin(i));
    }

    uint64_t checksum() const {
        return soliton::checksum(reinterpret_cast<const std::byte*>(checksums_.data()),
                                 size() * int64_t{sizeof(uint64_t)});
    }

  private:
    int64_t n_bytes_;
    std::vector<uint64_t> checksums_;
};

// Returns what FileBytes calls `error`.
int read_all(int file, int64_t begin, std::byte* bytes, int64_t n_bytes) {
    while (n_bytes > 0) {
        const ssize_t n = pread(file, bytes, static_cast<size_t>(n_bytes), begin);
        if (n < 0 && errno != EINTR) {
            return errno;
        }
        if (n == 0) {
            return kFileEnds;
        }
        if (n > 0) {
            begin += n;
            bytes += n;
            n_bytes -= n;
        }
    }
    return 0;
}

}  // namespace

WeightIndex pack_on_all_threads(const PackArgs& args) {
    const int64_t n_panels = args.end_panel - args.begin_panel;
    const int64_t n_pieces = std::min(n_panels, threads() * kPiecesPerThread);
    std::mutex mutex;
    int64_t bad_piece = n_pieces;
    WeightIndex first_bad = {-1, -1};
    chunks_on_all_threads(n_pieces, [&](int64_t i) {
        PackArgs piece = args;
        piece.begin_panel = args.begin_panel + n_panels * i / n_pieces;
        piece.end_panel = args.begin_panel + n_panels * (i + 1) / n_pieces;
        const WeightIndex bad = cpu_kernels().pack(piece);
        if (bad.row >= 0) {
            const std::lock_guard lock(mutex);
            if (i < bad_piece) {
                bad_piece = i;
                first_bad = bad;
            }
        }
    });
    return first_bad;
}

uint64_t checksum_on_all_threads(const std::byte* bytes, int64_t n_bytes) {
    Pieces pieces(n_bytes);
    chunks_on_all_threads(pieces.size(), [&](int64_t i) { pieces.add(i, bytes); });
    return pieces.checksum();
}

FileBytes read_on_all_threads(int file, int64_t begin, std::byte* bytes, int64_t n_bytes) {
    Pieces pieces(n_bytes);
    std::atomic<int> error = 0;
    chunks_on_all_threads(pieces.size(), [&](int64_t i) {
        const int found = read_all(file, begin + pieces.begin(i), bytes + pieces.begin(i),
                                   pieces.end(i) - pieces.begin(i));
        if (found != 0) {
            error = found;
        } else {
            pieces.add(i, bytes);
        }
    });
    return {error, pieces.checksum()};
}

void touch_pages(std::byte* rows, int64_t n_rows, int64_t pitch, int64_t n_bytes) {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    for (int64_t i = 0; i < n_rows; ++i) {
        const auto begin = reinterpret_cast<uintptr_t>(rows + i * pitch);
        const uintptr_t first = begin / page * page;
        const size_t n = begin + static_cast<uintptr_t>(n_bytes) - first;
        if (madvise(reinterpret_cast<void*>(first), n, kPopulateWrite) != 0 && errno != EINTR) {
            return;
        }
    }
}

}  // namespace soliton
