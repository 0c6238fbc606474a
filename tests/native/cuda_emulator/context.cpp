#include "context.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)

// In assembly, because swapcontext makes a system call for the signal mask at every switch.
extern "C" __attribute__((visibility("hidden"))) void soliton_emulator_switch(void** from,
                                                                              void* to);

asm(R"(
    .text
    .globl soliton_emulator_switch
    .hidden soliton_emulator_switch
    .type soliton_emulator_switch, @function
soliton_emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size soliton_emulator_switch, .-soliton_emulator_switch
)");

namespace soliton::emulator {

void prepare(Context& context, std::byte* stack, size_t n_bytes, void (*entry)()) {
    // Six registers, the return address, and a word that aligns the stack as a call would.
    constexpr size_t kWords = 8;
    auto* words = reinterpret_cast<uintptr_t*>(stack + n_bytes) - kWords;
    std::memset(words, 0, kWords * sizeof *words);
    words[6] = reinterpret_cast<uintptr_t>(entry);
    context.stack_pointer = words;
}

void switch_context(Context& from, Context& to) {
    soliton_emulator_switch(&from.stack_pointer, to.stack_pointer);
}

}  // namespace soliton::emulator

#else

namespace soliton::emulator {

void prepare(Context& context, std::byte* stack, size_t n_bytes, void (*entry)()) {
    getcontext(&context.registers);
    context.registers.uc_stack.ss_sp = stack;
    context.registers.uc_stack.ss_size = n_bytes;
    context.registers.uc_link = nullptr;
    makecontext(&context.registers, entry, 0);
}

void switch_context(Context& from, Context& to) {
    swapcontext(&from.registers, &to.registers);
}

}  // namespace soliton::emulator

#endif
