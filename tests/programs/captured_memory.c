/*
 * Memory that is allocated into captures which come to nothing, again and again: it goes with the graph that the capture
 * was making, so the next round has room for it.
 *
 *   captured_memory WAY
 *
 * invalidated: a forbidden call breaks the capture, and its end says so; destroyed: the stream is destroyed while it
 * captures; unjoined: the capture ends with work of another stream that nothing waits for; elsewhere: its end is tried on
 * another thread first, which changes nothing, and then succeeds; kept: the graph is the program's and outlives the
 * capture that broke; freed: the graph runs, and the program frees its memory, which the driver keeps for the next run.
 */
#include <cuda.h>

#include "check.h"

#include <pthread.h>
#include <string.h>

extern CUresult cuGraphCreate(CUgraph *, unsigned);
extern CUresult cuStreamBeginCaptureToGraph(CUstream, CUgraph, const CUgraphNode *, const void *, size_t, CUstreamCaptureMode);

enum { ROUNDS = 12 };
static const size_t BYTES = 32 << 20;
static CUcontext context;
static CUstream stream;
static CUgraph graph;

static void *end_it(void *unused) {
    (void)unused;
    OK(cuCtxSetCurrent(context));
    EXPECT(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    return NULL;
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "invalidated";
    int destroyed = !strcmp(way, "destroyed"), unjoined = !strcmp(way, "unjoined");
    int elsewhere = !strcmp(way, "elsewhere"), kept = !strcmp(way, "kept"), freed = !strcmp(way, "freed");
    int rounds = 0, error = 0;
    CUstream side;
    CUevent fork;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    for (; rounds < ROUNDS; rounds++) {
        CUdeviceptr p = 0, q = 0;
        CUgraph own = NULL;
        if (kept) {
            OK(cuGraphCreate(&own, 0));
            OK(cuStreamBeginCaptureToGraph(stream, own, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        } else {
            OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        }
        error = cuMemAllocAsync(&p, BYTES, stream);
        if (!error && unjoined) {
            OK(cuEventRecord(fork, stream));
            OK(cuStreamWaitEvent(side, fork, 0));
            error = cuMemAllocAsync(&q, BYTES, side);
        }
        if (destroyed) {
            OK(cuStreamDestroy(stream));
            OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        } else if (unjoined) {
            EXPECT(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
        } else if (elsewhere || freed) {
            CUgraphExec exec;
            pthread_t thread;
            if (elsewhere) {
                EXPECT(pthread_create(&thread, NULL, end_it, NULL), 0);
                pthread_join(thread, NULL);
            }
            OK(cuStreamEndCapture(stream, &graph));
            if (!error && freed) {
                OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
                OK(cuGraphLaunch(exec, stream));
                OK(cuMemFreeAsync(p, stream));
                OK(cuStreamSynchronize(stream));
                /* It is held for the next run: as much again, and the cap is full. */
                CUdeviceptr more;
                size_t most = 240u << 20;
                CUresult second = cuMemAlloc(&more, most);
                if (!second) OK(cuMemFree(more));
                printf("second=%d ", second);
                OK(cuGraphExecDestroy(exec));
                OK(cuGraphDestroy(graph));
                break;
            }
            OK(cuGraphDestroy(graph));
        } else {
            CUdeviceptr block;
            OK(cuThreadExchangeStreamCaptureMode(&(CUstreamCaptureMode){CU_STREAM_CAPTURE_MODE_RELAXED}));
            OK(cuMemAlloc(&block, 1 << 20));
            EXPECT(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
            EXPECT(cuMemFreeAsync(block, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
            OK(cuMemFree(block));
            EXPECT(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
            if (kept) OK(cuGraphDestroy(own));
        }
        if (error) break;
    }
    printf("rounds=%d error=%d\n", rounds, error);
    return 0;
}
