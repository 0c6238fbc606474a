#include "philox.h"

namespace soliton {

double uniform(uint64_t seed, uint64_t position, uint32_t purpose, uint32_t attempt) {
    auto key0 = static_cast<uint32_t>(seed);
    auto key1 = static_cast<uint32_t>(seed >> 32);
    auto c0 = static_cast<uint32_t>(position);
    auto c1 = static_cast<uint32_t>(position >> 32);
    uint32_t c2 = attempt;
    uint32_t c3 = purpose;
    for (int round = 0; round < 10; ++round) {
        const uint64_t product0 = uint64_t{0xD2511F53} * c0;
        const uint64_t product1 = uint64_t{0xCD9E8D57} * c2;
        c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ key0;
        c1 = static_cast<uint32_t>(product1);
        c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
        c3 = static_cast<uint32_t>(product0);
        key0 += 0x9E3779B9;
        key1 += 0xBB67AE85;
    }
    const uint64_t bits = uint64_t{c0 >> 5} << 26 | c1 >> 6;
    return static_cast<double>(bits) / static_cast<double>(uint64_t{1} << 53);
}

}  // namespace soliton
