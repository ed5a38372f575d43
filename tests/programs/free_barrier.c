/* Uses cudaFree as the barrier that it has always been: after it, all queued work has finished. */
#include <cuda_runtime.h>

#include "testkernels.h"

int main(void) {
    tk_init_runtime();
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    volatile uint32_t *seen;
    OK(cudaMallocHost((void **)&seen, 4096));
    for (unsigned i = 1; i < 20; i++) {
        void *data, *other;
        OK(cudaMalloc(&data, 1 << 20));
        /* Of a size that threads cache, and of one that they do not. */
        OK(cudaMalloc(&other, i % 2 ? 1 << 20 : 4 << 20));
        OK(launch_fill(stream, data, 1024, i * 1000, 1000000));
        OK(launch_copy(stream, (void *)seen, data, 1024, 10000000));
        OK(cudaFree(other));
        if (seen[1023] != i * 1000 + 1023) FAIL("cudaFree came back before the work was over");
        OK(cudaFree(data));
    }
    printf("ok\n");
    return 0;
}
