// What the GPU programs share: ending with a message at the first call that must not fail, clocks, and kernels that
// take a known time.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#define MUST(call)                                                                                   \
    do {                                                                                             \
        int code_ = static_cast<int>(call);                                                          \
        if (code_ != 0) {                                                                            \
            std::fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, code_);           \
            std::exit(3);                                                                            \
        }                                                                                            \
    } while (0)

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start)
{
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Processor cycles of device 0 in one microsecond.
inline long long cycles_per_us()
{
    int khz = 0;
    MUST(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0));
    return khz / 1000;
}

__device__ inline void busy(long long cycles)
{
    for (long long start = clock64(); clock64() - start < cycles;) {
    }
}

// Keeps one thread block busy, then writes `value` to every word of `words` (null: writes nothing).
static __global__ void busy_then_fill(unsigned *words, int count, unsigned value, long long cycles)
{
    busy(cycles);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; words && i < count; i += gridDim.x * blockDim.x) {
        words[i] = value;
    }
}
