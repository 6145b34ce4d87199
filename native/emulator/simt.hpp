// Runs CUDA kernels on the processor: every thread of a block is a fiber, and the fibers of a warp meet at each
// operation of the warp. Slow, and the same source does the same thing: what the tests of the kernels stand on.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>

#define LANE static inline
#define KERNEL static void
#define __shared__ static  // one block runs at a time
#define __launch_bounds__(...)

struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};

namespace simt {

struct Index {
    uint32_t x;
};
extern Index thread_index, block_index, block_size, grid_size;

// Runs the kernel for every thread of every block.
void run(uint32_t grid, uint32_t block, const std::function<void()>& kernel);

// All threads of the warp (block) come here before any goes on. They must come to the same place.
void meet_warp();
void meet_block();
// What each lane of this warp left at the meeting that was last; the slot of this lane to leave something in for the next.
uint64_t& slot();
const uint64_t* slots();

template <class T>
uint64_t pack(T value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class T>
T exchange(T value, uint32_t lane) {
    slot() = pack(value);
    meet_warp();
    T found;
    std::memcpy(&found, &slots()[lane], sizeof found);
    return found;
}

template <class Join>
uint32_t reduce(uint32_t value, Join join) {
    slot() = value;
    meet_warp();
    auto result = static_cast<uint32_t>(slots()[0]);
    for (int lane = 1; lane < 32; ++lane) result = join(result, static_cast<uint32_t>(slots()[lane]));
    return result;
}

}  // namespace simt

#define threadIdx simt::thread_index
#define blockIdx simt::block_index
#define blockDim simt::block_size
#define gridDim simt::grid_size

using std::max;
using std::min;

inline uint32_t __popc(uint32_t x) { return static_cast<uint32_t>(std::popcount(x)); }
inline uint32_t __ffs(uint32_t x) { return x ? static_cast<uint32_t>(std::countr_zero(x)) + 1 : 0; }
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
    return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> (shift & 31));
}
inline uint32_t __funnelshift_lc(uint32_t low, uint32_t high, uint32_t shift) {
    return static_cast<uint32_t>((uint64_t{high} << 32 | low) << min(shift, 32u) >> 32);
}
inline void __syncwarp() { simt::meet_warp(); }
inline void __syncthreads() { simt::meet_block(); }
template <class T>
T __shfl_sync(uint32_t, T value, uint32_t lane) {
    return simt::exchange(value, lane & 31);
}
template <class T>
T __shfl_up_sync(uint32_t, T value, uint32_t step) {
    uint32_t lane = threadIdx.x & 31;
    return simt::exchange(value, lane >= step ? lane - step : lane);
}
template <class T>
T __shfl_down_sync(uint32_t, T value, uint32_t step) {
    uint32_t lane = threadIdx.x & 31;
    return simt::exchange(value, lane + step < 32 ? lane + step : lane);
}
inline uint32_t __ballot_sync(uint32_t, bool value) {
    simt::slot() = value;
    simt::meet_warp();
    uint32_t bits = 0;
    for (int lane = 0; lane < 32; ++lane) bits |= static_cast<uint32_t>(simt::slots()[lane]) << lane;
    return bits;
}
inline bool __any_sync(uint32_t mask, bool value) { return __ballot_sync(mask, value) != 0; }
inline bool __all_sync(uint32_t mask, bool value) { return __ballot_sync(mask, value) == 0xFFFFFFFFu; }
inline uint32_t __reduce_add_sync(uint32_t, uint32_t value) {
    return simt::reduce(value, [](uint32_t a, uint32_t b) { return a + b; });
}
inline uint32_t __reduce_min_sync(uint32_t, uint32_t value) {
    return simt::reduce(value, [](uint32_t a, uint32_t b) { return std::min(a, b); });
}
inline uint32_t atomicAdd(uint32_t* at, uint32_t value) {
    uint32_t old = *at;
    *at += value;
    return old;
}
inline uint32_t atomicOr(uint32_t* at, uint32_t value) {
    uint32_t old = *at;
    *at |= value;
    return old;
}
inline uint32_t atomicMin(uint32_t* at, uint32_t value) {
    uint32_t old = *at;
    *at = std::min(*at, value);
    return old;
}
inline uint32_t atomicCAS(uint32_t* at, uint32_t expected, uint32_t value) {
    uint32_t old = *at;
    if (old == expected) *at = value;
    return old;
}
