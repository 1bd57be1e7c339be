// Types and the few instructions of a GPU that the kernels are written in terms of.
//
// The same files are compiled for the CPU in the tests (tests/kernels/emulated_gpu): lanes are
// fibers there, and the functions below the first #else come from its header. Every warp-wide
// function is called by all 32 lanes.
#pragma once

using u8 = unsigned char;
using s8 = signed char;
using s16 = short;
using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

constexpr int warp_lanes = 32;

#ifndef BIGNN_EMULATED

#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) u8 name[]

constexpr u32 all_lanes = 0xffffffffu;

__device__ inline u32 shuffle_xor(u32 x, int lanes) { return __shfl_xor_sync(all_lanes, x, lanes); }
__device__ inline u32 shuffle_down(u32 x, int lanes) {
    return __shfl_down_sync(all_lanes, x, lanes);
}
__device__ inline u32 shuffle(u32 x, int lane) { return __shfl_sync(all_lanes, x, lane); }
__device__ inline u32 ballot(bool is_set) { return __ballot_sync(all_lanes, is_set); }
__device__ inline void sync_warp() { __syncwarp(); }
// x >> bits; 0 for 32 bits and more.
__device__ inline u32 shift_right(u32 x, u32 bits) {
    u32 shifted;
    asm("shr.b32 %0, %1, %2;" : "=r"(shifted) : "r"(x), "r"(bits));
    return shifted;
}

// d = c + sum of four signed bytes times four unsigned ones.
__device__ inline int dot_bytes(u32 values, u32 weights, int c) {
    int d;
    asm("dp4a.s32.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(values), "r"(weights), "r"(c));
    return d;
}

// d += A B of unsigned bytes: A [16, 32], B [32, 8]. With g = lane / 4 and t = lane % 4, a lane has
// the bytes 4 t ... and 16 + 4 t ... of rows g (a0, a2) and g + 8 (a1, a3) of A and of column g of
// B, and of d the columns 2 t, 2 t + 1 of row g, then of row g + 8.
__device__ inline void multiply_bytes(int (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

#endif

struct alignas(8) Floats2 {
    float of[2];
};
struct alignas(16) Words4 {
    u32 words[4];
};

__device__ inline int lane_id() { return static_cast<int>(threadIdx.x) % warp_lanes; }
__device__ inline int warp_in_block() { return static_cast<int>(threadIdx.x) / warp_lanes; }
__device__ inline i64 warp_in_grid() {
    return static_cast<i64>(blockIdx.x) * (static_cast<int>(blockDim.x) / warp_lanes) +
           warp_in_block();
}

__device__ inline float shuffle_xor(float x, int lanes) {
    return __uint_as_float(shuffle_xor(__float_as_uint(x), lanes));
}
__device__ inline u64 shuffle_xor(u64 x, int lanes) {
    const u32 low = shuffle_xor(static_cast<u32>(x), lanes);
    const u32 high = shuffle_xor(static_cast<u32>(x >> 32), lanes);
    return static_cast<u64>(high) << 32 | low;
}
__device__ inline int shuffle_as(int x, int lane) {
    return static_cast<int>(shuffle(static_cast<u32>(x), lane));
}
__device__ inline float shuffle_as(float x, int lane) {
    return __uint_as_float(shuffle(__float_as_uint(x), lane));
}
__device__ inline int shuffle_down(int x, int lanes) {
    return static_cast<int>(shuffle_down(static_cast<u32>(x), lanes));
}
__device__ inline i64 shuffle_down(i64 x, int lanes) {
    const u32 low = shuffle_down(static_cast<u32>(x), lanes);
    const u32 high = shuffle_down(static_cast<u32>(static_cast<u64>(x) >> 32), lanes);
    return static_cast<i64>(static_cast<u64>(high) << 32 | low);
}

// out[i] = the i-th bytes of x[0], x[1], x[2], x[3].
__device__ inline void transpose_bytes(const u32 (&x)[4], u32 (&out)[4]) {
    const u32 low = __byte_perm(x[0], x[1], 0x5140), low2 = __byte_perm(x[2], x[3], 0x5140);
    const u32 high = __byte_perm(x[0], x[1], 0x7362), high2 = __byte_perm(x[2], x[3], 0x7362);
    out[0] = __byte_perm(low, low2, 0x5410);
    out[1] = __byte_perm(low, low2, 0x7632);
    out[2] = __byte_perm(high, high2, 0x5410);
    out[3] = __byte_perm(high, high2, 0x7632);
}
