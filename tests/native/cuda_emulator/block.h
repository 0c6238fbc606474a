// One block of a grid while it runs: its fibers, what each waits for, and its shared memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "context.h"
#include "cuda_runtime.h"
#include "emulator.h"

namespace soliton::emulator {

inline constexpr unsigned kLanes = 32;
inline constexpr unsigned kMaxThreads = 1024;
inline constexpr size_t kMaxSharedBytes = 227 * 1024;

class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next();
    // In [0, n).
    uint32_t below(uint32_t n) { return static_cast<uint32_t>((next() >> 32) * n >> 32); }

  private:
    uint64_t state_;
};

// Stacks for the fibers of a block and its dynamic shared memory, surrounded by guard pages. Reused
// from block to block.
class Workspace {
  public:
    Workspace();
    ~Workspace();
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;

    std::byte* stack(unsigned thread) const;
    std::byte* shared_end() const;
    // A description of the guard page at this address; null if it is not one of this workspace.
    const char* forbidden(const void* address) const;

    static constexpr size_t kStackBytes = 128 * 1024;

  private:
    std::byte* stacks_;
    std::byte* shared_;
};

// The module's `static thread_local` variables in the running OS thread, which are the kernels'
// __shared__ variables.
struct Statics {
    std::byte* begin;
    size_t n_bytes;
};
Statics find_statics();

class Block {
  public:
    enum class Progress { kEnded, kWaitsForPreviousGrid, kFailed };

    Block(const Grid& grid, uint3 index, Workspace& workspace, Statics statics, uint64_t seed,
          bool is_previous_done);

    // Runs until the end, or until no thread can continue before the previous grid has ended.
    Progress run();
    void previous_is_done();

    // Saves static shared memory, which has one place for all blocks.
    void put_statics_aside();
    void take_statics_back();

    bool has_waited_for_previous() const { return has_waited_; }
    const std::string& failure() const { return failure_; }

    // Requests of the running thread.
    void meet(Meeting meeting, unsigned mask, void* mine, void (*settle)(void* const (&)[32]),
              const Where& where);
    void barrier(const Where& where);
    void wait_for_previous();
    void copy_async(void* to, const void* from, bool valid);
    void commit_copies();
    void wait_for_copies(int n_pending);
    std::byte* shared() const { return shared_; }
    bool is_shared(const void* address, size_t n_bytes) const;
    unsigned running_lane() const { return running_ % kLanes; }
    [[noreturn]] void fail(const std::string& what);
    const char* forbidden(const void* address) const { return workspace_.forbidden(address); }

    // The block whose thread is running, or null.
    static Block* running_block;

  private:
    enum class State : uint8_t { kReady, kMeets, kAtBarrier, kWaitsForPrevious, kEnded };

    struct Copy {
        void* to;
        const void* from;
        bool valid;
        int group;
    };

    struct Fiber {
        Context context;
        uint3 index;
        State state = State::kReady;
        Meeting meeting;
        unsigned mask;
        void* mine;
        void (*settle)(void* const (&)[32]);
        Where where;
        std::vector<Copy> copies;
        int n_groups = 0;  // committed groups
    };

    static void fiber_main();
    void make_ready(unsigned thread);
    void give_way();
    void end_of_thread();
    void open_barrier_if_full();
    void settle_if_all_are_there(unsigned warp, const Fiber& asks);
    void settle_without(unsigned ended_thread);
    unsigned choose();
    std::string who_waits() const;

    const Grid& grid_;
    const uint3 index_;
    Workspace& workspace_;
    const Statics statics_;
    std::vector<std::byte> statics_aside_;
    Random random_;
    bool is_previous_done_;
    bool has_waited_ = false;
    std::byte* shared_;
    std::vector<Fiber> fibers_;
    std::vector<uint32_t> ready_;  // lanes of each warp
    unsigned warp_ = 0;            // the one that ran last
    unsigned running_ = 0;
    unsigned n_at_barrier_ = 0;
    unsigned n_ended_ = 0;
    std::string failure_;
    Context scheduler_;
};

std::string to_string(const Where& where);

}  // namespace soliton::emulator
