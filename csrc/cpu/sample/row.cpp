#include "row.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>

#include "../../pool.h"
#include "../kernels.h"

namespace soliton {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowestFinite = std::numeric_limits<float>::lowest();
constexpr double kLn2 = 0.693147180559945309417;

// Rows of this size and larger are shared among threads: adding up takes a microsecond per 4096
// logits, and waking the threads one or two.
constexpr int64_t kSharedFrom = int64_t{1} << 16;
constexpr int64_t kTilesPerChunk = 4;

// The limits of the kernel sum_tile.
constexpr double kLargestScale = 0x1p20;
constexpr double kLargestProduct = 0x1p21;

int64_t in_units(int64_t n, int64_t unit) {
    return (n + unit - 1) / unit;
}

// The scale, which converts nats to bits, as a tile uses it: rounded to float.
double rounded(double scale) {
    return scale <= kLargestScale ? static_cast<double>(static_cast<float>(scale)) : scale;
}

// For values beyond the kernel's limits: masses relative to the largest, in doubles.
void sum_slowly(const float* logits, int64_t n, double scale, TileSums& sums) {
    sums.mass = 0.0;
    sums.moment = 0.0;
    sums.reference = sums.largest > -kInfinity ? scale * sums.largest : 0.0;
    for (int64_t i = 0; i < n; ++i) {
        if (logits[i] != -kInfinity) {
            const double distance = static_cast<double>(logits[i]) - sums.largest;
            const double mass = std::exp2(std::max(scale * distance, -1000.0));
            sums.mass += mass;
            sums.moment += mass * logits[i];
        }
    }
}

void sum_tile(const float* logits, int64_t n, double scale, float* maxima, TileSums& sums) {
    // The maxima and the largest are correct for any scale.
    const bool fits = scale <= kLargestScale;
    cpu_kernels().sum_tile(logits, n, fits ? static_cast<float>(scale) : 1.0f, maxima, sums);
    const double product = sums.largest > -kInfinity ? scale * sums.largest : 0.0;
    if (!fits || !(std::abs(product) < kLargestProduct)) {
        sum_slowly(logits, n, rounded(scale), sums);
    }
}

double scale_of(double inverse_temperature) {
    return inverse_temperature / kLn2;
}

// Combines tiles, relative to `largest`.
Mass add_up(const TileSums* tiles, size_t n_tiles, double scale, float largest) {
    const double used = rounded(scale);
    Mass sum = {};
    for (size_t i = 0; i < n_tiles; ++i) {
        const TileSums& tile = tiles[i];
        if (tile.largest == -kInfinity) {
            continue;
        }
        const double weight = std::exp2(tile.reference - used * largest);
        sum.total += weight * tile.mass;
        sum.moment += weight * (tile.moment - tile.mass * static_cast<double>(largest));
    }
    // Corrects the masses for the rounding of the scale, to first order; the second order is below
    // 1e-13.
    sum.total += (scale - used) * kLn2 * sum.moment;
    return sum;
}

// The same for a whole row. The largest token has mass 1, so the total is at least 1, and no
// probability exceeds 1.
Mass add_up_row(const std::vector<TileSums>& tiles, double scale, float largest) {
    const Mass sum = add_up(tiles.data(), tiles.size(), scale, largest);
    return {std::max(sum.total, 1.0), std::min(sum.moment, 0.0)};
}

}  // namespace

void Row::read(const float* logits, int64_t size, float* copy) {
    logits_ = logits;
    size_ = size;
    maxima_.resize(in_units(size, kSampleBlock));
    tiles_.resize(in_units(size, kSampleTile));
    stale_.assign(tiles_.size(), 0);
    sum_tiles(scale_of(1.0), tiles_, [&](int64_t begin, int64_t n) {
        if (copy != nullptr) {
            std::memcpy(copy + begin, logits_ + begin, n * sizeof(float));
        }
        return true;
    });
    largest_ = *std::max_element(maxima_.begin(), maxima_.end());
    mass_ = add_up_row(tiles_, scale_of(1.0), largest_);
}

void Row::take_over(const float* logits, const Row& other) {
    logits_ = logits;
    size_ = other.size_;
    maxima_ = other.maxima_;
    tiles_ = other.tiles_;
    stale_.assign(tiles_.size(), 0);
}

void Row::refresh(float* logits, const int32_t* mask) {
    sum_tiles(scale_of(1.0), tiles_, [&](int64_t begin, int64_t n) {
        if (mask != nullptr) {
            cpu_kernels().apply_mask(mask + begin / kMaskBits, n, logits + begin);
        }
        return mask != nullptr || stale_[begin / kSampleTile] != 0;
    });
    largest_ = *std::max_element(maxima_.begin(), maxima_.end());
    mass_ = add_up_row(tiles_, scale_of(1.0), largest_);
}

bool Row::can_be_sampled() const {
    return largest_ > -kInfinity && largest_ < kInfinity &&
           std::none_of(
               tiles_.begin(), tiles_.end(),
               [](const TileSums& tile) { return std::isnan(tile.moment); });
}

int64_t Row::first_largest() const {
    const auto block = std::find(maxima_.begin(), maxima_.end(), largest_) - maxima_.begin();
    return std::find(logits_ + block * kSampleBlock, logits_ + size_, largest_) - logits_;
}

double Row::total(const Softmax& softmax) {
    if (softmax.quadratic != 0.0) {
        return cpu_kernels().total_mass(logits_, size_, softmax);
    }
    if (softmax.linear == 1.0) {
        return mass_.total;
    }
    const double scale = scale_of(softmax.linear);
    other_tiles_.resize(tiles_.size());
    sum_tiles(scale, other_tiles_, [](int64_t, int64_t) { return true; });
    return add_up_row(other_tiles_, scale, largest_).total;
}

float Row::bound_of(int64_t count) {
    const std::vector<float>* maxima = &maxima_;
    if (2 * count > std::ssize(maxima_)) {
        // Any grouping gives a bound; with this many groups, most of the largest logits are alone
        // in theirs.
        group_maxima_.resize(maxima_.size() * kSampleGroups);
        cpu_kernels().group_maxima(logits_, size_, group_maxima_.data());
        maxima = &group_maxima_;
    }
    if (count > std::ssize(*maxima)) {
        return kLowestFinite;
    }
    best_maxima_.resize(static_cast<size_t>(count));
    std::partial_sort_copy(maxima->begin(), maxima->end(), best_maxima_.begin(), best_maxima_.end(),
                           std::greater<>());
    return std::max(best_maxima_.back(), kLowestFinite);
}

void Row::at_least(float bound, Tokens& tokens) const {
    const auto n_blocks = std::count_if(maxima_.begin(), maxima_.end(),
                                        [&](float maximum) { return maximum >= bound; });
    const auto room = static_cast<size_t>(n_blocks * kSampleBlock);
    if (tokens.ids.size() < room) {
        tokens.ids.resize(room);
        tokens.logits.resize(room);
    }
    tokens.count = cpu_kernels().collect(logits_, size_, maxima_.data(), bound, tokens.ids.data());
    for (int64_t i = 0; i < tokens.count; ++i) {
        tokens.logits[i] = logits_[tokens.ids[i]];
    }
}

void Row::largest(int64_t n, Tokens& tokens, std::vector<Candidate>& best) {
    best.clear();
    at_least(bound_of(n), tokens);
    for (int64_t i = 0; i < tokens.count; ++i) {
        best.push_back(tokens[i]);
    }
    const auto end = best.begin() + std::min(n, tokens.count);
    std::nth_element(best.begin(), end, best.end(), before);
    best.erase(end, best.end());
    std::sort(best.begin(), best.end(), before);
}

int64_t Row::rank(int64_t id) const {
    return cpu_kernels().count_before(logits_, size_, maxima_.data(), logits_[id], id);
}

template <typename Prepare>
void Row::sum_tiles(double scale, std::vector<TileSums>& tiles, Prepare prepare) {
    const auto sum_chunk = [&](int64_t chunk) {
        const int64_t end = std::min<int64_t>((chunk + 1) * kTilesPerChunk, std::ssize(tiles));
        for (int64_t i = chunk * kTilesPerChunk; i < end; ++i) {
            const int64_t begin = i * kSampleTile;
            const int64_t size = std::min<int64_t>(kSampleTile, size_ - begin);
            if (prepare(begin, size)) {
                sum_tile(logits_ + begin, size, scale, &maxima_[begin / kSampleBlock], tiles[i]);
            }
        }
    };
    const int64_t n_chunks = in_units(std::ssize(tiles), kTilesPerChunk);
    if (size_ >= kSharedFrom && threads() > 1 && try_chunks_on_all_threads(n_chunks, sum_chunk)) {
        return;
    }
    for (int64_t i = 0; i < n_chunks; ++i) {
        sum_chunk(i);
    }
}

double mass_of_all(const float* logits, int64_t n, const Softmax& softmax) {
    if (softmax.quadratic != 0.0) {
        return cpu_kernels().total_mass(logits, n, softmax);
    }
    double total = 0.0;
    if (n <= kSampleBlock) {
        for (int64_t i = 0; i < n; ++i) {
            total += std::exp((static_cast<double>(logits[i]) - softmax.largest) * softmax.linear);
        }
        return total;
    }
    const double scale = scale_of(softmax.linear);
    for (int64_t begin = 0; begin < n; begin += kSampleTile) {
        const int64_t size = std::min<int64_t>(kSampleTile, n - begin);
        float maxima[kSampleTile / kSampleBlock];
        TileSums tile;
        sum_tile(logits + begin, size, scale, maxima, tile);
        total += add_up(&tile, 1, scale, softmax.largest).total;
    }
    return total;
}

}  // namespace soliton
