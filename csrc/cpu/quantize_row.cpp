// Quantises a row of x to 8-bit codes with a scale per block, for quantised matrices. Compiled once
// per instruction set (see kernels.h), with the same result in all of them.
#include "isa/lanes.h"
#include "kernels.h"

namespace soliton::SOLITON_ISA {
namespace {

constexpr int32_t kInfinityBits = 0x7f800000;
// Below this, 127 / largest could overflow; values this small do not affect any other sum.
constexpr float kSmallest = 0x1p-100f;

#if defined(SOLITON_LANES_AVX2)
void store_words(const int8_t* codes, std::byte* words) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
    __m256i* target = reinterpret_cast<__m256i*>(words);
    _mm256_storeu_si256(target, _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8));
    _mm256_storeu_si256(target + 1, _mm256_srai_epi16(bytes, 8));
}
#else
void store_words(const int8_t*, std::byte*) {}
#endif

CodeBlock quantize_block(Floats first, Floats second, int8_t* codes) {
    // Compared as integers, magnitudes keep their order, and NaN is the largest.
    const int32_t bits = largest(larger(magnitude_bits(first), magnitude_bits(second)));
    const float magnitude = __builtin_bit_cast(float, bits);
    if (bits >= kInfinityBits || magnitude < kSmallest) {
        __builtin_memset(codes, 0, kBlockColumns);
        return {bits >= kInfinityBits ? magnitude : 0.0f, 0.0f, 0, 0};
    }
    const float scale = magnitude / 127.0f;
    const Floats inverse = broadcast(127.0f / magnitude);
    const Ints first_codes = round(multiply(first, inverse));
    const Ints second_codes = round(multiply(second, inverse));
    store_bytes(codes, first_codes);
    store_bytes(codes + kLanes, second_codes);
    // Both sums in one: they fit 16 bits.
    const int32_t sums = sum(add(first_codes, shift_left(second_codes, 16)));
    const int32_t half_sum = static_cast<int16_t>(sums);
    const int32_t total = half_sum + ((sums - half_sum) >> 16);
    return {scale, scale * static_cast<float>(total), -128 * total, half_sum};
}

}  // namespace

void quantize_row(const float* x, int64_t n_in, std::byte* out) {
    int8_t* codes = reinterpret_cast<int8_t*>(out);
    CodeBlock* blocks = reinterpret_cast<CodeBlock*>(out + blocks_for(n_in) * kBlockColumns);
    int64_t k = 0;
    for (; k + kBlockColumns <= n_in; k += kBlockColumns) {
        *blocks++ = quantize_block(load(x + k), load(x + k + kLanes), codes + k);
    }
    if (k < n_in) {
        float rest[kBlockColumns] = {};
        __builtin_memcpy(rest, x + k, (n_in - k) * sizeof(float));
        *blocks = quantize_block(load(rest), load(rest + kLanes), codes + k);
    }
    std::byte* words = out + words_at(n_in);
    for (int64_t b = 0; b < blocks_for(n_in); ++b) {
        store_words(codes + b * kBlockColumns, words + b * kBlockWordBytes);
    }
}

}  // namespace soliton::SOLITON_ISA
