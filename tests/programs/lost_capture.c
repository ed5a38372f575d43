/*
 * Captures that come to an end in no ordinary way. Each must leave the process able to reuse memory: after it, a loop
 * of allocations and frees without any synchronisation must not need more and more memory.
 *
 *   lost_capture WAY
 *
 * reset: the device is reset; context: the context is destroyed; primary: the primary context is released; thread: the
 * thread whose default stream captures ends; invalidated: a forbidden call breaks it, and its end says so; elsewhere:
 * ended from another thread; wrong: begun twice, ended on another stream; to_graph, v1, ptsz: begun through that entry,
 * ended as usual; several: four at once, ended in another order; open: never ended, in relaxed mode; contexts: on the
 * thread's default streams of two contexts, one ended while the other goes on.
 */
#include <cuda.h>

#include "testkernels.h"

#include <pthread.h>
#include <string.h>

extern CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);
extern CUresult cuStreamBeginCapture_v2_ptsz(CUstream, CUstreamCaptureMode);
extern CUresult cuStreamEndCapture_ptsz(CUstream, CUgraph *);
extern CUresult cuStreamBeginCaptureToGraph(CUstream, CUgraph, const CUgraphNode *, const void *, size_t, CUstreamCaptureMode);
extern CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream, CUgraph, const CUgraphNode *, const void *, size_t, CUstreamCaptureMode);
extern CUresult cuGraphCreate(CUgraph *, unsigned);
#undef cuStreamBeginCapture
extern CUresult cuStreamBeginCapture(CUstream);

static const char *way;
static CUcontext context;
static CUstream stream;
static CUgraph graph;
static int made;

static int is(const char *name) { return strcmp(way, name) == 0; }

static void enter(void) {
    if (is("context")) {
        OK(cuCtxCreate_v2(&context, 0, 0));
    } else {
        OK(cuDevicePrimaryCtxRetain(&context, 0));
        OK(cuCtxSetCurrent(context));
    }
    tk_init_driver();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static void *on_default_stream(void *unused) {
    (void)unused;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
    return NULL;
}

static void *end_it(void *unused) {
    (void)unused;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamEndCapture(stream, &graph));
    return NULL;
}

static void in_thread(void *(*f)(void *)) {
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, f, NULL), 0);
    pthread_join(thread, NULL);
}

static void lose(CUstreamCaptureMode mode) {
    if (is("thread")) {
        in_thread(on_default_stream);
        return;
    }
    if (is("ptsz")) {
        OK(cuStreamBeginCapture_v2_ptsz(NULL, mode));
        OK(cuStreamEndCapture_ptsz(NULL, &graph));
        OK(cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, mode));
        OK(cuStreamEndCapture_ptsz(NULL, &graph));
        OK(cuGraphCreate(&graph, 0));
        OK(cuStreamBeginCaptureToGraph_ptsz(NULL, graph, NULL, NULL, 0, mode));
        OK(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
        return;
    }
    if (is("contexts")) {
        CUcontext other;
        OK(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
        OK(cuCtxCreate_v2(&other, 0, 0));
        OK(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
        OK(cuCtxSetCurrent(context));
        OK(cuStreamEndCapture_ptsz(NULL, &graph));
        OK(cuCtxSetCurrent(other));
        for (int i = 0; i < 64; i++) {
            CUdeviceptr p;
            OK(cuMemAlloc(&p, (8 + i) << 20));
            made++;
            OK(cuMemFree(p));
        }
        OK(cuStreamEndCapture_ptsz(NULL, &graph));
        OK(cuCtxDestroy(other));
        OK(cuCtxSetCurrent(context));
        return;
    }
    if (is("v1")) {
        OK(cuStreamBeginCapture(stream));
        OK(cuStreamEndCapture(stream, &graph));
        return;
    }
    if (is("to_graph")) {
        OK(cuGraphCreate(&graph, 0));
        OK(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, mode));
        OK(cuStreamEndCapture(stream, &graph));
        return;
    }
    if (is("several")) {
        CUstream s[4];
        for (int i = 0; i < 4; i++) {
            OK(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
            OK(cuStreamBeginCapture_v2(s[i], mode));
        }
        static const int order[4] = {2, 0, 3, 1};
        for (int i = 0; i < 4; i++) {
            OK(cuStreamEndCapture(s[order[i]], &graph));
            OK(cuGraphDestroy(graph));
            OK(cuStreamDestroy(s[order[i]]));
        }
        return;
    }
    OK(cuStreamBeginCapture_v2(stream, is("elsewhere") || is("open") ? CU_STREAM_CAPTURE_MODE_RELAXED : mode));
    if (is("invalidated")) {
        EXPECT(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        EXPECT(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    } else if (is("elsewhere")) {
        in_thread(end_it);
    } else if (is("wrong")) {
        CUstream other;
        OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
        ASSERT(cuStreamBeginCapture_v2(stream, mode) != 0);
        ASSERT(cuStreamEndCapture(other, &graph) != 0);
        cuStreamEndCapture(stream, &graph);
        OK(cuStreamDestroy(other));
    } else if (is("reset")) {
        OK(cuDevicePrimaryCtxReset(0));
        enter();
    } else if (is("primary")) {
        OK(cuDevicePrimaryCtxRelease(0));
        enter();
    } else if (is("context")) {
        OK(cuCtxDestroy(context));
        enter();
    }
}

int main(int argc, char **argv) {
    way = argc > 1 ? argv[1] : "reset";
    uint64_t *bad;
    OK(cuInit(0));
    enter();
    for (int mode = 0; mode < (is("open") ? 1 : 3); mode++) lose((CUstreamCaptureMode)mode);
    CUstream work;
    OK(cuMemHostAlloc((void **)&bad, sizeof *bad, 0));
    *bad = 0;
    OK(cuStreamCreate(&work, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 400; i++) {
        CUdeviceptr p;
        OK(cuMemAlloc(&p, 4 << 20));
        made++;
        OK(launch_fill(work, (void *)p, 1024, i, 20000));
        OK(launch_check(work, (void *)p, 1024, i, bad, 20000));
        OK(cuMemFree(p));
    }
    OK(cuStreamSynchronize(work));
    if (*bad) FAIL("wrong words: %llu", (unsigned long long)*bad);
    printf("ok allocs=%d\n", made);
    return 0;
}
