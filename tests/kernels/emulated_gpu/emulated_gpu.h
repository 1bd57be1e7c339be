// A GPU's blocks on the CPU: one block at a time, every lane a fiber. A lane runs until it meets
// others, in a shuffle, a ballot, a product or a barrier; then the next one runs.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#define BIGNN_EMULATED
#define __global__
#define __device__
#define __shared__ static
#define __align__(bytes) alignas(bytes)
#define __launch_bounds__(...)
#define DYNAMIC_SHARED(name) unsigned char* name = emulated::dynamic_shared

struct Index3 {
    unsigned x, y, z;
};
static Index3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {

constexpr int lanes = 32, most_threads = 1024;
constexpr std::size_t stack_bytes = 64 << 10;
static unsigned char* dynamic_shared;

struct Fiber {
    std::unique_ptr<char[]> stack;
    ucontext_t start;
    jmp_buf at;
    bool is_started, is_done;
    long met;     // how often the lane met those of its warp
    long synced;  // how often it met those of its block
};
static Fiber fibers[most_threads];
static int num_threads, current, num_done;
static ucontext_t main_context;
static std::function<void()> body;
// What lanes bring to a meeting, for meetings of even and odd number.
static std::uint32_t brought[2][most_threads][8];

[[noreturn]] static void fail(const char* why) {
    std::fprintf(stderr, "emulated GPU: %s (thread %d)\n", why, current);
    std::abort();
}

static void run_fiber() {
    body();
    fibers[current].is_done = true;
    ++num_done;
    if (num_done == num_threads) setcontext(&main_context);
    for (int step = 1; step <= num_threads; ++step) {
        const int next = (current + step) % num_threads;
        if (fibers[next].is_done) continue;
        current = next;
        threadIdx = {static_cast<unsigned>(next), 0, 0};
        if (fibers[next].is_started) _longjmp(fibers[next].at, 1);
        fibers[next].is_started = true;
        setcontext(&fibers[next].start);
    }
    fail("nobody left");
}

static void switch_to(int next) {
    if (next == current) return;
    Fiber& mine = fibers[current];
    if (_setjmp(mine.at)) return;
    current = next;
    threadIdx = {static_cast<unsigned>(next), 0, 0};
    if (fibers[next].is_started) _longjmp(fibers[next].at, 1);
    fibers[next].is_started = true;
    setcontext(&fibers[next].start);
}

// Lets other lanes of [begin, end) run until `others` meetings of all of them are counted.
template <class Count>
static void wait_for(int begin, int end, Count count, long wanted) {
    for (long tries = 0;; ++tries) {
        int behind = -1;
        for (int step = 1; step < end - begin && behind < 0; ++step) {
            const int other = begin + (current - begin + step) % (end - begin);
            if (count(fibers[other]) >= wanted) continue;
            if (fibers[other].is_done) fail("a lane ended that others wait for");
            behind = other;
        }
        if (behind < 0) return;
        if (tries > 100000) fail("lanes wait for each other");
        switch_to(behind);
    }
}

// Brings values to the warp's next meeting; returns where those of all lanes stand.
static std::uint32_t (*meet(std::initializer_list<std::uint32_t> values))[8] {
    Fiber& mine = fibers[current];
    const long number = mine.met++;
    auto* slots = brought[number % 2];
    std::copy(values.begin(), values.end(), slots[current]);
    const int first = current / lanes * lanes;
    wait_for(
        first, std::min(first + lanes, num_threads), [](const Fiber& fiber) { return fiber.met; },
        number + 1);
    return slots + first;
}

static void sync_block() {
    const long number = fibers[current].synced++;
    wait_for(0, num_threads, [](const Fiber& fiber) { return fiber.synced; }, number + 1);
}

static void run_block(int threads) {
    num_threads = threads;
    num_done = 0;
    for (int thread = 0; thread < threads; ++thread) {
        Fiber& fiber = fibers[thread];
        if (!fiber.stack) fiber.stack.reset(new char[stack_bytes]);
        fiber.is_started = fiber.is_done = false;
        fiber.met = fiber.synced = 0;
        getcontext(&fiber.start);
        fiber.start.uc_stack.ss_sp = fiber.stack.get();
        fiber.start.uc_stack.ss_size = stack_bytes;
        makecontext(&fiber.start, run_fiber, 0);
    }
    volatile bool was_run = false;
    getcontext(&main_context);
    if (was_run) return;
    was_run = true;
    current = 0;
    threadIdx = {0, 0, 0};
    fibers[0].is_started = true;
    setcontext(&fibers[0].start);
}

template <class Arguments>
void launch(void (*kernel)(Arguments), const void* given, unsigned grid_x, unsigned grid_y,
            unsigned threads, std::size_t shared_bytes) {
    Arguments arguments;
    std::memcpy(&arguments, given, sizeof arguments);
    std::vector<unsigned char> shared(shared_bytes + 16, 0xee);
    dynamic_shared = shared.data() + (16 - reinterpret_cast<std::uintptr_t>(shared.data()) % 16);
    gridDim = {grid_x, grid_y, 1};
    blockDim = {threads, 1, 1};
    body = [kernel, &arguments] { kernel(arguments); };
    for (unsigned y = 0; y < grid_y; ++y) {
        for (unsigned x = 0; x < grid_x; ++x) {
            blockIdx = {x, y, 0};
            run_block(static_cast<int>(threads));
        }
    }
}

}  // namespace emulated

// --- What warp.cuh takes from CUDA, bit for bit -------------------------------------------------

static inline std::uint32_t __float_as_uint(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}
static inline float __uint_as_float(std::uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}
static inline float __int_as_float(int bits) {
    return __uint_as_float(static_cast<std::uint32_t>(bits));
}
static inline int __float2int_rn(float x) { return static_cast<int>(std::lrintf(x)); }
static inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
static inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
static inline int __popc(std::uint32_t x) { return __builtin_popcount(x); }
static inline void __syncthreads() { emulated::sync_block(); }

static inline std::uint32_t __byte_perm(std::uint32_t a, std::uint32_t b, std::uint32_t pick) {
    const std::uint64_t both = static_cast<std::uint64_t>(b) << 32 | a;
    std::uint32_t out = 0;
    for (int i = 0; i < 4; ++i) {
        out |= static_cast<std::uint32_t>(both >> (8 * (pick >> (4 * i) & 7)) & 0xff) << (8 * i);
    }
    return out;
}

template <class T>
static T atomicAdd(T* to, T value) {
    const T before = *to;
    *to += value;
    return before;
}

static inline std::uint32_t shuffle_xor(std::uint32_t x, int lanes) {
    return emulated::meet({x})[(threadIdx.x % 32) ^ static_cast<unsigned>(lanes)][0];
}
static inline std::uint32_t shuffle_down(std::uint32_t x, int lanes) {
    const unsigned from = threadIdx.x % 32 + static_cast<unsigned>(lanes);
    auto* all = emulated::meet({x});
    return from < 32 ? all[from][0] : x;
}
static inline std::uint32_t shuffle(std::uint32_t x, int lane) {
    return emulated::meet({x})[lane % 32][0];
}
static inline std::uint32_t ballot(bool is_set) {
    auto* all = emulated::meet({is_set});
    std::uint32_t bits = 0;
    for (int lane = 0; lane < 32; ++lane) bits |= all[lane][0] << lane;
    return bits;
}
static inline void sync_warp() { emulated::meet({}); }
static inline std::uint32_t shift_right(std::uint32_t x, std::uint32_t bits) {
    return bits < 32 ? x >> bits : 0;
}
static inline int dot_bytes(std::uint32_t values, std::uint32_t weights, int c) {
    for (int i = 0; i < 4; ++i) {
        c += static_cast<std::int8_t>(values >> (8 * i)) *
             static_cast<int>(weights >> (8 * i) & 0xff);
    }
    return c;
}
// Products of tensor cores, by the layouts that PTX documents: rows of A and columns of B are taken
// from the lanes that hold them, a register at a time.
static inline void multiply_bytes(int (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                                  std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
    auto* all = emulated::meet({a0, a1, a2, a3, b0, b1});
    const int g = static_cast<int>(threadIdx.x % 32) / 4, t = static_cast<int>(threadIdx.x % 4);
    for (int k = 0; k < 4; ++k) {
        const int upper = k / 2, column = 2 * t + k % 2;
        auto sum = static_cast<std::uint32_t>(d[k]);
        for (int part = 0; part < 4; ++part) {
            for (int half = 0; half < 2; ++half) {
                const std::uint32_t a = all[4 * g + part][2 * half + upper];
                const std::uint32_t b_of = all[4 * column + part][4 + half];
                for (int i = 0; i < 4; ++i) {
                    sum += (a >> (8 * i) & 0xff) * (b_of >> (8 * i) & 0xff);
                }
            }
        }
        d[k] = static_cast<int>(sum);
    }
}
