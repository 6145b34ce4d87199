// Fibers are made with ucontext and switched with setjmp, which leaves the signal mask alone.
#undef _FORTIFY_SOURCE  // its longjmp refuses to go to another stack
#include "simt.hpp"

#include <csetjmp>
#include <stdexcept>
#include <ucontext.h>
#include <vector>

namespace simt {

Index thread_index, block_index, block_size, grid_size;

namespace {

constexpr size_t kStack = 64 << 10;
constexpr uint32_t kMaxThreads = 1024;

enum class State : uint8_t { running, at_warp, at_block, done };

struct Fiber {
    ucontext_t context;
    jmp_buf place;
    bool is_started;
    State state;
    uint32_t num_meetings;
    std::vector<char> stack;
};

std::vector<Fiber> fibers(kMaxThreads);
std::vector<uint64_t> left_behind(2 * kMaxThreads);  // two meetings: those of the next may be left while some still read
jmp_buf scheduler_place;
ucontext_t scheduler_context;
const std::function<void()>* current_kernel;

void body() {
    (*current_kernel)();
    fibers[thread_index.x].state = State::done;
    _longjmp(scheduler_place, 1);
}

void start(Fiber& fiber) {
    fiber.is_started = true;
    fiber.stack.resize(kStack);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, body, 0);
    setcontext(&fiber.context);
}

void resume(uint32_t thread) {
    thread_index.x = thread;
    Fiber& fiber = fibers[thread];
    fiber.state = State::running;
    if (_setjmp(scheduler_place)) return;
    if (fiber.is_started) _longjmp(fiber.place, 1);
    start(fiber);
}

void wait(State state) {
    Fiber& fiber = fibers[thread_index.x];
    fiber.state = state;
    if (!_setjmp(fiber.place)) _longjmp(scheduler_place, 1);
}

// Takes a warp as far as it gets without the others: to the block's meeting, or to the end.
bool advance(uint32_t first, uint32_t last) {
    for (;;) {
        uint32_t at_warp = 0, at_block = 0;
        for (uint32_t thread = first; thread < last; ++thread) {
            if (fibers[thread].state != State::done) resume(thread);
            at_warp += fibers[thread].state == State::at_warp;
            at_block += fibers[thread].state == State::at_block;
        }
        if (at_warp && at_warp != last - first) throw std::logic_error("lanes of a warp have gone different ways");
        if (!at_warp) return at_block > 0;
    }
}

void run_block() {
    for (uint32_t thread = 0; thread < block_size.x; ++thread) {
        fibers[thread].is_started = false;
        fibers[thread].state = State::running;
        fibers[thread].num_meetings = 0;
    }
    for (bool is_going = true; is_going;) {
        is_going = false;
        for (uint32_t first = 0; first < block_size.x; first += 32) {
            is_going |= advance(first, std::min(first + 32, block_size.x));
        }
    }
}

}  // namespace

void run(uint32_t grid, uint32_t block, const std::function<void()>& kernel) {
    if (block == 0 || block > kMaxThreads) throw std::invalid_argument("a block has 1 to 1024 threads");
    current_kernel = &kernel;
    grid_size.x = grid;
    block_size.x = block;
    for (block_index.x = 0; block_index.x < grid; ++block_index.x) run_block();
}

void meet_warp() {
    ++fibers[thread_index.x].num_meetings;
    wait(State::at_warp);
}

void meet_block() { wait(State::at_block); }

uint64_t& slot() {
    uint32_t parity = fibers[thread_index.x].num_meetings & 1;
    return left_behind[parity * kMaxThreads + thread_index.x];
}

const uint64_t* slots() {
    uint32_t parity = (fibers[thread_index.x].num_meetings - 1) & 1;
    return &left_behind[parity * kMaxThreads + (thread_index.x & ~31u)];
}

}  // namespace simt
