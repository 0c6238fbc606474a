// Finds where the last tokens of a sequence occurred before, and drafts what followed there.
//
// Owns the tokens of the running sequence and the recent outputs of earlier ones. Knows no model
// and no Python. engine/draft/ngram_reference.py does the same in Python, for machines without
// native code.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace soliton {

// Tokens, and for every position a chain of the earlier positions with the same last tokens, newest
// first. Removing tokens from the end undoes exactly what appending them did.
class TokenHistory {
  public:
    // How many equal tokens link a chain. Long ones lead to the longest matches at once; short ones
    // find the rest.
    static constexpr std::array<int, 2> kOrders = {8, 3};

    int64_t size() const { return std::ssize(tokens_); }
    int32_t operator[](int64_t position) const { return tokens_[position]; }
    std::span<const int32_t> tokens() const { return tokens_; }
    int64_t bytes() const;  // of memory in use

    void append(int32_t token);
    void truncate(int64_t size);

    // The newest position whose last kOrders[order] tokens may equal those of `suffix` (their
    // hashes do); -1 if none.
    int32_t newest(int order, std::span<const int32_t> suffix) const;
    int32_t previous(int order, int32_t position) const { return previous_[order][position]; }

  private:
    void link(int order, int32_t position);
    void grow();

    std::vector<int32_t> tokens_;
    std::array<std::vector<int32_t>, kOrders.size()> newest_;    // per hash of the last tokens
    std::array<std::vector<int32_t>, kOrders.size()> previous_;  // per position
};

class NgramIndex {
  public:
    static constexpr int kMaxCandidates = 64;  // occurrences that are compared, newest first
    static constexpr int kMaxMatch = 32;       // longer matches count as this long
    static constexpr int kMaxVisits = 4096;    // of a chain, including hash collisions
    // A draft ends when less than this share of the occurrences continued this way.
    static constexpr double kMinShare = 0.4;
    static constexpr int64_t kBytesPerToken = 40;  // at most, including links and hash tables

    struct Found {
        int match_length = 0;    // 0: no match, so no draft
        bool is_recent = false;  // whether the match is in a recent output
        std::vector<int32_t> draft;
    };

    // `recent_bytes` limits the memory of the recent outputs.
    explicit NgramIndex(int64_t recent_bytes) : max_recent_(recent_bytes / kBytesPerToken) {}

    int64_t size() const { return own_.size(); }
    int64_t recent_size() const { return recent_.size(); }
    int64_t recent_bytes() const { return recent_.bytes(); }

    // Replaces the running sequence.
    void begin(std::span<const int32_t> tokens);
    void extend(std::span<const int32_t> tokens);
    void rollback(int64_t size) { own_.truncate(size); }

    // At most n tokens, and at most twice the length of the longest match.
    Found find(int n) const;

    // The running sequence from `n_prompt` on becomes the newest of the recent outputs; the oldest
    // are dropped.
    void keep(int64_t n_prompt);

  private:
    struct Matches {
        const TokenHistory* history = nullptr;
        int length = 0;
        int count = 0;
        std::array<int32_t, kMaxCandidates> positions;  // of the last matching token, newest first
    };

    void gather(const TokenHistory& history, int order, int32_t newest, Matches& matches) const;
    int match_length(const TokenHistory& history, int32_t position) const;
    std::vector<int32_t> follow(Matches& matches, int n) const;
    std::optional<int32_t> next_token(const Matches& matches, int i,
                                      std::span<const int32_t> draft) const;
    void make_room(int64_t n_tokens);

    TokenHistory own_;
    TokenHistory recent_;  // outputs, each preceded by a kSeparator
    int64_t max_recent_;
};

}  // namespace soliton
