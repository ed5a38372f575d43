/*
 * Threads allocate, write on a stream of their own, the legacy or the per-thread one, check late on it, and free
 * without waiting. A block that is handed on too early shows as wrong words.
 *
 *   race THREADS ITERATIONS
 */
#include <cuda_runtime.h>

#include "testkernels.h"

#include <pthread.h>

static int iterations;
static uint64_t *bad;

static void *work(void *argument) {
    unsigned seed = 7919u * (unsigned)(uintptr_t)argument + 1;
    static const size_t sizes[] = {4096, 65536, 1 << 20};
    cudaStream_t own[3];
    for (int i = 0; i < 3; i++) OK(cudaStreamCreateWithFlags(&own[i], cudaStreamNonBlocking));
    for (int i = 0; i < iterations; i++) {
        unsigned r = next_random(&seed);
        size_t bytes = sizes[r % 3];
        size_t words = bytes / 4 < 8192 ? bytes / 4 : 8192;
        unsigned pick = (r >> 8) % 8;
        cudaStream_t stream = pick == 0 ? cudaStreamLegacy : pick == 1 ? cudaStreamPerThread : own[(r >> 4) % 3];
        void *p;
        OK(cudaMalloc(&p, bytes));
        OK(launch_fill(stream, p, words, r, (r >> 12) % 16 == 0 ? 100000 : 2000));
        OK(launch_check(stream, p, words, r, bad, 20000));
        OK(cudaFree(p));
        if (i % 256 == 255) OK(cudaStreamSynchronize(stream));
    }
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 4;
    iterations = argc > 2 ? atoi(argv[2]) : 500;
    tk_init_runtime();
    OK(cudaMallocHost((void **)&bad, sizeof *bad));
    *bad = 0;
    pthread_t thread[64];
    for (int t = 0; t < threads; t++) EXPECT(pthread_create(&thread[t], NULL, work, (void *)(uintptr_t)(t + 1)), 0);
    for (int t = 0; t < threads; t++) pthread_join(thread[t], NULL);
    OK(cudaDeviceSynchronize());
    if (*bad) FAIL("wrong words: %llu", (unsigned long long)*bad);
    printf("ok allocs=%d\n", threads * iterations);
    return 0;
}
