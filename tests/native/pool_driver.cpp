// Drives csrc/pool.cpp and csrc/tape.cpp without Python: one scenario per run, named by the first
// argument. Exits with 0 if its assertions hold. test_pool.py builds it and describes the
// scenarios.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../../csrc/pool.h"
#include "../../csrc/tape.h"

#define CHECK(condition)                                                 \
    do {                                                                 \
        if (!(condition)) {                                              \
            std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
            std::exit(1);                                                \
        }                                                                \
    } while (false)

using soliton::StepState;
using soliton::Tape;
using soliton::Worker;

namespace {

constexpr int kMostThreads = 64;
constexpr int64_t kCells = 100;

// Not atomic: only the regions order the accesses.
struct Cells {
    int64_t of_chunk[kCells][16];
};

struct Counting {
    Cells* cells;
    int64_t n_regions;
};

// In every region, each chunk adds to its own cell what it finds in its neighbours' cells.
void count(const Counting& args, const StepState&, Worker& worker) {
    for (int64_t i = 0; i < args.n_regions; ++i) {
        const int64_t n = i % 2 ? kCells : kCells / 2;
        worker.share(n, [&](int64_t chunk) {
            int64_t& own = args.cells->of_chunk[chunk][i % 2];
            const int64_t before = args.cells->of_chunk[(chunk + 1) % (kCells / 2)][(i + 1) % 2];
            CHECK(before == (i % 2 ? own + 1 : own));
            ++own;
        });
    }
}

struct Nothing {};
void nothing(const Nothing&, const StepState&, Worker& worker) {
    worker.share(3, [](int64_t) {});
}

struct Turning {
    int64_t ns;
};
// Work of about one nanosecond per iteration, without reading a clock.
void turn(const Turning& args, const StepState&, Worker& worker) {
    const int64_t n_chunks = 8 * worker.count;
    worker.share(n_chunks, [&](int64_t) {
        for (int64_t i = 0; i < args.ns / n_chunks; ++i) {
            asm volatile("" : : "r"(i * i * i));
            asm volatile("" : : : "memory");
        }
    });
}

struct Aborting {
    StepState* state;
    std::atomic<int>* n_called;
};
void abort_run(const Aborting& args, const StepState&, Worker& worker) {
    worker.share(1000, [&](int64_t) {
        __atomic_store_n(&args.state->abort, 1, __ATOMIC_RELAXED);
        ++*args.n_called;
    });
}

struct Taking {
    std::atomic<int>* takers;  // (n,)
    int64_t n;
};
void take(const Taking& args, const StepState&, Worker& worker) {
    worker.share(args.n, [&](int64_t i) { ++args.takers[i]; });
}

struct Filling {
    size_t n_bytes;
};
void fill(const Filling& args, const StepState&, Worker& worker) {
    worker.share(100, [&](int64_t) {
        CHECK(reinterpret_cast<uintptr_t>(worker.scratch) % 64 == 0);
        std::memset(worker.scratch, worker.index, args.n_bytes);
        std::this_thread::yield();
        for (size_t i = 0; i < args.n_bytes; ++i) {
            CHECK(worker.scratch[i] == static_cast<std::byte>(worker.index));
        }
    });
}

struct Blocking {
    std::atomic<bool>* is_running;
    std::atomic<bool>* may_end;
};
void block(const Blocking& args, const StepState&, Worker& worker) {
    worker.share(1, [&](int64_t) {
        *args.is_running = true;
        while (!*args.may_end) {
            std::this_thread::yield();
        }
    });
}

struct Links {
    int64_t* cells;  // (kCells,)
};
// Each chunk counts its own cell on from the position of the pass, by one per link: the same if a
// pass is dropped and begins anew.
void begin_chain(const Links& args, const StepState& state, Worker& worker) {
    worker.share(kCells, [&](int64_t i) { args.cells[i] = state.pos; });
}
struct Link {
    const int64_t* from;  // (kCells,)
    int64_t* to;          // (kCells,)
};
void link(const Link& args, const StepState&, Worker& worker) {
    worker.share(kCells, [&](int64_t i) { args.to[i] = args.from[(i + 1) % kCells] + 1; });
}

// All threads but the caller's stop here, outside of any chunk, until they are released.
struct Stopping {
    std::atomic<int>* n_here;
    std::atomic<bool>* may_go_on;
};
void stop_helpers(const Stopping& args, const StepState&, Worker& worker) {
    if (worker.index > 0) {
        ++*args.n_here;
        while (!*args.may_go_on) {
            std::this_thread::yield();
        }
    }
}

StepState& fresh_state() {
    static int64_t words[9];
    std::memset(words, 0, sizeof words);
    return reinterpret_cast<StepState&>(words);
}

void count_to(int64_t n_regions, int n_ops) {
    static Cells cells;
    std::memset(&cells, 0, sizeof cells);
    Tape tape;
    for (int i = 0; i < n_ops; ++i) {
        tape.append<&count>("count", Counting{&cells, n_regions});
    }
    CHECK(tape.run(fresh_state()));
    for (int i = 0; i < kCells; ++i) {
        CHECK(cells.of_chunk[i][0] == (i < kCells / 2 ? n_regions / 2 * n_ops : 0));
        CHECK(cells.of_chunk[i][1] == n_regions / 2 * n_ops);
    }
}

std::set<std::string> thread_names() {
    std::set<std::string> names;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        if (std::getline(std::ifstream(task.path() / "comm"), name) &&
            name.starts_with("soliton-")) {
            names.insert(name);
        }
    }
    return names;
}

// regions N: the chunks of a region see what the chunks of the previous one wrote.
void regions(int64_t n) {
    count_to(n, 1);
    count_to(10, 20);
}

// runs N: many short runs, with pauses in which the threads fall asleep.
void runs(int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        count_to(2, 3);
        if (i % 100 == 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
}

void chunks() {
    for (const int64_t n : {1, 2, 7, 1000}) {
        std::vector<std::atomic<int>> takers(n);
        Tape tape;
        for (int i = 0; i < 10; ++i) {
            tape.append<&take>("take", Taking{takers.data(), n});
        }
        CHECK(tape.run(fresh_state()));
        for (const std::atomic<int>& times : takers) {
            CHECK(times == 10);
        }
    }
}

void aborts() {
    StepState& state = fresh_state();
    std::atomic<int> n_called = 0;
    std::vector<std::atomic<int>> takers(10);
    Tape tape;
    tape.append<&nothing>("nothing", Nothing{});
    tape.append<&abort_run>("abort", Aborting{&state, &n_called});
    tape.append<&take>("take", Taking{takers.data(), 10});
    CHECK(!tape.run(state));
    CHECK(n_called >= 1 && n_called <= soliton::threads());
    CHECK(!tape.run(state));
    CHECK(n_called <= soliton::threads());
    for (const std::atomic<int>& times : takers) {
        CHECK(times == 0);
    }
    state.abort = 0;
    count_to(10, 2);
}

void scratch() {
    for (const size_t n_bytes : {100, 1 << 20, 64}) {
        Tape tape;
        tape.append<&fill>("fill", Filling{n_bytes}, n_bytes);
        CHECK(tape.run(fresh_state()));
    }
}

// The caller's thread does all the work of this run and of later ones while the helpers are stopped
// within it. When they continue, they disturb nothing, although the tape no longer exists.
void late() {
    std::atomic<int> n_here = 0;
    std::atomic<bool> may_go_on = false;
    {
        std::vector<std::atomic<int>> takers(1000);
        Tape tape;
        tape.append<&take>("take", Taking{takers.data(), 1000});
        tape.append<&stop_helpers>("stop", Stopping{&n_here, &may_go_on});
        tape.append<&take>("take", Taking{takers.data(), 1000});
        for (int i = 0; n_here < soliton::threads() - 1; ++i) {
            CHECK(tape.run(fresh_state()));
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        const int n_before = takers[0];
        CHECK(tape.run(fresh_state()));
        for (const std::atomic<int>& times : takers) {
            CHECK(times == n_before + 2);
        }
    }
    count_to(1000, 2);
    may_go_on = true;
    count_to(1000, 2);
}

void resizes() {
    for (const int n : {1, 5, 2, 1, 3}) {
        soliton::set_threads(n, n == 2 ? std::vector<int>{sched_getcpu()} : std::vector<int>{});
        count_to(100, 2);
        CHECK(thread_names().size() == static_cast<size_t>(n - 1));
    }
}

void refuses_a_second_run() {
    std::atomic<bool> is_running = false;
    std::atomic<bool> may_end = false;
    Tape tape;
    tape.append<&block>("block", Blocking{&is_running, &may_end});
    std::thread first([&] { CHECK(tape.run(fresh_state())); });
    while (!is_running) {
        std::this_thread::yield();
    }
    bool refused = false;
    try {
        Tape().run(fresh_state());
    } catch (const std::runtime_error&) {
        refused = true;
    }
    may_end = true;
    first.join();
    CHECK(refused);
    count_to(2, 1);
}

void exit_status_is_zero(pid_t child) {
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Forks between runs, and during a run in another thread. A child exits at once with _exit: it has
// lost its parent's pool, which a leak check at exit would report.
void forks() {
    count_to(10, 2);
    pid_t child = fork();
    if (child == 0) {
        count_to(10, 2);
        _exit(0);
    }
    exit_status_is_zero(child);
    count_to(10, 2);

    std::atomic<bool> is_running = false;
    std::atomic<bool> may_end = false;
    Tape tape;
    tape.append<&block>("block", Blocking{&is_running, &may_end});
    std::thread other([&] { tape.run(fresh_state()); });
    while (!is_running) {
        std::this_thread::yield();
    }
    child = fork();
    if (child == 0) {
        count_to(10, 2);
        _exit(0);
    }
    exit_status_is_zero(child);
    may_end = true;
    other.join();
}

// A tape of links, and the cells that it ends in.
class Chain {
  public:
    static constexpr int64_t kLinks = 50;

    Chain() {
        tape.append<&begin_chain>("begin_chain", Links{cells_[0]});
        for (int64_t i = 0; i < kLinks; ++i) {
            tape.append<&link>("link", Link{cells_[i % 2], cells_[(i + 1) % 2]});
        }
    }

    void check(int64_t pos) const {
        for (const int64_t cell : cells_[kLinks % 2]) {
            CHECK(cell == pos + kLinks);
        }
    }

    Tape tape;

  private:
    int64_t cells_[2][kCells] = {};
};

StepState& state_at(int64_t pos) {
    StepState& state = fresh_state();
    state.pos = pos;
    return state;
}

// The helpers do all that they can of what has begun, and the caller the rest.
void begins() {
    constexpr int64_t kChunks = 1000;
    std::vector<std::atomic<int>> takers(kChunks);
    std::atomic<int> n_done = 0;
    Tape tape;
    tape.append<&take>("take", Taking{takers.data(), kChunks});
    tape.append<&take>("take", Taking{&n_done, 1});
    Tape().run(fresh_state());  // the pool begins to exist
    for (int i = 1; i <= 20; ++i) {
        tape.begin(fresh_state());
        while (soliton::threads() > 1 && i % 2 && n_done < i) {
            std::this_thread::yield();
        }
        CHECK(tape.run(fresh_state()));
        for (const std::atomic<int>& times : takers) {
            CHECK(times == i);
        }
        CHECK(n_done == i);
    }
}

// The helpers stop before the last op of what has begun until they may go on: because the same is
// begun again, or run. What is dropped never goes on.
void opens() {
    constexpr int64_t kChunks = 100;
    std::vector<std::atomic<int>> takers(kChunks);
    std::atomic<int> n_first = 0;
    std::atomic<int> n_last = 0;
    Tape tape;
    tape.append<&take>("take", Taking{takers.data(), kChunks});
    tape.append<&take>("take", Taking{&n_first, 1});
    tape.append<&take>("take", Taking{&n_last, 1});
    Tape().run(fresh_state());
    const bool has_helpers = soliton::threads() > 1;
    for (int i = 0; i < 60; ++i) {
        const int first = n_first;
        const int last = n_last;
        tape.begin(fresh_state(), false);
        while (has_helpers && n_first == first) {
            std::this_thread::yield();
        }
        if (i % 6 == 0) {  // long enough for the helpers to fall asleep
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        CHECK(n_last == last);
        if (i % 3 == 1) {
            soliton::drop_begun();
            CHECK(n_last == last);
        } else if (i % 3 == 2) {
            tape.begin(fresh_state());
            while (has_helpers && n_last == last) {
                std::this_thread::yield();
            }
        }
        CHECK(tape.run(fresh_state()));
        CHECK(n_last == last + 1);
        CHECK(n_first == first + (has_helpers && i % 3 == 1 ? 2 : 1));
    }
}

// drops N: what has begun is dropped by other states, other tapes, by itself, and by new threads.
void drops(int64_t n) {
    Chain chain;
    Chain other;
    const int count = soliton::threads();
    for (int64_t i = 0; i < n; ++i) {
        chain.tape.begin(state_at(i), i % 2 == 0);
        int64_t pos = i;
        switch (i % 7) {
            case 1:
                pos = -i;
                break;
            case 2:
                CHECK(other.tape.run(state_at(i + 5)));
                other.check(i + 5);
                break;
            case 3:
                soliton::drop_begun();
                break;
            case 4:
                other.tape.begin(state_at(i));
                break;
            case 5:
                soliton::set_threads(i % 2 ? count : count + 1, {});
                break;
            case 6:
                chain.tape.begin(state_at(i + 1));
                break;
        }
        CHECK(chain.tape.run(state_at(pos)));
        chain.check(pos);
    }
    CHECK(other.tape.run(state_at(7)));
    other.check(7);
}

// A helper is in the middle of a chunk of what has begun: whoever drops it waits for that.
void drops_in_the_middle() {
    std::atomic<bool> is_running = false;
    std::atomic<bool> may_end = false;
    std::atomic<bool> is_dropped = false;
    Tape tape;
    tape.append<&block>("block", Blocking{&is_running, &may_end});
    Tape().run(fresh_state());
    tape.begin(fresh_state());
    while (!is_running) {
        std::this_thread::yield();
    }
    std::thread dropping([&] {
        soliton::drop_begun();
        is_dropped = true;
    });
    for (int i = 0; i < 100; ++i) {
        std::this_thread::yield();
        CHECK(!is_dropped);
    }
    may_end = true;
    dropping.join();
    is_running = false;
    CHECK(tape.run(fresh_state()));
    CHECK(is_running);
}

void aborts_what_has_begun() {
    Chain chain;
    CHECK(chain.tape.run(state_at(1)));
    StepState& state = state_at(2);
    chain.tape.begin(state);
    state.abort = 1;
    CHECK(!chain.tape.run(state));
    CHECK(chain.tape.run(state_at(3)));
    chain.check(3);
}

void forks_with_what_has_begun() {
    Chain chain;
    CHECK(chain.tape.run(state_at(0)));
    for (int64_t i = 1; i <= 5; ++i) {
        chain.tape.begin(state_at(i), i % 2 == 0);
        const pid_t child = fork();
        if (child == 0) {
            CHECK(chain.tape.run(state_at(i)));
            chain.check(i);
            _exit(0);
        }
        exit_status_is_zero(child);
        CHECK(chain.tape.run(state_at(i)));
        chain.check(i);
    }
}

void times() {
    Tape tape;
    std::atomic<bool> is_running = false;
    std::atomic<bool> may_end = true;
    tape.append<&nothing>("nothing", Nothing{});
    tape.append<&block>("block", Blocking{&is_running, &may_end});
    int64_t ns[2] = {-1, -1};
    const auto begin = std::chrono::steady_clock::now();
    CHECK(tape.run(fresh_state(), ns));
    const auto all = std::chrono::steady_clock::now() - begin;
    CHECK(ns[0] >= 0 && ns[1] >= 0);
    CHECK(ns[0] + ns[1] <= std::chrono::nanoseconds(all).count());
    CHECK(std::strcmp(tape.name(1), "block") == 0);
}

// speed SECONDS NS: prints how long a tape of 100 ops takes; in each, all threads share NS
// nanoseconds of work.
void speed(int64_t seconds, int64_t ns) {
    Tape tape;
    for (int i = 0; i < 100; ++i) {
        tape.append<&turn>("turn", Turning{ns});
    }
    StepState& state = fresh_state();
    std::vector<double> us;
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < std::chrono::seconds(seconds)) {
        const auto before = std::chrono::steady_clock::now();
        tape.run(state);
        const auto after = std::chrono::steady_clock::now();
        us.push_back(std::chrono::duration<double, std::micro>(after - before).count());
    }
    std::sort(us.begin(), us.end());
    std::printf("100 ops of %ld ns in all: median %.1f us, 90%% %.1f us, mean %.1f us\n",
                static_cast<long>(ns), us[us.size() / 2], us[us.size() * 9 / 10],
                1e6 * static_cast<double>(seconds) / static_cast<double>(us.size()));
}

}  // namespace

int main(int argc, char** argv) {
    CHECK(argc >= 3);
    const std::string scenario = argv[1];
    soliton::set_threads(std::atoi(argv[2]), {});
    const int64_t n = argc > 3 ? std::atoll(argv[3]) : 0;
    if (scenario == "regions") {
        regions(n);
    } else if (scenario == "runs") {
        runs(n);
    } else if (scenario == "chunks") {
        chunks();
    } else if (scenario == "aborts") {
        aborts();
    } else if (scenario == "scratch") {
        scratch();
    } else if (scenario == "late") {
        late();
    } else if (scenario == "resizes") {
        resizes();
    } else if (scenario == "refuses_a_second_run") {
        refuses_a_second_run();
    } else if (scenario == "forks") {
        forks();
    } else if (scenario == "begins") {
        begins();
    } else if (scenario == "opens") {
        opens();
    } else if (scenario == "drops") {
        drops(n);
    } else if (scenario == "drops_in_the_middle") {
        drops_in_the_middle();
    } else if (scenario == "aborts_what_has_begun") {
        aborts_what_has_begun();
    } else if (scenario == "forks_with_what_has_begun") {
        forks_with_what_has_begun();
    } else if (scenario == "times") {
        times();
    } else if (scenario == "speed") {
        speed(n, argc > 4 ? std::atoll(argv[4]) : 0);
    } else {
        CHECK(!"a scenario");
    }
}
