// Finds where the last tokens of a sequence occurred before, and drafts what followed there.
//
// Owns the tokens of the running sequence and the recent outputs of earlier ones. Knows no model
// and no Python. The same in Python, for machines without this: engine/draft/ngram_reference.py.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace soliton {

// Tokens, and from every position a chain to the earlier ones with the same last tokens, newest
// first. Taking tokens off the end undoes exactly what appending them did.
class TokenHistory {
  public:
    // How many equal tokens a chain is made of: the long ones lead to the longest matches at once,
    // the short ones find what else there is.
    static constexpr std::array<int, 2> kOrders = {8, 3};

    int64_t size() const { return std::ssize(tokens_); }
    int32_t operator[](int64_t position) const { return tokens_[position]; }
    std::span<const int32_t> tokens() const { return tokens_; }
    int64_t bytes() const;  // of memory

    void append(int32_t token);
    void truncate(int64_t size);

    // The newest position whose last kOrders[order] tokens may be those of `suffix`; -1: none.
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
    static constexpr int kMaxVisits = 4096;    // of a chain, among them other tokens with one hash
    // A draft ends where the share of the occurrences that went this way falls below it.
    static constexpr double kMinShare = 0.4;
    static constexpr int64_t kBytesPerToken = 40;  // at most, with its links and hash tables

    struct Found {
        int match_length = 0;  // 0: nothing, and no draft
        std::vector<int32_t> draft;
    };

    // `recent_bytes`: what the recent outputs may take.
    explicit NgramIndex(int64_t recent_bytes) : max_recent_(recent_bytes / kBytesPerToken) {}

    int64_t size() const { return own_.size(); }
    int64_t recent_size() const { return recent_.size(); }
    int64_t recent_bytes() const { return recent_.bytes(); }

    // Forgets the running sequence; this is the next.
    void begin(std::span<const int32_t> tokens);
    void append(int32_t token) { own_.append(token); }
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
    TokenHistory recent_;  // outputs, each behind a kSeparator
    int64_t max_recent_;
};

}  // namespace soliton
