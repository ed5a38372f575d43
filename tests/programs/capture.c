/*
 * Graph capture in each mode, with memory calls in several places. Prints, for each, what the calls gave and whether
 * the capture survived; where it did, the graph is run and its result checked.
 */
#include <cuda_runtime.h>

#include "testkernels.h"

#include <pthread.h>

static const char *const mode_name[] = {"global", "thread-local", "relaxed"};
static const char *const place_name[] = {"around", "inside", "inside, of a cached block", "on another thread"};
static int made;

static void *elsewhere(void *unused) {
    (void)unused;
    void *p = NULL;
    cudaError_t a = cudaMalloc(&p, 1 << 20);
    cudaError_t f = a == cudaSuccess ? cudaFree(p) : cudaSuccess;
    made += a == cudaSuccess;
    return (void *)(uintptr_t)(a * 1000 + f);
}

static void run(int mode, int place) {
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    void *a, *b, *cached, *fresh = NULL;
    OK(cudaMalloc(&a, 1 << 20));
    OK(cudaMalloc(&b, 1 << 20));
    OK(cudaMalloc(&cached, 1 << 20));
    made += 3;
    OK(cudaMemset(a, 0, 1 << 20));
    OK(cudaDeviceSynchronize());
    if (place == 2) {
        OK(cudaFree(cached));
        OK(cudaDeviceSynchronize());
        cached = NULL;
    }
    OK(cudaStreamBeginCapture(stream, (enum cudaStreamCaptureMode)mode));
    int first = launch_add1(stream, a, 1024, 1000), alloc = 0, release = 0, other = 0;
    if (place == 1 || place == 2) {
        alloc = cudaMalloc(&fresh, place == 1 ? 3 << 20 : 1 << 20);
        made += alloc == 0;
        if (place == 1) {
            release = cudaFree(cached);
            if (release == 0) cached = NULL;
        }
    }
    if (place == 3) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, elsewhere, NULL);
        pthread_join(thread, &result);
        other = (int)(uintptr_t)result;
    }
    int second = launch_copy(stream, b, a, 1024, 1000);
    cudaGraph_t graph = NULL;
    int ended = cudaStreamEndCapture(stream, &graph);
    cudaGetLastError();
    int survived = first == 0 && second == 0 && ended == 0 && graph != NULL;
    if (survived) {
        cudaGraphExec_t exec;
        uint32_t word[2];
        OK(cudaGraphInstantiate(&exec, graph, 0));
        for (int i = 0; i < 3; i++) {
            /* Memory calls between launches. */
            void *p;
            OK(cudaGraphLaunch(exec, stream));
            OK(cudaMalloc(&p, 1 << 20));
            OK(cudaMemsetAsync(p, 0xee, 1 << 20, 0));
            OK(cudaFree(p));
            made++;
        }
        OK(cudaStreamSynchronize(stream));
        OK(cudaMemcpy(word, b, sizeof word, cudaMemcpyDeviceToHost));
        EXPECT(word[0], 3);
        OK(cudaGraphExecDestroy(exec));
        OK(cudaGraphDestroy(graph));
    }
    printf("%s, %s: survived %d\n", mode_name[mode], place_name[place], survived);
    fprintf(stderr, "%s, %s: alloc %d, free %d, other thread %d, end %d\n", mode_name[mode], place_name[place], alloc,
            release, other, ended);
    OK(cudaFree(a));
    OK(cudaFree(b));
    if (cached) OK(cudaFree(cached));
    if (fresh && alloc == 0) OK(cudaFree(fresh));
    OK(cudaStreamDestroy(stream));
    OK(cudaDeviceSynchronize());
}

int main(void) {
    tk_init_runtime();
    for (int mode = 0; mode < 3; mode++)
        for (int place = 0; place < 4; place++) run(mode, place);
    OK(cudaGetLastError());
    fprintf(stderr, "allocs=%d\n", made);
    return 0;
}
