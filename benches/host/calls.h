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

#endif
