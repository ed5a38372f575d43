/*
 * Kernels on the per-thread default streams of several host threads. Each block is written and checked late by one
 * thread, freed by the next one, and memory of its size is allocated by all of them.
 */
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include <cuda_runtime.h>

#include "testkernels.h"

#include <pthread.h>

enum { THREADS = 4, ITERATIONS = 200 };
static const size_t BYTES = 1 << 20, WORDS = 4096;
static uint64_t *bad;
/* A mailbox between each thread and its neighbour. */
static void *mailbox[THREADS];

static void *work(void *argument) {
    int me = (int)(uintptr_t)argument;
    for (int i = 0; i < ITERATIONS; i++) {
        unsigned v = 100000u * me + i;
        void *p;
        OK(cudaMalloc(&p, BYTES));
        OK(launch_fill(NULL, p, WORDS, v, 2000));
        OK(launch_spin(NULL, i % 8 == 0 ? 300000 : 5000));
        OK(launch_check(NULL, p, WORDS, v, bad, 2000));
        void *from_neighbour = __atomic_exchange_n(&mailbox[me], NULL, __ATOMIC_ACQ_REL);
        if (from_neighbour) OK(cudaFree(from_neighbour));
        void *left = __atomic_exchange_n(&mailbox[(me + 1) % THREADS], p, __ATOMIC_ACQ_REL);
        if (left) OK(cudaFree(left));
    }
    OK(cudaStreamSynchronize(NULL));
    return NULL;
}

int main(void) {
    tk_init_runtime();
    OK(cudaMallocHost((void **)&bad, sizeof *bad));
    *bad = 0;
    pthread_t thread[THREADS];
    for (uintptr_t t = 0; t < THREADS; t++) EXPECT(pthread_create(&thread[t], NULL, work, (void *)t), 0);
    for (int t = 0; t < THREADS; t++) pthread_join(thread[t], NULL);
    for (int t = 0; t < THREADS; t++) OK(cudaFree(mailbox[t]));
    OK(cudaDeviceSynchronize());
    if (*bad) FAIL("wrong words: %llu", (unsigned long long)*bad);
    printf("ok allocs=%d\n", THREADS * ITERATIONS);
    return 0;
}
