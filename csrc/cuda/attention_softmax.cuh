// The online softmax of a warp over its steps of 16 positions: scores, probabilities and sums of
// values in registers, and the merge of a block's warps. Owns what a score becomes: scale, cap and
// window. Knows no cache.
#pragma once

#include "attention_block.cuh"
#include "attention_splits.cuh"

namespace soliton::cuda {

// With int8 values, probabilities are float16; scaled up by this, their low parts are still normal
// numbers.
template <KvType kKv>
inline constexpr float kRaised = kKv == KvType::kInt8 ? 16384.0f : 1.0f;

template <typename S>
class WarpSoftmax {
  public:
    __device__ explicit WarpSoftmax(const AttentionBlock<S>& at) : at_(at) {
#pragma unroll
        for (float& top : tops_) {
            top = -kInfinity;
        }
    }

    // Lane l of a warp has positions l / 4 and l / 4 + 8 for query l % 4 of each column.
    __device__ void step(uint8_t* rows, int begin) {
        float scores[S::kColumns][4] = {};
        multiply_keys(scores, rows);
        uint32_t probabilities[S::kColumns][2];
        softmax(probabilities, scores, rows, begin);
        multiply_values(probabilities, rows + S::kValuesAt);
    }

    // Merges the warps of this block into its record.
    __device__ void put_warps_together(const Splits<S>& splits) {
        auto* parts = reinterpret_cast<float*>(at_.shared);
        float* tops = parts + S::kTopsAt;
        float* sums = parts + S::kSumsAt;
#pragma unroll
        for (int n = 0; n < S::kColumns; ++n) {
#pragma unroll
            for (int distance = 4; distance < kWarp; distance *= 2) {
                sums_[n] += __shfl_xor_sync(kAllLanes, sums_[n], distance);
            }
            const int q = n * 4 + at_.lane % 4;
            float* part = parts + at_.warp * S::kPartFloats + q * S::kWidth;
#pragma unroll
            for (int band = 0; band < S::kBands; ++band) {
                const int d = Rows::element(band, at_.lane);
                part[d] = out_[band][n][0] + out_[band][n][1];
                part[d + Rows::kNextElement] = out_[band][n][2] + out_[band][n][3];
            }
            if (at_.lane < 4) {
                tops[at_.warp * S::kQueries + q] = tops_[n];
                sums[at_.warp * S::kQueries + q] = sums_[n];
            }
        }
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < at_.n_queries * S::kWidth;
             i += S::kThreads) {
            const int q = i / S::kWidth;
            float* to = splits.record(static_cast<int>(blockIdx.x), q);
            const float top = largest_of_warps(tops + q);
            float value = 0.0f;
            float sum = 0.0f;
#pragma unroll
            for (int warp = 0; warp < S::kWarps; ++warp) {
                const float weight = weight_of(tops[warp * S::kQueries + q], top);
                value += weight * parts[warp * S::kPartFloats + i];
                sum += weight * sums[warp * S::kQueries + q];
            }
            to[i % S::kWidth] = value * (1.0f / kRaised<S::kKv>);
            if (i % S::kWidth == 0) {
                to[S::kWidth] = top;
                to[S::kWidth + 1] = sum;
            }
        }
    }

  private:
    using Rows = typename S::Rows;

    __device__ void multiply_keys(float (&scores)[S::kColumns][4], const uint8_t* rows) {
        const uint8_t* column = at_.shared + S::kQueriesAt + at_.lane / 4 * Rows::kQueryStride;
#pragma unroll
        for (int i = 0; i < S::kWidth / 32; ++i) {
            uint32_t a[2][4];
            Rows::load_keys(a, rows, i, at_.lane);
            const uint8_t* from = column + Rows::query_chunk(i, at_.lane) * 16;
#pragma unroll
            for (int n = 0; n < S::kColumns; ++n) {
                const uint4 b = *reinterpret_cast<const uint4*>(from + n * 8 * Rows::kQueryStride);
                Rows::multiply(scores[n], a[0], {b.x, b.y});
                Rows::multiply(scores[n], a[1], {b.z, b.w});
            }
        }
    }

    // Probabilities, not yet divided by the softmax's sum, as the operand that is multiplied with
    // the values.
    __device__ void softmax(uint32_t (&probabilities)[S::kColumns][2],
                            const float (&scores)[S::kColumns][4], uint8_t* rows, int begin) {
        float key_scales[2] = {1.0f, 1.0f};
        float value_scales[2] = {1.0f, 1.0f};
        float exponents[2] = {0.0f, 0.0f};
        if constexpr (S::kHasScales) {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                key_scales[j] = scales_of<S>(rows, 0)[at_.lane / 4 + 8 * j];
                const float scale = scales_of<S>(rows, 1)[at_.lane / 4 + 8 * j];
                value_scales[j] = scale * kRaised<S::kKv>;
                exponents[j] = log2f(fmaxf(scale, 0x1p-60f));
            }
        }
        const bool all_visible = is_visible_to_all(begin);
#pragma unroll
        for (int n = 0; n < S::kColumns; ++n) {
            const float factor = at_.factors()[n * 4 + at_.lane % 4];
            float score[2];
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                score[j] = (scores[n][2 * j] + scores[n][2 * j + 1]) * factor * key_scales[j];
            }
            if (at_.args.softcap != 0.0f) {
                cap(score);
            }
            if (!all_visible) {
                mask(score, n, begin);
            }
            raise_top(n, fmaxf(score[0] + exponents[0], score[1] + exponents[1]));
            const float top = tops_[n] == -kInfinity ? 0.0f : tops_[n];
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const float p = exp2f(score[j] - top);
                sums_[n] += p;
                probabilities[n][j] = transpose_tile(Rows::split(p * value_scales[j]));
            }
        }
    }

    // softcap * tanh(score / softcap). A small score loses digits here, but a score is an exponent:
    // what counts is the absolute error, about 1e-7 softcap.
    __device__ void cap(float (&score)[2]) const {
        const float most = at_.args.softcap * kLog2E;
#pragma unroll
        for (float& each : score) {
            each = most - 2.0f * most / (1.0f + exp2f(each * (2.0f * kLog2E / most)));
        }
    }

    __device__ bool is_visible_to_all(int begin) const {
        const auto window = static_cast<int>(at_.args.window);
        return begin + kStepPositions <= at_.pos + 1 &&
               (!window || begin > at_.pos + at_.n_rows - 1 - window);
    }

    __device__ void mask(float (&score)[2], int n, int begin) {
        const auto window = static_cast<int>(at_.args.window);
        const int last = at_.pos + at_.row_of(n * 4 + at_.lane % 4);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const int at = begin + at_.lane / 4 + 8 * j;
            if (at > last || (window && at <= last - window)) {
                score[j] = -kInfinity;
            }
        }
    }

    // Raises the largest exponent so far, which includes the value's scale, and scales the sums
    // down to it. If nothing is larger than before, nothing changes.
    __device__ void raise_top(int n, float largest) {
        if (!__any_sync(kAllLanes, largest > tops_[n])) {
            return;
        }
#pragma unroll
        for (int distance = 4; distance < kWarp; distance *= 2) {
            largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, distance));
        }
        const float down = largest > tops_[n] ? exp2f(tops_[n] - largest) : 1.0f;
        tops_[n] = fmaxf(tops_[n], largest);
        sums_[n] *= down;
#pragma unroll
        for (int band = 0; band < S::kBands; ++band) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                out_[band][n][j] *= down;
            }
        }
    }

    __device__ void multiply_values(const uint32_t (&probabilities)[S::kColumns][2],
                                    const uint8_t* rows) {
#pragma unroll
        for (int i = 0; i < S::kWidth / 64; ++i) {
            uint32_t a[4][4];
            Rows::load_values(a, rows, i, at_.lane);
#pragma unroll
            for (int band = 0; band < 4; ++band) {
#pragma unroll
                for (int n = 0; n < S::kColumns; ++n) {
                    Rows::multiply(out_[4 * i + band][n], a[band], probabilities[n]);
                }
            }
        }
    }

    static __device__ float largest_of_warps(const float* tops) {
        float top = tops[0];
#pragma unroll
        for (int warp = 1; warp < S::kWarps; ++warp) {
            top = fmaxf(top, tops[warp * S::kQueries]);
        }
        return top;
    }

    const AttentionBlock<S>& at_;

    // The online softmax: the largest exponent, the lane's part of the sum, and sums of values
    // by element and by high or low part of a query.
    float tops_[S::kColumns];
    float sums_[S::kColumns] = {};
    float out_[S::kBands][S::kColumns][4] = {};
};

}  // namespace soliton::cuda
