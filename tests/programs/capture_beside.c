/*
 * One thread captures graphs, over and over, in a mode that lets others go on; the others allocate and free all the
 * time. Every capture must survive.
 *
 *   capture_beside CAPTURES
 */
#include <cuda_runtime.h>

#include "testkernels.h"

#include <pthread.h>

static int stop;

static void *churn(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        void *p[4];
        int n = 0;
        for (int i = 0; i < 4; i++) {
            cudaError_t e = cudaMalloc(&p[n], 1 + next_random(&seed) % (4 << 20));
            if (e == cudaSuccess) n++;
            else EXPECT(e, cudaErrorMemoryAllocation);
        }
        for (int i = 0; i < n; i++) OK(cudaFree(p[i]));
    }
    return NULL;
}

int main(int argc, char **argv) {
    int captures = argc > 1 ? atoi(argv[1]) : 1000;
    tk_init_runtime();
    void *data;
    OK(cudaMalloc(&data, 4096));
    OK(cudaMemset(data, 0, 4096));
    pthread_t thread[3];
    for (uintptr_t t = 0; t < 3; t++) EXPECT(pthread_create(&thread[t], NULL, churn, (void *)(t + 1)), 0);
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < captures; i++) {
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
        for (int k = 0; k < 4; k++) OK(launch_add1(stream, data, 16, 1000));
        OK(cudaStreamEndCapture(stream, &graph));
        OK(cudaGraphInstantiate(&exec, graph, 0));
        OK(cudaGraphLaunch(exec, stream));
        OK(cudaGraphExecDestroy(exec));
        OK(cudaGraphDestroy(graph));
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (int t = 0; t < 3; t++) pthread_join(thread[t], NULL);
    unsigned word = 0;
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(&word, data, 4, cudaMemcpyDeviceToHost));
    EXPECT(word, 4 * captures);
    printf("ok captures=%d\n", captures);
    return 0;
}
