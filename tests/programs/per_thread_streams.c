/*
 * Kernels on the per-thread default streams of several host threads. In each round every thread writes blocks, lets its
 * stream be busy for a time of its own, and checks them; then each frees the blocks of its neighbour, whose work is
 * still queued, and all allocate anew. Without an order between the streams, a fast one writes into what a slow one has
 * yet to check.
 */
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include <cuda_runtime.h>

#include "testkernels.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 10, BLOCKS = 8 };
static const size_t BYTES = 1 << 20, WORDS = 4096;
static uint64_t *bad;
static void *block[THREADS][BLOCKS];
static pthread_barrier_t all;

static void write_and_check_late(int me, unsigned round) {
    for (int i = 0; i < BLOCKS; i++) {
        OK(cudaMalloc(&block[me][i], BYTES));
        OK(launch_fill(NULL, block[me][i], WORDS, round * 1000 + 100 * me + i, 1000));
    }
    OK(launch_spin(NULL, 2000000 * (me + 1)));
    for (int i = 0; i < BLOCKS; i++)
        OK(launch_check(NULL, block[me][i], WORDS, round * 1000 + 100 * me + i, bad, 1000));
}

static void *work(void *argument) {
    int me = (int)(uintptr_t)argument, neighbour = (me + 1) % THREADS;
    /* Kernels are launched by the driver, which wants a current context. */
    OK(cudaFree(0));
    for (unsigned round = 0; round < 2 * ROUNDS; round++) {
        write_and_check_late(me, round);
        pthread_barrier_wait(&all);
        for (int i = 0; i < BLOCKS; i++) OK(cudaFree(block[neighbour][i]));
        pthread_barrier_wait(&all);
        /* Every other time the streams start level again. */
        if (round % 2 == 1) OK(cudaStreamSynchronize(NULL));
    }
    return NULL;
}

int main(void) {
    tk_init_runtime();
    OK(cudaMallocHost((void **)&bad, sizeof *bad));
    *bad = 0;
    EXPECT(pthread_barrier_init(&all, NULL, THREADS), 0);
    pthread_t thread[THREADS];
    for (uintptr_t t = 0; t < THREADS; t++) EXPECT(pthread_create(&thread[t], NULL, work, (void *)t), 0);
    for (int t = 0; t < THREADS; t++) pthread_join(thread[t], NULL);
    OK(cudaDeviceSynchronize());
    if (*bad) FAIL("wrong words: %llu", (unsigned long long)*bad);
    printf("ok allocs=%d\n", THREADS * 2 * ROUNDS * BLOCKS);
    return 0;
}
