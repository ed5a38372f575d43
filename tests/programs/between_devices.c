/*
 * Copies between two devices by address alone, with no peer access enabled: memory that is there before the other device has
 * a context, and memory that comes later, in both directions and by streams of either.
 */
#include <cuda_runtime.h>

#include "testkernels.h"

enum { WORDS = 1 << 20, BYTES = WORDS * 4 };

int main(void) {
    int devices = 0, made = 0;
    uint64_t *bad;
    void *early, *here, *there;
    struct testkernels kernels[2];
    OK(cudaGetDeviceCount(&devices));
    if (devices < 2) FAIL("needs two devices");
    tk_init_runtime();
    kernels[0] = tk;
    OK(cudaMallocHost((void **)&bad, sizeof *bad));
    *bad = 0;
    OK(cudaMalloc(&early, BYTES));
    OK(launch_fill(NULL, early, WORDS, 17, 1000));
    OK(cudaDeviceSynchronize());
    OK(cudaSetDevice(1));
    tk_init_runtime();
    kernels[1] = tk;
    for (int round = 0; round < 6; round++) {
        OK(cudaSetDevice(0));
        OK(cudaMalloc(&here, BYTES << round % 3));
        OK(cudaSetDevice(1));
        OK(cudaMalloc(&there, BYTES << round % 3));
        made += 2;
        /* By a stream of one device, then of the other. */
        OK(cudaSetDevice(round % 2));
        OK(cudaMemcpyAsync(there, early, BYTES, cudaMemcpyDefault, NULL));
        OK(cudaDeviceSynchronize());
        OK(cudaSetDevice(1));
        tk = kernels[1];
        OK(launch_check(NULL, there, WORDS, 17, bad, 1000));
        OK(launch_fill(NULL, there, WORDS, 100 + round, 1000));
        OK(cudaDeviceSynchronize());
        OK(cudaSetDevice(1 - round % 2));
        OK(cudaMemcpyAsync(here, there, BYTES, cudaMemcpyDefault, NULL));
        OK(cudaDeviceSynchronize());
        OK(cudaSetDevice(0));
        tk = kernels[0];
        OK(launch_check(NULL, here, WORDS, 100 + round, bad, 1000));
        OK(cudaDeviceSynchronize());
        OK(cudaFree(there));
        OK(cudaFree(here));
    }
    OK(cudaFree(early));
    if (*bad) FAIL("wrong words: %llu", (unsigned long long)*bad);
    printf("ok allocs=%d\n", made + 1);
    return 0;
}
