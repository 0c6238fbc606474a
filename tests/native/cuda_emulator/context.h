// A place to go on with: registers and a stack. Knows nothing of kernels.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace soliton::emulator {

struct Context {
#if defined(__x86_64__)
    void* stack_pointer = nullptr;
#else
    ucontext_t registers;
#endif
};

// Such that the first switch to it calls `entry`, which must never return.
void prepare(Context& context, std::byte* stack, size_t n_bytes, void (*entry)());

// Keeps the place of the caller in `from` and goes on at `to`.
void switch_context(Context& from, Context& to);

}  // namespace soliton::emulator
