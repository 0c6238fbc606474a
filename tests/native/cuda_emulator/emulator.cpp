#include "emulator.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "block.h"

namespace soliton::emulator {
namespace {

constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
constexpr size_t kSignalStackBytes = 64 * 1024;

std::string place_of(const void* instruction) {
    Dl_info module = {};
    if (instruction == nullptr || dladdr(instruction, &module) == 0) {
        return "";
    }
    char place[512];
    std::snprintf(place, sizeof place, " (addr2line -ife %s 0x%zx)", module.dli_fname,
                  static_cast<size_t>(static_cast<const char*>(instruction) -
                                      static_cast<const char*>(module.dli_fbase)));
    return place;
}

void on_fault(int signal, siginfo_t* info, [[maybe_unused]] void* context) {
    Block* block = Block::running_block;
    if (block == nullptr) {  // not a kernel's fault: repeat it with the default action
        ::signal(signal, SIG_DFL);
        return;
    }
    const void* instruction = nullptr;
#if defined(__x86_64__)
    instruction = reinterpret_cast<const void*>(
        static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#endif
    std::string what;
    if (signal == SIGILL) {
        what = "an index out of range or a misaligned address";
    } else if (signal == SIGFPE) {
        what = "an integer was divided by 0";
    } else {
        const char* forbidden = block->forbidden(info->si_addr);
        char address[32];
        std::snprintf(address, sizeof address, "%p", info->si_addr);
        what = forbidden != nullptr
                   ? std::string("a bad address: ") + forbidden
                   : "a bad address: " + std::string(address) + " (nil: or a misaligned one)";
    }
    block->fail(what + place_of(instruction));
}

// While this object lives, faults end the kernel instead of the process.
class Faults {
  public:
    Faults() : stack_(kSignalStackBytes) {
        stack_t stack = {};
        stack.ss_sp = stack_.data();
        stack.ss_size = stack_.size();
        sigaltstack(&stack, &old_stack_);
        struct sigaction action = {};
        action.sa_sigaction = &on_fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        for (size_t i = 0; i < std::size(kFaults); ++i) {
            sigaction(kFaults[i], &action, &old_[i]);
        }
    }
    ~Faults() {
        for (size_t i = 0; i < std::size(kFaults); ++i) {
            sigaction(kFaults[i], &old_[i], nullptr);
        }
        sigaltstack(&old_stack_, nullptr);
    }
    Faults(const Faults&) = delete;
    Faults& operator=(const Faults&) = delete;

  private:
    std::vector<std::byte> stack_;
    stack_t old_stack_;
    struct sigaction old_[std::size(kFaults)];
};

uint64_t seed() {
    const char* value = std::getenv("SOLITON_CUDA_EMULATOR_SEED");
    return value == nullptr ? 0 : std::strtoull(value, nullptr, 10);
}

uint3 index_of(uint64_t block, const Extent& grid) {
    return {static_cast<unsigned>(block % grid.x), static_cast<unsigned>(block / grid.x % grid.y),
            static_cast<unsigned>(block / grid.x / grid.y)};
}

// One for the running grid, one for the first block of the next grid.
Workspace& workspace(int i) {
    static Workspace workspaces[2];
    return workspaces[i];
}

// A block of the next grid, which has run up to its wait, and the workspace of that grid.
struct Ahead {
    std::unique_ptr<Block> block;
    uint64_t index = 0;
    int workspace = 0;
};
Ahead ahead;

// Restores thread_local variables of the module's other code when the grid has ended.
class StaticsKept {
  public:
    explicit StaticsKept(Statics statics)
        : statics_(statics), bytes_(statics.begin, statics.begin + statics.n_bytes) {}
    ~StaticsKept() { std::copy(bytes_.begin(), bytes_.end(), statics_.begin); }
    StaticsKept(const StaticsKept&) = delete;
    StaticsKept& operator=(const StaticsKept&) = delete;

  private:
    const Statics statics_;
    const std::vector<std::byte> bytes_;
};

}  // namespace

std::string run(const Grid& grid, const Grid* next) {
    const Faults faults;
    const Statics statics = find_statics();
    const StaticsKept kept(statics);
    const auto failed = [](const Grid& of, const std::string& what) {
        ahead.block = nullptr;
        return "the kernel launched at " + to_string(of.launched_at) + " in " +
               of.launched_at.function_name() + ": " + what;
    };

    std::unique_ptr<Block> begun = std::move(ahead.block);
    const uint64_t begun_index = ahead.index;
    Workspace& here = workspace(ahead.workspace);
    Random random(seed());
    if (next != nullptr && next->may_overlap) {
        if (begun != nullptr) {
            begun->put_statics_aside();
        }
        ahead.workspace = 1 - ahead.workspace;
        ahead.index = random.below(static_cast<uint32_t>(next->grid.count()));
        ahead.block = std::make_unique<Block>(*next, index_of(ahead.index, next->grid),
                                              workspace(ahead.workspace), statics, seed(), false);
        if (ahead.block->run() == Block::Progress::kFailed) {
            return failed(*next, ahead.block->failure());
        }
        ahead.block->put_statics_aside();
    }

    const uint64_t n_blocks = grid.grid.count();
    std::vector<uint64_t> order(n_blocks);
    std::iota(order.begin(), order.end(), uint64_t{0});
    // A block that has begun keeps its shared memory, so it continues before others use that
    // memory.
    const uint64_t n_begun = begun != nullptr ? 1 : 0;
    if (begun != nullptr) {
        std::swap(order[0], order[begun_index]);
    }
    for (uint64_t i = n_blocks; i > n_begun + 1; --i) {
        const uint64_t other = n_begun + random.below(static_cast<uint32_t>(i - n_begun));
        std::swap(order[i - 1], order[other]);
    }
    bool has_waited = false;
    for (const uint64_t i : order) {
        std::unique_ptr<Block> block = std::move(begun);
        if (block != nullptr) {
            block->take_statics_back();
            block->previous_is_done();
        } else {
            block = std::make_unique<Block>(grid, index_of(i, grid.grid), here, statics, seed() + i,
                                            true);
        }
        if (block->run() != Block::Progress::kEnded) {
            return failed(grid, block->failure());
        }
        has_waited |= block->has_waited_for_previous();
    }
    if (grid.may_overlap && !has_waited) {
        return failed(grid, "no thread waited for the launch before this one");
    }
    return "";
}

// ---- For the threads of a grid. ----

void meet(Meeting meeting, unsigned mask, void* mine, void (*settle)(void* const (&)[32]),
          const Where& where) {
    Block::running_block->meet(meeting, mask, mine, settle, where);
}

void barrier(const Where& where) {
    Block::running_block->barrier(where);
}

void wait_for_previous_grid() {
    Block::running_block->wait_for_previous();
}

void copy_async(void* shared, const void* global, bool valid, const Where& where) {
    expect_shared(shared, where);
    expect_aligned(global, where);
    Block::running_block->copy_async(shared, global, valid);
}

void commit_copies() {
    Block::running_block->commit_copies();
}

void wait_for_copies(int n_pending) {
    Block::running_block->wait_for_copies(n_pending);
}

std::byte* shared_memory() {
    return Block::running_block->shared();
}

unsigned lane() {
    return Block::running_block->running_lane();
}

void expect_aligned(const void* address, const Where& where) {
    if (reinterpret_cast<uintptr_t>(address) % 16 != 0) {
        Block::running_block->fail("a misaligned address at " + to_string(where));
    }
}

void expect_shared(const void* address, const Where& where) {
    expect_aligned(address, where);
    if (!Block::running_block->is_shared(address, 16)) {
        Block::running_block->fail("outside of the block's shared memory at " + to_string(where));
    }
}

}  // namespace soliton::emulator
