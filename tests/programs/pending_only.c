/*
 * The only block that fits was freed a moment ago, and the work that uses it is still queued on one stream. It must be
 * handed out (there is no other memory), and work on another stream must not touch it before that work is over.
 */
#include <cuda_runtime.h>

#include "testkernels.h"

int main(void) {
    const size_t bytes = 600u << 20, words = 16384;
    tk_init_runtime();
    cudaStream_t slow, fast;
    OK(cudaStreamCreateWithFlags(&slow, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&fast, cudaStreamNonBlocking));
    uint64_t *bad;
    OK(cudaMallocHost((void **)&bad, sizeof *bad));
    *bad = 0;
    int made = 0;
    for (unsigned round = 0; round < 8; round++) {
        void *a, *b;
        OK(cudaMalloc(&a, bytes));
        OK(launch_fill(slow, a, words, 100 + round, 1000));
        OK(launch_spin(slow, 50000000));
        OK(launch_check(slow, a, words, 100 + round, bad, 1000));
        OK(cudaFree(a));
        OK(cudaMalloc(&b, bytes));
        /* Without an order between the streams, this lands between the writing and the checking of the other block. */
        OK(launch_spin(fast, 10000000));
        OK(launch_fill(fast, b, words, 900 + round, 1000));
        OK(launch_check(fast, b, words, 900 + round, bad, 1000));
        OK(cudaFree(b));
        made += 2;
    }
    OK(cudaDeviceSynchronize());
    OK(cudaGetLastError());
    if (*bad) FAIL("wrong words: %llu", (unsigned long long)*bad);
    printf("ok allocs=%d\n", made);
    return 0;
}
