// A point of execution to resume: registers and a stack. Knows no kernels.
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

// Prepares a context whose first switch calls `entry`, which must never return.
void prepare(Context& context, std::byte* stack, size_t n_bytes, void (*entry)());

// Saves the caller's point of execution in `from` and resumes `to`.
void switch_context(Context& from, Context& to);

}  // namespace soliton::emulator
