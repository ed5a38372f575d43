/*
 * While a stream captures in the strictest mode, memory is asked for that only moved memory serves, and then more than there
 * is. A plain allocator breaks the capture with its first call; a pool need not, and says so by `survived`.
 */
#include <cuda_runtime.h>

#include "testkernels.h"

enum { MIB = 1 << 20 };

int main(void) {
    tk_init_runtime();
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec;
    uint64_t *bad;
    void *block[4], *joined = NULL, *large = NULL;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMallocHost((void **)&bad, sizeof *bad));
    *bad = 0;
    for (int i = 0; i < 4; i++) {
        OK(cudaMalloc(&block[i], 16 * MIB));
        OK(launch_fill(stream, block[i], 4096, i, 1000));
    }
    OK(cudaDeviceSynchronize());
    OK(cudaFree(block[0]));
    OK(cudaFree(block[2]));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    int first = cudaMalloc(&joined, 32 * MIB), second = cudaMalloc(&large, 200 * MIB);
    if (first == 0) OK(launch_fill(stream, joined, 8 * MIB, 7, 1000));
    if (second == 0) OK(launch_fill(stream, large, 50 * MIB, 8, 1000));
    int end = cudaStreamEndCapture(stream, &graph);
    if (first == 0 && second == 0 && end == 0) {
        OK(cudaGraphInstantiate(&exec, graph, 0));
        OK(cudaGraphLaunch(exec, stream));
        OK(launch_check(stream, joined, 8 * MIB, 7, bad, 1000));
        OK(launch_check(stream, large, 50 * MIB, 8, bad, 1000));
        OK(launch_check(stream, block[1], 4096, 1, bad, 1000));
        OK(cudaDeviceSynchronize());
        if (*bad) FAIL("wrong words: %llu", (unsigned long long)*bad);
        printf("survived\n");
    } else {
        printf("broken: %d %d %d\n", first, second, end);
    }
    return 0;
}
