/*
 * What every route program does with the functions that it found: allocate blocks of many sizes, write and read all of
 * them, free them out of order. exercise_some does so with the smaller ones only. Each returns the number of allocations, which a report of the process must agree with.
 */
#ifndef TEST_EXERCISE_H
#define TEST_EXERCISE_H

#include "testkernels.h"

/* The three memory calls of either interface: a CUdeviceptr and a void pointer have one representation. */
struct memory_calls {
    int (*alloc)(void **p, size_t bytes);
    int (*free)(void *p);
    int (*info)(size_t *free, size_t *total);
    int (*download)(void *host, const void *device, size_t bytes);
};

static inline int exercise_some(const struct memory_calls *m, int sizes_used) {
    static const size_t sizes[] = {4, 256, 512, 4096, 100000, 1 << 20, 3 << 20, 20 << 20};
    enum { N = sizeof sizes / sizeof *sizes, ROUNDS = 3 };
    ASSERT(sizes_used >= 1 && sizes_used <= N && sizes_used % 3 != 0);
    static uint32_t host[4096];
    size_t free_bytes = 0, total_bytes = 0;
    OK(m->info(&free_bytes, &total_bytes));
    ASSERT(free_bytes <= total_bytes && total_bytes > 0);
    for (int round = 0; round < ROUNDS; round++) {
        void *p[N];
        for (int i = 0; i < sizes_used; i++) {
            OK(m->alloc(&p[i], sizes[i]));
            ASSERT(p[i] != NULL && (uintptr_t)p[i] % 256 == 0);
            OK(launch_fill(NULL, p[i], sizes[i] / 4, 1000u * round + i, 1000));
        }
        for (int i = 0; i < sizes_used; i++) {
            size_t words = sizes[i] / 4 < 4096 ? sizes[i] / 4 : 4096;
            OK(m->download(host, p[i], words * 4));
            for (size_t w = 0; w < words; w++)
                if (host[w] != 1000u * round + i + w) FAIL("block %d, word %zu: %u", i, w, host[w]);
        }
        for (int i = 0; i < sizes_used; i++) OK(m->free(p[(i * 3 + round) % sizes_used]));
    }
    return sizes_used * ROUNDS;
}

static inline int exercise(const struct memory_calls *m) { return exercise_some(m, 8); }

#endif
