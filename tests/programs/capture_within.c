/*
 * While a capture is open, another thread allocates, uses and frees enough for any allocator to look after what has been
 * freed: to ask what is done, to wait, to give back. None of that may cost the capture, in the two modes that let other
 * threads allocate.
 */
#include <cuda_runtime.h>

#include "testkernels.h"

#include <pthread.h>

enum { ROUNDS = 100, HELD = 4 };
static cudaStream_t beside;

static void *churn(void *unused) {
    (void)unused;
    void *held[HELD] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        void **p = &held[i % HELD];
        if (*p) OK(cudaFree(*p));
        OK(cudaMalloc(p, (size_t)(1 + i % 5) << 20));
        OK(launch_fill(beside, *p, 1024, i, 100000));
    }
    for (int i = 0; i < HELD; i++) OK(cudaFree(held[i]));
    return NULL;
}

int main(void) {
    tk_init_runtime();
    void *data;
    uint32_t word = 0;
    OK(cudaMalloc(&data, 4096));
    OK(cudaMemset(data, 0, 4096));
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking));
    OK(cudaDeviceSynchronize());
    static const enum cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed};
    for (int mode = 0; mode < 2; mode++) {
        cudaGraph_t graph = NULL;
        cudaGraphExec_t exec;
        pthread_t thread;
        OK(cudaStreamBeginCapture(stream, modes[mode]));
        OK(launch_add1(stream, data, 16, 1000));
        EXPECT(pthread_create(&thread, NULL, churn, NULL), 0);
        pthread_join(thread, NULL);
        OK(launch_add1(stream, data, 16, 1000));
        OK(cudaStreamEndCapture(stream, &graph));
        OK(cudaGraphInstantiate(&exec, graph, 0));
        OK(cudaGraphLaunch(exec, stream));
        OK(cudaStreamSynchronize(stream));
        OK(cudaGraphExecDestroy(exec));
        OK(cudaGraphDestroy(graph));
    }
    OK(cudaMemcpy(&word, data, 4, cudaMemcpyDeviceToHost));
    EXPECT(word, 4);
    OK(cudaFree(data));
    printf("ok allocs=%d\n", 1 + 2 * ROUNDS);
    return 0;
}
