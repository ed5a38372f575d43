/*
 * One freed block waits behind a long kernel; others of its size are long done. The done ones are to be handed out, so
 * that nobody waits; whichever is, the data is right.
 *
 *   pending_behind       asks for as many blocks as are done
 *   pending_behind more  asks for one more, for which the waiting one is there: its data must be right, too
 */
#include <cuda_runtime.h>

#include "testkernels.h"

enum { DONE = 6 };

int main(int argc, char **argv) {
    (void)argv;
    int wanted = argc > 1 ? DONE + 1 : DONE;
    const size_t bytes = 64u << 20, words = 16384;
    tk_init_runtime();
    cudaStream_t slow, fast;
    OK(cudaStreamCreateWithFlags(&slow, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&fast, cudaStreamNonBlocking));
    uint64_t *bad;
    OK(cudaMallocHost((void **)&bad, sizeof *bad));
    *bad = 0;
    void *done[DONE + 1], *behind;
    for (int i = 0; i < DONE; i++) OK(cudaMalloc(&done[i], bytes));
    OK(cudaMalloc(&behind, bytes));
    for (int i = 0; i < DONE; i++) OK(launch_fill(fast, done[i], words, i, 1000));
    for (int i = 0; i < DONE; i++) OK(launch_check(fast, done[i], words, i, bad, 1000));
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < DONE; i++) OK(cudaFree(done[i]));
    OK(cudaDeviceSynchronize());
    OK(launch_fill(slow, behind, words, 4711, 1000));
    OK(launch_spin(slow, 500000000));
    OK(launch_check(slow, behind, words, 4711, bad, 1000));
    OK(cudaFree(behind));
    int taken = 0;
    for (int i = 0; i < wanted; i++) {
        OK(cudaMalloc(&done[i], bytes));
        taken |= done[i] == behind;
        OK(launch_fill(fast, done[i], words, 50 + i, 1000));
    }
    for (int i = 0; i < wanted; i++) OK(launch_check(fast, done[i], words, 50 + i, bad, 1000));
    for (int i = 0; i < wanted; i++) OK(cudaFree(done[i]));
    OK(cudaDeviceSynchronize());
    fprintf(stderr, "the block behind the long kernel was %s\n", taken ? "taken" : "left alone");
    if (*bad) FAIL("wrong words: %llu", (unsigned long long)*bad);
    printf("ok allocs=%d\n", DONE + 1 + wanted);
    return 0;
}
