/*
 * What the benchmark programs share: one pair of calls by whichever interface a program is built for (ROUTE_RUNTIME: the
 * runtime, else the driver), a clock, and ending with a message at the first call that fails.
 */
#ifndef BENCH_CALLS_H
#define BENCH_CALLS_H

#include <cuda.h>
#ifdef ROUTE_RUNTIME
#include <cuda_runtime.h>
#endif

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MUST(call)                                                                       \
    do {                                                                                 \
        int code_ = (int)(call);                                                         \
        if (code_ != 0) {                                                                \
            fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, code_);    \
            exit(3);                                                                     \
        }                                                                                \
    } while (0)

/* Neither inlined nor copied, so that a profiler finds it under this one name. */
#define MEASURED __attribute__((noinline, noclone))

static inline void gpu_open(void) {
#ifdef ROUTE_RUNTIME
    MUST(cudaFree(NULL));
#else
    CUcontext context = NULL;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
#endif
}

static inline uint64_t gpu_alloc(uint64_t bytes) {
#ifdef ROUTE_RUNTIME
    void *block = NULL;
    MUST(cudaMalloc(&block, bytes));
    return (uint64_t)(uintptr_t)block;
#else
    CUdeviceptr block = 0;
    MUST(cuMemAlloc(&block, bytes));
    return block;
#endif
}

static inline void gpu_free(uint64_t block) {
#ifdef ROUTE_RUNTIME
    MUST(cudaFree((void *)(uintptr_t)block));
#else
    MUST(cuMemFree(block));
#endif
}

static inline uint64_t host_alloc(uint64_t bytes) {
    void *block = malloc(bytes);
    if (!block) {
        fprintf(stderr, "malloc of %llu bytes failed\n", (unsigned long long)bytes);
        exit(3);
    }
    return (uint64_t)(uintptr_t)block;
}

/* For mixed sizes: larger ones malloc passes to the operating system, which is another question. */
static inline uint64_t host_alloc_some(uint64_t bytes) { return host_alloc(bytes < 65536 ? bytes : 65536); }

static inline void host_free(uint64_t block) { free((void *)(uintptr_t)block); }

static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline int by_time(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* What reading the clock twice costs: the median of many. */
static inline uint32_t clock_cost(void) {
    static uint32_t empty[1001];
    for (int i = 0; i < 1001; i++) {
        uint64_t start = now_ns();
        empty[i] = (uint32_t)(now_ns() - start);
    }
    qsort(empty, 1001, sizeof *empty, by_time);
    return empty[500];
}

/* `NAME MEAN P50 P99 P99.9`, the clock's cost taken off. Sorts the times. */
static inline void print_times(const char *name, uint32_t *times, size_t count) {
    uint32_t clock = clock_cost();
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        times[i] = times[i] > clock ? times[i] - clock : 0;
        sum += times[i];
    }
    qsort(times, count, sizeof *times, by_time);
    printf("%s %.1f %u %u %u\n", name, sum / (double)count, times[count / 2], times[count * 99 / 100],
           times[count * 999 / 1000]);
}

#endif
