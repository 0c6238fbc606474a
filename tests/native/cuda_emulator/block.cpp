#include "block.h"

#include <link.h>
#include <sys/mman.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace soliton::emulator {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kSharedPages = (kMaxSharedBytes + kPage - 1) / kPage;
constexpr size_t kFrontBytes = 1024;  // before dynamic shared memory, checked for writes
constexpr int kPoison = 0xff;         // NaN in every float format
constexpr int kFront = 0xa5;

// Ensures that the module has thread_local storage, and that the running thread has allocated its
// part.
thread_local volatile char marker;

std::byte* map_pages(size_t n_bytes) {
    void* pages = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) {
        throw std::bad_alloc();
    }
    return static_cast<std::byte*>(pages);
}

std::string triple(const uint3& index) {
    return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " +
           std::to_string(index.z) + ")";
}

const char* name(Meeting meeting) {
    switch (meeting) {
        case Meeting::kShuffle:
            return "a shuffle";
        case Meeting::kVote:
            return "a vote";
        case Meeting::kSyncWarp:
            return "__syncwarp";
        case Meeting::kMultiply:
            return "a matrix product";
        case Meeting::kLoadTransposed:
            return "load_transposed";
        case Meeting::kTranspose:
            return "transpose_tile";
    }
    return "?";
}

bool same_place(const Where& a, const Where& b) {
    return a.line() == b.line() && std::strcmp(a.file_name(), b.file_name()) == 0;
}

}  // namespace

std::string to_string(const Where& where) {
    const char* file = std::strrchr(where.file_name(), '/');
    return std::string(file != nullptr ? file + 1 : where.file_name()) + ":" +
           std::to_string(where.line());
}

uint64_t Random::next() {  // splitmix64
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

Workspace::Workspace() {
    stacks_ = map_pages(kMaxThreads * kStackBytes);
    for (unsigned i = 0; i < kMaxThreads; ++i) {
        mprotect(stacks_ + i * kStackBytes, kPage, PROT_NONE);
    }
    shared_ = map_pages((kSharedPages + 2) * kPage);
    mprotect(shared_, kPage, PROT_NONE);
    mprotect(shared_end(), kPage, PROT_NONE);
}

Workspace::~Workspace() {
    munmap(stacks_, kMaxThreads * kStackBytes);
    munmap(shared_, (kSharedPages + 2) * kPage);
}

std::byte* Workspace::stack(unsigned thread) const {
    return stacks_ + thread * kStackBytes;
}

std::byte* Workspace::shared_end() const {
    return shared_ + (kSharedPages + 1) * kPage;
}

const char* Workspace::forbidden(const void* address) const {
    const auto* at = static_cast<const std::byte*>(address);
    if (at >= stacks_ && at < stacks_ + kMaxThreads * kStackBytes) {
        return "the stack is too small";
    }
    if (at >= shared_ && at < shared_end() + kPage) {
        return "outside of dynamic shared memory";
    }
    return nullptr;
}

Statics find_statics() {
    marker = 0;
    Statics found = {nullptr, 0};
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* result) {
            const auto here = reinterpret_cast<uintptr_t>(&find_statics);
            bool is_this_module = false;
            size_t n_bytes = 0;
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                const auto& part = info->dlpi_phdr[i];
                const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
                is_this_module |=
                    part.p_type == PT_LOAD && here >= begin && here < begin + part.p_memsz;
                if (part.p_type == PT_TLS) {
                    n_bytes = part.p_memsz;
                }
            }
            if (is_this_module && info->dlpi_tls_data != nullptr) {
                *static_cast<Statics*>(result) = {static_cast<std::byte*>(info->dlpi_tls_data),
                                                  n_bytes};
            }
            return 0;
        },
        &found);
    return found;
}

Block* Block::running_block = nullptr;

Block::Block(const Grid& grid, uint3 index, Workspace& workspace, Statics statics, uint64_t seed,
             bool is_previous_done)
    : grid_(grid),
      index_(index),
      workspace_(workspace),
      statics_(statics),
      random_(seed),
      is_previous_done_(is_previous_done),
      shared_(workspace.shared_end() - (grid.shared_bytes + 15) / 16 * 16),
      fibers_(grid.block.count()),
      ready_((fibers_.size() + kLanes - 1) / kLanes, 0) {
    std::memset(shared_, kPoison, static_cast<size_t>(workspace.shared_end() - shared_));
    std::memset(shared_ - kFrontBytes, kFront, kFrontBytes);
    std::memset(statics_.begin, kPoison, statics_.n_bytes);
    for (unsigned i = 0; i < fibers_.size(); ++i) {
        const Extent& block = grid_.block;
        fibers_[i].index = {i % block.x, i / block.x % block.y, i / block.x / block.y};
        prepare(fibers_[i].context, workspace_.stack(i), Workspace::kStackBytes, &fiber_main);
        make_ready(i);
    }
}

void Block::fiber_main() {
    Block& block = *running_block;
    block.grid_.kernel();
    block.end_of_thread();
    std::abort();  // a thread that has ended is never resumed
}

void Block::make_ready(unsigned thread) {
    fibers_[thread].state = State::kReady;
    ready_[thread / kLanes] |= 1u << thread % kLanes;
}

// Mostly chooses the warp that ran last, so that warps drift apart. Returns the number of threads
// if none is ready.
unsigned Block::choose() {
    const auto n_warps = static_cast<unsigned>(ready_.size());
    if (ready_[warp_] == 0 || random_.below(8) == 0) {
        const unsigned first = random_.below(n_warps);
        unsigned i = 0;
        while (i < n_warps && ready_[(first + i) % n_warps] == 0) {
            ++i;
        }
        if (i == n_warps) {
            return static_cast<unsigned>(fibers_.size());
        }
        warp_ = (first + i) % n_warps;
    }
    const auto turn = static_cast<int>(random_.below(kLanes));
    const unsigned lane = (static_cast<unsigned>(std::countr_zero(std::rotr(ready_[warp_], turn))) +
                           static_cast<unsigned>(turn)) %
                          kLanes;
    return warp_ * kLanes + lane;
}

Block::Progress Block::run() {
    running_block = this;
    blockIdx = index_;
    blockDim = {grid_.block.x, grid_.block.y, grid_.block.z};
    gridDim = {grid_.grid.x, grid_.grid.y, grid_.grid.z};
    for (;;) {
        running_ = choose();
        if (running_ == fibers_.size()) {
            break;
        }
        Fiber& fiber = fibers_[running_];
        ready_[warp_] &= ~(1u << running_ % kLanes);
        threadIdx = fiber.index;
        switch_context(scheduler_, fiber.context);
        if (!failure_.empty()) {
            running_block = nullptr;
            return Progress::kFailed;
        }
    }
    running_block = nullptr;
    if (n_ended_ == fibers_.size()) {
        for (size_t i = 1; i <= kFrontBytes; ++i) {
            if (shared_[-static_cast<ptrdiff_t>(i)] != std::byte{kFront}) {
                failure_ = "block " + triple(index_) + " wrote before its dynamic shared memory";
                return Progress::kFailed;
            }
        }
        return Progress::kEnded;
    }
    for (const Fiber& fiber : fibers_) {
        if (fiber.state == State::kWaitsForPrevious) {
            return Progress::kWaitsForPreviousGrid;
        }
    }
    failure_ = "block " + triple(index_) + ": no thread can continue: " + who_waits();
    return Progress::kFailed;
}

void Block::previous_is_done() {
    is_previous_done_ = true;
    for (unsigned i = 0; i < fibers_.size(); ++i) {
        if (fibers_[i].state == State::kWaitsForPrevious) {
            make_ready(i);
        }
    }
}

void Block::put_statics_aside() {
    statics_aside_.assign(statics_.begin, statics_.begin + statics_.n_bytes);
}

void Block::take_statics_back() {
    std::memcpy(statics_.begin, statics_aside_.data(), statics_aside_.size());
}

void Block::give_way() {
    switch_context(fibers_[running_].context, scheduler_);
}

void Block::end_of_thread() {
    fibers_[running_].state = State::kEnded;
    fibers_[running_].copies.clear();
    ++n_ended_;
    settle_without(running_);
    open_barrier_if_full();
    give_way();
}

void Block::barrier(const Where& where) {
    Fiber& fiber = fibers_[running_];
    fiber.state = State::kAtBarrier;
    fiber.where = where;
    ++n_at_barrier_;
    open_barrier_if_full();
    give_way();
}

void Block::open_barrier_if_full() {
    if (n_at_barrier_ == 0 || n_at_barrier_ + n_ended_ < fibers_.size()) {
        return;
    }
    const Fiber* first = nullptr;
    for (const Fiber& fiber : fibers_) {
        if (fiber.state == State::kAtBarrier) {
            first = first == nullptr ? &fiber : first;
            if (!same_place(first->where, fiber.where)) {
                fail("threads of the block are at different barriers: " + who_waits());
            }
        }
    }
    n_at_barrier_ = 0;
    for (unsigned i = 0; i < fibers_.size(); ++i) {
        if (fibers_[i].state == State::kAtBarrier) {
            make_ready(i);
        }
    }
}

void Block::meet(Meeting meeting, unsigned mask, void* mine, void (*settle)(void* const (&)[32]),
                 const Where& where) {
    Fiber& fiber = fibers_[running_];
    if ((mask >> running_ % kLanes & 1) == 0) {
        fail(std::string(name(meeting)) + " at " + to_string(where) +
             ": the lane itself is not in the mask");
    }
    fiber.state = State::kMeets;
    fiber.meeting = meeting;
    fiber.mask = mask;
    fiber.mine = mine;
    fiber.settle = settle;
    fiber.where = where;
    settle_if_all_are_there(running_ / kLanes, fiber);
    give_way();
}

void Block::settle_if_all_are_there(unsigned warp, const Fiber& asks) {
    void* lanes[kLanes] = {};
    bool is_whole = true;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        const unsigned thread = warp * kLanes + lane;
        if ((asks.mask >> lane & 1) == 0) {
            is_whole = false;
            continue;
        }
        if (thread >= fibers_.size() || fibers_[thread].state == State::kEnded) {
            is_whole = false;
            continue;
        }
        const Fiber& other = fibers_[thread];
        if (other.state != State::kMeets || other.meeting != asks.meeting ||
            other.mask != asks.mask || !same_place(other.where, asks.where)) {
            return;
        }
        lanes[lane] = other.mine;
    }
    const bool needs_all = asks.meeting == Meeting::kMultiply ||
                           asks.meeting == Meeting::kLoadTransposed ||
                           asks.meeting == Meeting::kTranspose;
    if (needs_all && !is_whole) {
        fail(std::string(name(asks.meeting)) + " at " + to_string(asks.where) +
             ": lanes of the warp have ended");
    }
    asks.settle(lanes);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        if (lanes[lane] != nullptr) {
            make_ready(warp * kLanes + lane);
        }
    }
}

// Lanes of its warp may have been waiting only for the thread that has ended.
void Block::settle_without(unsigned ended_thread) {
    const unsigned warp = ended_thread / kLanes;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        const unsigned thread = warp * kLanes + lane;
        if (thread < fibers_.size() && fibers_[thread].state == State::kMeets) {
            settle_if_all_are_there(warp, fibers_[thread]);
        }
    }
}

void Block::wait_for_previous() {
    has_waited_ = true;
    if (!is_previous_done_) {
        fibers_[running_].state = State::kWaitsForPrevious;
        give_way();
    }
}

bool Block::is_shared(const void* address, size_t n_bytes) const {
    const auto* at = static_cast<const std::byte*>(address);
    return (at >= shared_ && at + n_bytes <= shared_ + grid_.shared_bytes) ||
           (at >= statics_.begin && at + n_bytes <= statics_.begin + statics_.n_bytes);
}

void Block::copy_async(void* to, const void* from, bool valid) {
    constexpr size_t kBytes = 16;
    std::memset(to, kPoison, kBytes);
    Fiber& fiber = fibers_[running_];
    fiber.copies.push_back({to, from, valid, fiber.n_groups});
}

void Block::commit_copies() {
    ++fibers_[running_].n_groups;
}

void Block::wait_for_copies(int n_pending) {
    constexpr size_t kBytes = 16;
    Fiber& fiber = fibers_[running_];
    size_t n_done = 0;
    for (const Copy& copy : fiber.copies) {
        if (copy.group >= fiber.n_groups - n_pending) {
            break;
        }
        if (copy.valid) {
            std::memcpy(copy.to, copy.from, kBytes);
        } else {
            std::memset(copy.to, 0, kBytes);
        }
        ++n_done;
    }
    fiber.copies.erase(fiber.copies.begin(), fiber.copies.begin() + static_cast<ptrdiff_t>(n_done));
}

void Block::fail(const std::string& what) {
    failure_ =
        "block " + triple(index_) + ", thread " + triple(fibers_[running_].index) + ": " + what;
    give_way();
    std::abort();  // a block that has failed is never resumed
}

std::string Block::who_waits() const {
    std::map<std::string, std::vector<unsigned>> waiting;
    for (unsigned i = 0; i < fibers_.size(); ++i) {
        const Fiber& fiber = fibers_[i];
        if (fiber.state == State::kAtBarrier) {
            waiting["at the barrier of " + to_string(fiber.where)].push_back(i);
        } else if (fiber.state == State::kMeets) {
            char mask[16];
            std::snprintf(mask, sizeof mask, "%08x", fiber.mask);
            waiting[std::string("in ") + name(fiber.meeting) + " of mask " + mask + " at " +
                    to_string(fiber.where)]
                .push_back(i);
        } else if (fiber.state == State::kEnded) {
            waiting["ended"].push_back(i);
        }
    }
    std::string said;
    for (const auto& [what, threads] : waiting) {
        said += (said.empty() ? "" : "; ") + std::to_string(threads.size()) + " threads, first " +
                triple(fibers_[threads.front()].index) + ", last " +
                triple(fibers_[threads.back()].index) + ": " + what;
    }
    return said;
}

}  // namespace soliton::emulator
