#include "ngram_index.h"

#include <algorithm>
#include <utility>

namespace soliton {
namespace {

constexpr int32_t kSeparator = -1;  // equals no token
constexpr size_t kSmallestTable = 256;

// `table_size` is a power of two.
size_t slot_of(std::span<const int32_t> tokens, size_t table_size) {
    uint64_t hash = 0;
    for (const int32_t token : tokens) {
        hash = (hash ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    return static_cast<size_t>(hash) & (table_size - 1);
}

}  // namespace

int64_t TokenHistory::bytes() const {
    size_t words = tokens_.capacity();
    for (size_t order = 0; order < kOrders.size(); ++order) {
        words += newest_[order].capacity() + previous_[order].capacity();
    }
    return static_cast<int64_t>(words * sizeof(int32_t));
}

void TokenHistory::append(int32_t token) {
    if (tokens_.size() == newest_[0].size()) {
        grow();
    }
    tokens_.push_back(token);
    for (int order = 0; order < std::ssize(kOrders); ++order) {
        previous_[order].push_back(-1);
        link(order, static_cast<int32_t>(tokens_.size() - 1));
    }
}

void TokenHistory::truncate(int64_t size) {
    while (std::ssize(tokens_) > size) {
        for (int order = 0; order < std::ssize(kOrders); ++order) {
            if (std::ssize(tokens_) >= kOrders[order]) {
                const auto last = tokens().last(kOrders[order]);
                newest_[order][slot_of(last, newest_[order].size())] = previous_[order].back();
            }
            previous_[order].pop_back();
        }
        tokens_.pop_back();
    }
}

int32_t TokenHistory::newest(int order, std::span<const int32_t> suffix) const {
    const auto& table = newest_[order];
    return table.empty() ? -1 : table[slot_of(suffix.last(kOrders[order]), table.size())];
}

void TokenHistory::link(int order, int32_t position) {
    const int length = kOrders[order];
    if (position + 1 < length) {
        return;
    }
    auto& table = newest_[order];
    int32_t& newest = table[slot_of(tokens().subspan(position + 1 - length, length), table.size())];
    previous_[order][position] = newest;
    newest = position;
}

void TokenHistory::grow() {
    const size_t size = std::max(kSmallestTable, 2 * newest_[0].size());
    tokens_.reserve(size);
    for (int order = 0; order < std::ssize(kOrders); ++order) {
        previous_[order].reserve(size);
        newest_[order].assign(size, -1);
        for (int32_t position = 0; position < std::ssize(tokens_); ++position) {
            link(order, position);
        }
    }
}

void NgramIndex::begin(std::span<const int32_t> tokens) {
    own_ = TokenHistory();
    extend(tokens);
}

void NgramIndex::extend(std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) {
        own_.append(token);
    }
}

NgramIndex::Found NgramIndex::find(int n) const {
    for (int order = 0; order < std::ssize(TokenHistory::kOrders); ++order) {
        if (own_.size() < TokenHistory::kOrders[order]) {
            continue;
        }
        const auto last = static_cast<int32_t>(own_.size() - 1);
        Matches matches;
        Matches recent;
        gather(own_, order, own_.previous(order, last), matches);
        gather(recent_, order, recent_.newest(order, own_.tokens()), recent);
        const bool is_recent = recent.length > matches.length;
        if (is_recent) {
            matches = recent;
        }
        if (matches.length > 0) {
            return {matches.length, is_recent, follow(matches, std::min(n, 2 * matches.length))};
        }
    }
    return {};
}

// The longest matches along a chain.
void NgramIndex::gather(const TokenHistory& history, int order, int32_t newest,
                        Matches& matches) const {
    matches.history = &history;
    int candidates = 0;
    int32_t position = newest;
    for (int visits = 0; visits < kMaxVisits && position >= 0; ++visits) {
        const int length = match_length(history, position);
        if (length >= TokenHistory::kOrders[order]) {
            if (length > matches.length) {
                matches.length = length;
                matches.count = 0;
            }
            if (length == matches.length) {
                matches.positions[matches.count++] = position;
            }
            if (++candidates == kMaxCandidates) {
                break;
            }
        }
        position = history.previous(order, position);
    }
}

int NgramIndex::match_length(const TokenHistory& history, int32_t position) const {
    const int64_t last = own_.size() - 1;
    const int64_t most = std::min<int64_t>({kMaxMatch, last + 1, position + 1});
    int64_t length = 0;
    while (length < most && history[position - length] == own_[last - length]) {
        ++length;
    }
    return static_cast<int>(length);
}

// Token by token, what most matches continue with; a tie goes to the newest match. Matches that
// continued otherwise no longer count.
std::vector<int32_t> NgramIndex::follow(Matches& matches, int n) const {
    struct Vote {
        int32_t token;
        int count;
    };
    std::vector<int32_t> draft;
    std::vector<Vote> votes;
    double share = 1.0;
    while (std::ssize(draft) < n) {
        votes.clear();
        int voters = 0;
        for (int i = 0; i < matches.count; ++i) {
            const auto token = next_token(matches, i, draft);
            if (!token) {
                continue;
            }
            ++voters;
            const auto vote = std::ranges::find(votes, *token, &Vote::token);
            if (vote != votes.end()) {
                ++vote->count;
            } else {
                votes.push_back({*token, 1});
            }
        }
        if (voters == 0) {
            break;
        }
        const Vote most = *std::ranges::max_element(votes, {}, &Vote::count);
        share *= static_cast<double>(most.count) / voters;
        if (share < kMinShare) {
            break;
        }
        int kept = 0;
        for (int i = 0; i < matches.count; ++i) {
            if (next_token(matches, i, draft) == most.token) {
                matches.positions[kept++] = matches.positions[i];
            }
        }
        matches.count = kept;
        draft.push_back(most.token);
    }
    return draft;
}

// The token that follows match i and std::ssize(draft) more tokens. The running sequence continues
// with the draft itself.
std::optional<int32_t> NgramIndex::next_token(const Matches& matches, int i,
                                              std::span<const int32_t> draft) const {
    const TokenHistory& history = *matches.history;
    const int64_t next = matches.positions[i] + 1 + std::ssize(draft);
    if (next < history.size()) {
        const int32_t token = history[next];
        return token == kSeparator ? std::nullopt : std::optional(token);
    }
    return &history == &own_ ? std::optional(draft[next - history.size()]) : std::nullopt;
}

void NgramIndex::keep(int64_t n_prompt) {
    const auto tokens = own_.tokens();
    const auto output = tokens.subspan(std::min<size_t>(n_prompt, tokens.size()));
    if (output.empty() || max_recent_ < static_cast<int64_t>(kSmallestTable)) {
        return;
    }
    // An output that would take more than half of the room keeps only its end.
    const auto kept = output.last(std::min<size_t>(output.size(), max_recent_ / 2 - 1));
    make_room(std::ssize(kept) + 1);
    recent_.append(kSeparator);
    for (const int32_t token : kept) {
        recent_.append(token);
    }
}

// If n_tokens do not fit, drops the oldest outputs until half of the room is free. The remaining
// ones must be linked again, so this should be rare.
void NgramIndex::make_room(int64_t n_tokens) {
    if (recent_.size() + n_tokens <= max_recent_) {
        return;
    }
    const auto tokens = recent_.tokens();
    const auto newest = tokens.last(max_recent_ / 2);
    const auto begin = std::ranges::find(newest, kSeparator);
    TokenHistory remaining;
    for (const int32_t token : newest.subspan(begin - newest.begin())) {
        remaining.append(token);
    }
    recent_ = std::move(remaining);
}

}  // namespace soliton
