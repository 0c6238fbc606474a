// A factor times panels of the caches, which both products of attention are: queries times keys,
// and probabilities times values. Every sum is one chain in ascending order, in every tile.
//
// The sums of a tile are one vector each. Loops over them say `unroll`, because gcc otherwise
// unrolls them so late that the sums go through memory before and after a product.
#pragma once

#include "attention_elements.h"

namespace soliton::SOLITON_ISA {
namespace {

constexpr int64_t kRowBytes = kLanes * kLaneBytes;  // of a panel

// The factor of a panel: rows kStride apart, in the products below.
template <KvType kKv>
struct Factor {
    const float* rows;
};
template <KvType kKv>
    requires kHasCodes<kKv>
struct Factor<kKv> {
    const int16_t* rows;
    const float* scales;  // one per row
};

// What the next product reads: `n_streams` streams of `lines` cache lines, `pitch` bytes apart.
// While this product computes, they are fetched into the second-level cache, a line for each line
// that it reads. Otherwise a decode step would compute and wait for memory in turn.
class Upcoming {
  public:
    Upcoming(const uint8_t* at, int64_t lines, int64_t pitch, int64_t n_streams)
        : at_(at),
          left_(lines),
          lines_(lines),
          skip_(pitch - lines * kRowBytes),
          n_streams_(n_streams) {}

    SOLITON_INLINE void fetch(int n_lines) {
        for (int i = 0; i < n_lines && n_streams_ > 0; ++i) {
            __builtin_prefetch(at_, 0, 2);
            at_ += kRowBytes;
            if (--left_ == 0) {
                at_ += skip_;
                left_ = lines_;
                --n_streams_;
            }
        }
    }

  private:
    const uint8_t* at_;
    int64_t left_;  // lines of the current stream
    int64_t lines_;
    int64_t skip_;
    int64_t n_streams_;
};

// out (rows, n_panels * 16) = factor (rows, n) times panels (n_panels, n / group, 16, group), whose
// rows may take turns in memory.
template <KvType kKv>
struct Product {
    Factor<kKv> factor;
    int64_t rows;
    int64_t n;
    const uint8_t* panels;
    int64_t pitch;      // bytes from panel to panel
    int64_t row_pitch;  // bytes from a row of a panel to its next one
    int64_t n_panels;
    float* out;
    int64_t out_stride;
    Upcoming* upcoming;
    // Of kInt4, where the scales of lanes change every 32 elements: pairs of bfloat16 for each lane
    // of each panel, `scale_pitch` bytes between the pairs. Null where factors have the scales.
    const uint8_t* lane_scales = nullptr;
    int64_t scale_pitch = 0;
};

template <typename Vector, int kRows, int kPanels>
SOLITON_INLINE void fill(Vector (&sums)[kRows][kPanels], Vector value) {
#pragma GCC unroll 8
    for (int k = 0; k < kRows; ++k) {
#pragma GCC unroll 4
        for (int j = 0; j < kPanels; ++j) {
            sums[k][j] = value;
        }
    }
}

template <KvType kKv, int kRows, int kPanels>
SOLITON_INLINE void store_sums(const Product<kKv>& product, int64_t row, int64_t panel,
                               const Floats (&sums)[kRows][kPanels]) {
    const int64_t stride = product.out_stride;
    float* out = product.out + row * stride + panel * kLanes;
#pragma GCC unroll 8
    for (int k = 0; k < kRows; ++k) {
#pragma GCC unroll 4
        for (int j = 0; j < kPanels; ++j) {
            store(out + k * stride + j * kLanes, sums[k][j]);
        }
    }
}

template <KvType kKv>
SOLITON_INLINE Floats load_element(const uint8_t* lanes, bool second) {
    if constexpr (kKv == KvType::kF32) {
        return load(reinterpret_cast<const float*>(lanes));
    } else {
        return load_bfloat16(lanes, second);
    }
}

// What is read after the panels of a tile, or after their next rows if they take turns: a line for
// each that the tile reads, in the order of memory, because processors fetch on along a stream.
// Otherwise the sums would wait: a head is some 10 KB, too little to be foreseen. Beyond its end
// nothing depends on what is fetched.
class Following {
  public:
    template <int kPanels, KvType kKv>
    SOLITON_INLINE static Following of(const Product<kKv>& product, const uint8_t* panels) {
        constexpr int64_t kAheadBytes = 4096;
        if (product.pitch == kRowBytes) {
            return {panels + kAheadBytes, product.row_pitch};
        }
        return {panels + kPanels * product.pitch, kPanels * kRowBytes};
    }

    template <int kPanels>
    SOLITON_INLINE void fetch() {
#pragma GCC unroll 4
        for (int j = 0; j < kPanels; ++j) {
            __builtin_prefetch(at_ + j * kRowBytes);
        }
        at_ += step_;
    }

  private:
    SOLITON_INLINE Following(const uint8_t* at, int64_t step) : at_(at), step_(step) {}

    const uint8_t* at_;
    int64_t step_;
};

// Makes the compiler compute a sum here. Otherwise it loads the numbers of all rows first, and the
// sums of six rows no longer fit the registers of AVX2.
SOLITON_INLINE void settle([[maybe_unused]] Floats& sum) {
#if defined(SOLITON_LANES_AVX2)
    asm volatile("" : "+x"(sum.low), "+x"(sum.high));
#endif
}

template <KvType kKv, int64_t kStride, int kRows, int kPanels>
void multiply_floats(const Product<kKv>& product, int64_t row, int64_t panel) {
    const float* factor = product.factor.rows + row * kStride;
    const uint8_t* panels = product.panels + panel * product.pitch;
    Following following = Following::of<kPanels>(product, panels);
    Upcoming upcoming = *product.upcoming;  // in registers
    Floats sums[kRows][kPanels];
    fill(sums, broadcast(0.0f));
    const auto step = [&](const float* a, const uint8_t* lanes, bool second)
                          __attribute__((always_inline)) {
                              Floats columns[kPanels];
#pragma GCC unroll 4
                              for (int j = 0; j < kPanels; ++j) {
                                  columns[j] = load_element<kKv>(lanes + j * product.pitch, second);
                              }
#pragma GCC unroll 8
                              for (int k = 0; k < kRows; ++k) {
                                  const Floats value = broadcast(a[k * kStride]);
#pragma GCC unroll 4
                                  for (int j = 0; j < kPanels; ++j) {
                                      sums[k][j] = multiply_add(value, columns[j], sums[k][j]);
                                      if constexpr (kRows >= 4) {
                                          settle(sums[k][j]);
                                      }
                                  }
                              }
                          };
    const float* end = factor + product.n;
    for (; factor + kPerLane<kKv> <= end; factor += kPerLane<kKv>, panels += product.row_pitch) {
        following.fetch<kPanels>();
        upcoming.fetch(kPanels);
        step(factor, panels, false);
        if constexpr (kKv == KvType::kBf16) {
            step(factor + 1, panels, true);
        }
    }
    if (factor < end) {
        step(factor, panels, false);
    }
    *product.upcoming = upcoming;
    store_sums(product, row, panel, sums);
}

// The factor's codes from n to the next multiple of 4 must be 0.
template <int64_t kStride, int kRows, int kPanels>
void multiply_codes(const Product<KvType::kInt8>& product, int64_t row, int64_t panel) {
    const int16_t* factor = product.factor.rows + row * kStride;
    const uint8_t* panels = product.panels + panel * product.pitch;
    Following following = Following::of<kPanels>(product, panels);
    Upcoming upcoming = *product.upcoming;  // in registers
    Ints dots[kRows][kPanels];
    fill(dots, broadcast(0));
    const auto step = [&](const int16_t* a,
                          const Ints(&words)[kPanels]) __attribute__((always_inline)) {
        for (int k = 0; k < kRows; ++k) {
            int32_t pair;
            __builtin_memcpy(&pair, a + k * kStride, sizeof pair);
            for (int j = 0; j < kPanels; ++j) {
                dots[k][j] = multiply_add_words(broadcast(pair), words[j], dots[k][j]);
            }
        }
    };
    const int16_t* end = factor + product.n;
    for (; factor < end; factor += 4, panels += product.row_pitch) {
        following.fetch<kPanels>();
        upcoming.fetch(kPanels);
        Ints lanes[kPanels];
        Ints words[kPanels];
        for (int j = 0; j < kPanels; ++j) {
            lanes[j] = load_ints(panels + j * product.pitch);
            words[j] = even_bytes(lanes[j]);
        }
        step(factor, words);
        for (int j = 0; j < kPanels; ++j) {
            words[j] = odd_bytes(lanes[j]);
        }
        step(factor + 2, words);
    }
    *product.upcoming = upcoming;
    Floats sums[kRows][kPanels];
#pragma GCC unroll 8
    for (int k = 0; k < kRows; ++k) {
        const Floats scale = broadcast(product.factor.scales[row + k]);
#pragma GCC unroll 4
        for (int j = 0; j < kPanels; ++j) {
            sums[k][j] = multiply(to_floats(dots[k][j]), scale);
        }
    }
    store_sums(product, row, panel, sums);
}

// The factor's codes from n to the next multiple of 8 must be 0.
template <int64_t kStride, int kRows, int kPanels>
void multiply_nibbles(const Product<KvType::kInt4>& product, int64_t row, int64_t panel) {
    // Sums of integers may be added in any order, so few sums do not wait for each other.
    constexpr int kChains = kRows * kPanels >= 8 ? 1 : kRows * kPanels >= 4 ? 2 : 4;
    const int16_t* factor = product.factor.rows + row * kStride;
    const uint8_t* panels = product.panels + panel * product.pitch;
    Following following = Following::of<kPanels>(product, panels);
    const uint8_t* scales = product.lane_scales + panel * kRowBytes;
    const int64_t block = product.lane_scales ? kScaledDims : product.n;
    Upcoming upcoming = *product.upcoming;  // in registers
    Floats sums[kRows][kPanels];
    fill(sums, broadcast(0.0f));
    for (int64_t begin = 0; begin < product.n; begin += block) {
        Ints dots[kRows][kPanels][kChains];
#pragma GCC unroll 8
        for (auto& of_row : dots) {
#pragma GCC unroll 4
            for (auto& of_panel : of_row) {
#pragma GCC unroll 4
                for (Ints& dot : of_panel) {
                    dot = broadcast(0);
                }
            }
        }
        const auto step = [&](const int16_t* a, const Ints(&words)[kPanels], int chain)
                              __attribute__((always_inline)) {
#pragma GCC unroll 8
                                  for (int k = 0; k < kRows; ++k) {
                                      int32_t pair;
                                      __builtin_memcpy(&pair, a + k * kStride, sizeof pair);
#pragma GCC unroll 4
                                      for (int j = 0; j < kPanels; ++j) {
                                          Ints& dot = dots[k][j][chain % kChains];
                                          dot = multiply_add_words(broadcast(pair), words[j], dot);
                                      }
                                  }
                              };
        const int64_t rest = product.n - begin;
        const int16_t* end = factor + (rest < block ? rest : block);
        for (; factor < end; factor += 8, panels += product.row_pitch) {
            following.fetch<kPanels>();
            upcoming.fetch(kPanels);
            for (int half = 0; half < 2; ++half) {
                Ints lanes[kPanels];
                Ints words[kPanels];
#pragma GCC unroll 4
                for (int j = 0; j < kPanels; ++j) {
                    const Ints codes = load_ints(panels + j * product.pitch);
                    lanes[j] = look_up(kLevels.at, half ? shift_right(codes, 4) : codes);
                    words[j] = even_bytes(lanes[j]);
                }
                step(factor + 4 * half, words, 2 * half);
#pragma GCC unroll 4
                for (int j = 0; j < kPanels; ++j) {
                    words[j] = odd_bytes(lanes[j]);
                }
                step(factor + 4 * half + 2, words, 2 * half + 1);
            }
        }
#pragma GCC unroll 8
        for (int k = 0; k < kRows; ++k) {
            const Floats scale = broadcast(product.factor.scales[row + k]);
#pragma GCC unroll 4
            for (int j = 0; j < kPanels; ++j) {
                Ints dot = dots[k][j][0];
#pragma GCC unroll 4
                for (int chain = 1; chain < kChains; ++chain) {
                    dot = add(dot, dots[k][j][chain]);
                }
                Floats sum = multiply(to_floats(dot), scale);
                if (product.lane_scales) {
                    const bool second = begin / kScaledDims % 2;
                    const uint8_t* pairs =
                        scales + begin / (2 * kScaledDims) * product.scale_pitch + j * kRowBytes;
                    sum = multiply(sum, load_bfloat16(pairs, second));
                    sum = begin ? add(sums[k][j], sum) : sum;
                }
                sums[k][j] = sum;
            }
        }
    }
    *product.upcoming = upcoming;
    store_sums(product, row, panel, sums);
}

template <KvType kKv, int64_t kStride, int kRows, int kPanels>
SOLITON_INLINE void multiply_tile(const Product<kKv>& product, int64_t row, int64_t panel) {
    if constexpr (kKv == KvType::kInt8) {
        multiply_codes<kStride, kRows, kPanels>(product, row, panel);
    } else if constexpr (kKv == KvType::kInt4) {
        multiply_nibbles<kStride, kRows, kPanels>(product, row, panel);
    } else {
        multiply_floats<kKv, kStride, kRows, kPanels>(product, row, panel);
    }
}

// All panels for rows [begin, end). The outer loop is over panels, so that each is fetched from
// memory once.
template <KvType kKv, int64_t kStride, int kRows, int kPanels>
void multiply_rows(const Product<kKv>& product, int64_t begin, int64_t end) {
    int64_t panel = 0;
    for (; panel + kPanels <= product.n_panels; panel += kPanels) {
        for (int64_t row = begin; row < end; row += kRows) {
            multiply_tile<kKv, kStride, kRows, kPanels>(product, row, panel);
        }
    }
    if constexpr (kPanels > 1) {
        for (; panel < product.n_panels; ++panel) {
            for (int64_t row = begin; row < end; row += kRows) {
                multiply_tile<kKv, kStride, kRows, 1>(product, row, panel);
            }
        }
    }
}

template <KvType kKv, int64_t kStride = kTileStride>
void multiply(const Product<kKv>& product) {
    // With fewer than 8 sums at once they would wait for each other; more than this need too many
    // registers. Codes need some more, in which they are unpacked.
#if defined(SOLITON_LANES_AVX512)
    constexpr int kRows = 8;
    constexpr int kPanels = 2;
    constexpr int kPanelsOf3 = kKv == KvType::kInt4 ? 2 : 4;
#elif defined(SOLITON_LANES_AVX2)
    constexpr int kRows = kHasCodes<kKv> ? 4 : 6;
    constexpr int kPanels = 1;
    constexpr int kPanelsOf3 = 1;
#else
    constexpr int kRows = 4;
    constexpr int kPanels = 1;
    constexpr int kPanelsOf3 = 1;
#endif
    const int64_t whole = product.rows / kRows * kRows;
    if (whole) {
        multiply_rows<kKv, kStride, kRows, kPanels>(product, 0, whole);
    }
    int64_t row = whole;
    if constexpr (kRows > 4) {
        if (product.rows - row >= 4) {
            multiply_rows<kKv, kStride, 4, kPanels>(product, row, row + 4);
            row += 4;
        }
    }
    switch (product.rows - row) {
        case 3:
            return multiply_rows<kKv, kStride, 3, kPanelsOf3>(product, row, row + 3);
        case 2:
            return multiply_rows<kKv, kStride, 2, 2>(product, row, row + 2);
        case 1:
            // The values of 32 dimensions with a scale of their own are two panels.
            return multiply_rows<kKv, kStride, 1, kKv == KvType::kInt4 ? 2 : 4>(product, row,
                                                                                row + 1);
        default:
            return;
    }
}

}  // namespace
}  // namespace soliton::SOLITON_ISA
