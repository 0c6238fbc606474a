// Which instruction set's kernels run. Compiled for the baseline.
#include <cstring>

#include "kernels.h"

#ifdef SOLITON_X86
#include <cpuid.h>
#endif
#ifdef SOLITON_ARM64
#include <sys/auxv.h>
#endif

// One table per instruction set, with the functions that its copy of the kernel files defines.
#define SOLITON_DECLARE_KERNELS(name)                                                           \
    namespace name {                                                                            \
    WeightIndex pack(const PackArgs&);                                                          \
    void norm_row(const float*, const float*, float, int64_t, float*);                          \
    void layer_norm_row(const float*, const Norm&, int64_t, float*);                            \
    void quantize_row(const float*, int64_t, std::byte*);                                       \
    void multiply_units(const MultiplyArgs&);                                                   \
    uint64_t sum_words(const uint64_t*, int64_t);                                               \
    void sum_tile(const float*, int64_t, float, float*, TileSums&);                             \
    void group_maxima(const float*, int64_t, float*);                                           \
    int64_t first_largest(const float*, int64_t);                                               \
    int64_t count_before(const float*, int64_t, const float*, float, int64_t);                  \
    double total_mass(const float*, int64_t, Softmax);                                          \
    Moments moments(const float*, int64_t, Softmax);                                            \
    void apply_mask(const int32_t*, int64_t, float*);                                           \
    int64_t collect(const float*, int64_t, const float*, float, int32_t*);                      \
    void fill_histogram(const float*, int64_t, Softmax, float, Histogram&);                     \
    int64_t collect_bucket(const float*, int64_t, Softmax, float, int, int32_t*);               \
    void store_keys_values(const AttentionArgs&, int64_t, int64_t, int64_t, int64_t);           \
    void load_queries(const AttentionArgs&, const QueryTile&, AttentionWork&);                  \
    void attend_block(const AttentionArgs&, const QueryTile&, int64_t, AttentionWork&, float*); \
    void merge_record(float*, const float*, int64_t);                                           \
    void finish_record(const AttentionArgs&, const float*, const float*, float*);               \
    void conv_row(const ConvRow&);                                                              \
    void unit_row(float*, int64_t, float, float);                                               \
    void delta_step(const DeltaStep&);                                                          \
    void ssm_step(const SsmStep&);                                                              \
    void gate_row(const float*, const float*, int64_t, bool, float*);                           \
    constexpr CpuKernels kKernels = {#name,          pack,           norm_row,                  \
                                     layer_norm_row, quantize_row,   multiply_units,            \
                                     sum_words,      sum_tile,       group_maxima,              \
                                     first_largest,  count_before,   total_mass,                \
                                     moments,        apply_mask,     collect,                   \
                                     fill_histogram, collect_bucket, store_keys_values,         \
                                     load_queries,   attend_block,   merge_record,              \
                                     finish_record,  conv_row,       unit_row,                  \
                                     delta_step,     ssm_step,       gate_row};                 \
    }

namespace soliton {

SOLITON_DECLARE_KERNELS(baseline)
#ifdef SOLITON_X86
SOLITON_DECLARE_KERNELS(avx2)
SOLITON_DECLARE_KERNELS(avx512)
#endif
#ifdef SOLITON_ARM64
SOLITON_DECLARE_KERNELS(neon)
SOLITON_DECLARE_KERNELS(neon_dotprod)
#endif

namespace {

#ifdef SOLITON_X86
// What the processor has and the system saves. Not __builtin_cpu_supports: zig's runtime answers no
// to everything.
struct X86Features {
    bool avx2 = false;    // with fma and f16c
    bool avx512 = false;  // f, bw, dq, vl and vnni

    X86Features() {
        unsigned eax = 0;
        unsigned ebx = 0;
        unsigned ecx = 0;
        unsigned edx = 0;
        constexpr unsigned kFirst = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
        if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & kFirst) != kFirst ||
            !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
            return;
        }
        unsigned saved = 0;
        unsigned high = 0;
        __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
        constexpr unsigned kYmm = 0x06;
        constexpr unsigned kZmm = 0xe6;
        constexpr unsigned k512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
        avx2 = (saved & kYmm) == kYmm && (ebx & bit_AVX2);
        avx512 = (saved & kZmm) == kZmm && (ebx & k512) == k512 && (ecx & bit_AVX512VNNI);
    }
};
#endif

struct Supported {
    const CpuKernels* tables[3] = {};
    int count = 0;

    Supported() {
#ifdef SOLITON_X86
        const X86Features features;
        if (features.avx2 && features.avx512) {
            tables[count++] = &avx512::kKernels;
        }
        if (features.avx2) {
            tables[count++] = &avx2::kKernels;
        }
#endif
#ifdef SOLITON_ARM64
        // Everything that -march=armv8.2-a+dotprod lets a compiler use.
        constexpr unsigned long kDotprod =
            HWCAP_ASIMDDP | HWCAP_ASIMDRDM | HWCAP_ATOMICS | HWCAP_CRC32;
        if ((getauxval(AT_HWCAP) & kDotprod) == kDotprod) {
            tables[count++] = &neon_dotprod::kKernels;
        }
        tables[count++] = &neon::kKernels;
#endif
        tables[count++] = &baseline::kKernels;
    }
};

const Supported supported;
const CpuKernels* selected = supported.tables[0];

}  // namespace

const CpuKernels& cpu_kernels() {
    return *selected;
}

const char* supported_isa(int n) {
    return n < supported.count ? supported.tables[n]->isa : nullptr;
}

bool select_isa(const char* isa) {
    for (int i = 0; i < supported.count; ++i) {
        if (std::strcmp(supported.tables[i]->isa, isa) == 0) {
            selected = supported.tables[i];
            return true;
        }
    }
    return false;
}

}  // namespace soliton
