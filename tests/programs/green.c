/*
 * A green context: memory that is allocated while it is current is the primary context's. It is used and freed with either
 * current, while streams of both are busy; allocated and freed beside captures; and it outlives the green context.
 *
 *   green           the primary context is retained first, and stays
 *   green alone     nothing but the green context keeps the primary one
 */
#include <cuda.h>

#include "testkernels.h"

extern CUresult cuDeviceGetDevResource(CUdevice, void *, int);
extern CUresult cuDevResourceGenerateDesc(void **, void *, unsigned);
extern CUresult cuGreenCtxCreate(void **, void *, CUdevice, unsigned);
extern CUresult cuGreenCtxDestroy(void *);
extern CUresult cuCtxFromGreenCtx(CUcontext *, void *);

enum { WORDS = 4096, ROUNDS = 40, KEPT = 4 };
static const size_t BYTES = 4 << 20;
static int made;

static void *make(CUcontext *shown) {
    char resource[144];
    void *description, *green;
    OK(cuDeviceGetDevResource(0, resource, 1));
    OK(cuDevResourceGenerateDesc(&description, resource, 1));
    OK(cuGreenCtxCreate(&green, description, 0, 1));
    OK(cuCtxFromGreenCtx(shown, green));
    return green;
}

static CUdeviceptr take(size_t bytes) {
    CUdeviceptr p;
    OK(cuMemAlloc(&p, bytes));
    made++;
    return p;
}

int main(int argc, char **argv) {
    int alone = argc > 1;
    CUcontext context[2] = {NULL, NULL};
    CUstream stream[2];
    struct testkernels kernels[2];
    CUdeviceptr kept[KEPT];
    uint64_t *bad;
    (void)argv;
    OK(cuInit(0));
    if (!alone) OK(cuDevicePrimaryCtxRetain(&context[0], 0));
    for (int life = 0; life < 3; life++) {
        void *green = make(&context[1]);
        if (alone) {
            OK(cuDevicePrimaryCtxRetain(&context[0], 0));
            OK(cuDevicePrimaryCtxRelease(0));
        }
        for (int c = 0; c < 2; c++) {
            OK(cuCtxSetCurrent(context[c]));
            tk_init_driver();
            kernels[c] = tk;
            OK(cuStreamCreate(&stream[c], CU_STREAM_NON_BLOCKING));
        }
        OK(cuMemHostAlloc((void **)&bad, sizeof *bad, 0));
        *bad = 0;
        for (int i = 0; i < KEPT; i++) {
            kept[i] = take(64 << 10); /* several of a region */
            OK(launch_fill(stream[1], (void *)kept[i], WORDS, 100 * i, 1000));
        }
        /* Allocated under one, worked on under the other, freed under either. */
        for (int i = 0; i < ROUNDS; i++) {
            int here = i % 2, there = !here;
            OK(cuCtxSetCurrent(context[here]));
            CUdeviceptr p = take(BYTES);
            tk = kernels[there];
            OK(cuCtxSetCurrent(context[there]));
            OK(launch_fill(stream[there], (void *)p, WORDS, i, 1000000));
            OK(launch_check(stream[there], (void *)p, WORDS, i, bad, 1000));
            OK(cuCtxSetCurrent(context[i / 2 % 2]));
            OK(cuMemFree(p));
        }
        /* A capture in a stream of the green context, which what the pool does must not break. */
        CUgraph graph;
        CUgraphExec exec;
        OK(cuCtxSetCurrent(context[1]));
        tk = kernels[1];
        OK(cuStreamBeginCapture(stream[1], CU_STREAM_CAPTURE_MODE_RELAXED));
        OK(launch_check(stream[1], (void *)kept[0], WORDS, 0, bad, 1000));
        OK(cuCtxSetCurrent(context[0]));
        for (int i = 0; i < ROUNDS; i++) OK(cuMemFree(take(BYTES + 512 * i)));
        OK(cuCtxSetCurrent(context[1]));
        OK(cuStreamEndCapture(stream[1], &graph));
        OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        OK(cuGraphLaunch(exec, stream[1]));
        OK(cuCtxSetCurrent(context[0]));
        OK(cuCtxSynchronize());
        if (*bad) FAIL("wrong words: %llu", (unsigned long long)*bad);
        /* One ends in a capture. */
        OK(cuCtxSetCurrent(context[1]));
        if (life == 1) OK(cuStreamBeginCapture(stream[1], CU_STREAM_CAPTURE_MODE_RELAXED));
        OK(cuCtxSetCurrent(context[0]));
        OK(cuGreenCtxDestroy(green));
        for (int i = 0; i < KEPT; i++) {
            if (!alone) {
                tk = kernels[0];
                OK(launch_check(stream[0], (void *)kept[i], WORDS, 100 * i, bad, 1000));
                OK(cuStreamSynchronize(stream[0]));
                if (*bad) FAIL("wrong words after the end: %llu", (unsigned long long)*bad);
                OK(cuMemFree(kept[i]));
            }
            CUresult again = cuMemFree(kept[i]);
            printf("%d ", again);
        }
        if (!alone) {
            tk = kernels[0];
            for (int i = 0; i < ROUNDS; i++) {
                CUdeviceptr p = take(BYTES);
                OK(launch_fill(stream[0], (void *)p, WORDS, i, 100000));
                OK(launch_check(stream[0], (void *)p, WORDS, i, bad, 1000));
                OK(cuMemFree(p));
            }
            OK(cuStreamSynchronize(stream[0]));
            if (*bad) FAIL("wrong words: %llu", (unsigned long long)*bad);
            OK(cuMemFreeHost(bad));
        }
    }
    printf("ok allocs=%d\n", made);
    return 0;
}
