/* Very many asynchronous allocations and frees, on two streams. */
#include <cuda_runtime.h>

#include "check.h"

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 100000;
    cudaStream_t stream[2];
    OK(cudaStreamCreateWithFlags(&stream[0], cudaStreamNonBlocking));
    OK(cudaStreamCreate(&stream[1]));
    for (int i = 0; i < n; i++) {
        void *p;
        OK(cudaMallocAsync(&p, 512 + i % 7 * 4096, stream[i & 1]));
        OK(cudaFreeAsync(p, stream[i & 1]));
        if (i % 1024 == 1023) OK(cudaStreamSynchronize(stream[i & 1]));
    }
    OK(cudaDeviceSynchronize());
    printf("ok asyncs=%d\n", n);
    return 0;
}
