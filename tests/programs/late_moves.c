/*
 * Free memory on which a long kernel is still at work, when a request comes that only joined or new memory serves. Whoever
 * takes memory out of its place to join it must leave this where it is: the kernel would fault, or write into what is
 * elsewhere by then. Before the request, later work has been ordered after the kernel, so the memory is good for reuse.
 */
#include <cuda_runtime.h>

#include "testkernels.h"

enum { MIB = 1 << 20, ROUNDS = 4 };
static const uint64_t WORDS = 64 * MIB / 4;

int main(void) {
    tk_init_runtime();
    cudaStream_t slow, fast;
    OK(cudaStreamCreateWithFlags(&slow, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&fast, cudaStreamNonBlocking));
    uint64_t *bad;
    OK(cudaMallocHost((void **)&bad, sizeof *bad));
    *bad = 0;
    int made = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        void *used[4], *pinned[4], *small[40], *again, *large;
        for (int i = 0; i < 4; i++) {
            OK(cudaMalloc(&used[i], 64 * MIB));
            OK(cudaMalloc(&pinned[i], 4 * MIB));
        }
        for (int i = 0; i < 40; i++) OK(cudaMalloc(&small[i], 3 * MIB));
        OK(launch_spin(slow, 500000000));
        for (int i = 0; i < 4; i++) OK(launch_fill(slow, used[i], WORDS, 10 * round + i, 1000));
        for (int i = 0; i < 4; i++) OK(launch_check(slow, used[i], WORDS, 10 * round + i, bad, 1000));
        for (int i = 0; i < 4; i++) OK(cudaFree(used[i]));
        /* Many a request, so that a wait on the device pays. */
        for (int i = 0; i < 40; i++) OK(cudaFree(small[i]));
        for (int i = 0; i < 40; i++) OK(cudaMalloc(&small[i], 3 * MIB));
        OK(cudaMalloc(&again, 64 * MIB));
        OK(launch_fill(fast, again, WORDS, 1000 + round, 1000));
        /* More than any free stretch has; at first so much more that nobody waits for the kernel to put the rest together. */
        OK(cudaMalloc(&large, (size_t)(3000 + 40 * round) * MIB));
        OK(launch_fill(fast, large, 40 * WORDS / 16, 2000 + round, 1000));
        OK(launch_check(fast, large, 40 * WORDS / 16, 2000 + round, bad, 1000));
        OK(launch_check(fast, again, WORDS, 1000 + round, bad, 1000));
        made += 4 + 4 + 80 + 2;
        OK(cudaFree(again));
        OK(cudaFree(large));
        for (int i = 0; i < 4; i++) OK(cudaFree(pinned[i]));
        for (int i = 0; i < 40; i++) OK(cudaFree(small[i]));
    }
    OK(cudaDeviceSynchronize());
    OK(cudaGetLastError());
    if (*bad) FAIL("wrong words: %llu", (unsigned long long)*bad);
    printf("ok allocs=%d\n", made);
    return 0;
}
