// Drives csrc/pool.cpp and csrc/tape.cpp without Python: one scenario per run, named by the first
// argument. Exits with 0 when what it asserts holds. test_pool.py builds it and says what for.
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

#include "../csrc/pool.h"
#include "../csrc/tape.h"

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

// Plain, not atomic: only the barriers order them.
struct Slots {
    int64_t of_thread[kMostThreads][16];
};

struct Counting {
    Slots* slots;
    int64_t n_barriers;
};

// Every thread counts in its own slot, and after each barrier reads its neighbour's.
void count(const Counting& args, const StepState&, Worker& worker) {
    int64_t& own = args.slots->of_thread[worker.index][0];
    const int64_t& other = args.slots->of_thread[(worker.index + 1) % worker.count][0];
    for (int64_t i = 0; i < args.n_barriers; ++i) {
        ++own;
        worker.barrier();
        CHECK(other == own);
        worker.barrier();
    }
}

struct Nothing {};
void nothing(const Nothing&, const StepState&, Worker&) {}

struct Turning {
    int64_t ns;
};
// A loop of about one nanosecond each, whose length no clock decides.
void turn(const Turning& args, const StepState&, Worker& worker) {
    for (int64_t i = 0; i < args.ns / worker.count; ++i) {
        asm volatile("" : : "r"(i * i * i));
        asm volatile("" : : : "memory");
    }
}

struct Aborting {
    StepState* state;
};
void abort_run(const Aborting& args, const StepState&, Worker& worker) {
    if (worker.index == worker.count - 1) {
        __atomic_store_n(&args.state->abort, 1, __ATOMIC_RELAXED);
    }
    worker.barrier();
    worker.barrier();  // the caller's thread looks when it comes to a barrier
    CHECK(worker.aborted());
}

struct Taking {
    std::atomic<int>* takers;  // (n,)
    int64_t n;
};
void take(const Taking& args, const StepState&, Worker& worker) {
    for (int64_t i = worker.claim(); i < args.n; i = worker.claim()) {
        ++args.takers[i];
    }
}

struct Filling {
    std::byte** scratch;  // (threads,)
    size_t n_bytes;
};
void fill(const Filling& args, const StepState&, Worker& worker) {
    CHECK(reinterpret_cast<uintptr_t>(worker.scratch) % 64 == 0);
    std::memset(worker.scratch, worker.index, args.n_bytes);
    args.scratch[worker.index] = worker.scratch;
    worker.barrier();
    for (size_t i = 0; i < args.n_bytes; ++i) {
        CHECK(worker.scratch[i] == static_cast<std::byte>(worker.index));
    }
}

struct Blocking {
    std::atomic<bool>* is_running;
    std::atomic<bool>* may_end;
};
void block(const Blocking& args, const StepState&, Worker& worker) {
    if (worker.index == 0) {
        *args.is_running = true;
        while (!*args.may_end) {
            std::this_thread::yield();
        }
    }
}

StepState& fresh_state() {
    static int64_t words[9];
    std::memset(words, 0, sizeof words);
    return reinterpret_cast<StepState&>(words);
}

void count_to(int64_t n_barriers, int n_ops) {
    static Slots slots;
    std::memset(&slots, 0, sizeof slots);
    Tape tape;
    for (int i = 0; i < n_ops; ++i) {
        tape.append<&count>("count", Counting{&slots, n_barriers});
    }
    CHECK(tape.run(fresh_state()) == static_cast<size_t>(n_ops));
    for (int i = 0; i < soliton::threads(); ++i) {
        CHECK(slots.of_thread[i][0] == n_barriers * n_ops);
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

// barriers N: the threads of a run see what the others wrote.
void barriers(int64_t n) {
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

void claims() {
    std::vector<std::atomic<int>> takers(1000);
    Tape tape;
    for (int i = 0; i < 10; ++i) {
        tape.append<&take>("take", Taking{takers.data(), 1000});
    }
    tape.run(fresh_state());
    for (const std::atomic<int>& n : takers) {
        CHECK(n == 10);
    }
}

void aborts() {
    StepState& state = fresh_state();
    Tape tape;
    tape.append<&nothing>("nothing", Nothing{});
    tape.append<&nothing>("nothing", Nothing{});
    tape.append<&abort_run>("abort", Aborting{&state});
    tape.append<&nothing>("nothing", Nothing{});
    CHECK(tape.run(state) == 3);
    CHECK(tape.run(state) == 0);
    state.abort = 0;
    CHECK(tape.run(state) == 3);
}

void scratch() {
    std::byte* where[kMostThreads];
    for (const size_t n_bytes : {100, 1 << 20, 64}) {
        Tape tape;
        tape.append<&fill>("fill", Filling{where, n_bytes}, n_bytes);
        CHECK(tape.run(fresh_state()) == 1);
    }
}

void resizes() {
    for (const int n : {1, 5, 2, 1, 3}) {
        soliton::set_threads(n, n == 5);
        count_to(100, 2);
        CHECK(thread_names().size() == static_cast<size_t>(n - 1));
    }
}

void refuses_a_second_run() {
    std::atomic<bool> is_running = false;
    std::atomic<bool> may_end = false;
    Tape tape;
    tape.append<&block>("block", Blocking{&is_running, &may_end});
    std::thread first([&] { CHECK(tape.run(fresh_state()) == 1); });
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
    count_to(1, 1);
}

void exit_status_is_zero(pid_t child) {
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Forked from between runs, and from beside a run in another thread.
void forks() {
    count_to(10, 2);
    pid_t child = fork();
    if (child == 0) {
        count_to(10, 2);
        std::exit(0);
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
        std::exit(0);
    }
    exit_status_is_zero(child);
    may_end = true;
    other.join();
}

void times() {
    Tape tape;
    std::atomic<bool> is_running = false;
    std::atomic<bool> may_end = true;
    tape.append<&nothing>("nothing", Nothing{});
    tape.append<&block>("block", Blocking{&is_running, &may_end});
    int64_t ns[2] = {-1, -1};
    const auto begin = std::chrono::steady_clock::now();
    CHECK(tape.run(fresh_state(), ns) == 2);
    const auto all = std::chrono::steady_clock::now() - begin;
    CHECK(ns[0] >= 0 && ns[1] >= 0);
    CHECK(ns[0] + ns[1] <= std::chrono::nanoseconds(all).count());
    CHECK(std::strcmp(tape.name(1), "block") == 0);
}

// speed SECONDS NS: prints how long a tape of 100 ops takes, each with so many nanoseconds of work
// that all threads share.
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
    soliton::set_threads(std::atoi(argv[2]), false);
    const int64_t n = argc > 3 ? std::atoll(argv[3]) : 0;
    if (scenario == "barriers") {
        barriers(n);
    } else if (scenario == "runs") {
        runs(n);
    } else if (scenario == "claims") {
        claims();
    } else if (scenario == "aborts") {
        aborts();
    } else if (scenario == "scratch") {
        scratch();
    } else if (scenario == "resizes") {
        resizes();
    } else if (scenario == "refuses_a_second_run") {
        refuses_a_second_run();
    } else if (scenario == "forks") {
        forks();
    } else if (scenario == "times") {
        times();
    } else if (scenario == "speed") {
        speed(n, argc > 4 ? std::atoll(argv[4]) : 0);
    } else {
        CHECK(!"a scenario");
    }
}
