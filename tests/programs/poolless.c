/*
 * A context that works and never allocates: its kernels use blocks of another context's pool on the same device. A block
 * that is freed meanwhile must not be written by its next user while the context that has no pool still works on it.
 *
 *   poolless retained|created|green
 *
 * How the context without a pool is made, before the other one allocates.
 */
#include <cuda.h>

#include "testkernels.h"

#include <string.h>

extern CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);
extern CUresult cuDeviceGetDevResource(CUdevice, void *, int);
extern CUresult cuDevResourceGenerateDesc(void **, void *, unsigned);
extern CUresult cuGreenCtxCreate(void **, void *, CUdevice, unsigned);
extern CUresult cuCtxFromGreenCtx(CUcontext *, void *);

enum { WORDS = 4096, ROUNDS = 60 };
static const size_t BYTES = 4 << 20;

struct side {
    CUcontext context;
    CUstream stream;
    struct testkernels kernels;
};

static void enter(struct side *side) {
    OK(cuCtxSetCurrent(side->context));
    tk = side->kernels;
}

static void prepare(struct side *side) {
    OK(cuCtxSetCurrent(side->context));
    tk_init_driver();
    side->kernels = tk;
    OK(cuStreamCreate(&side->stream, CU_STREAM_NON_BLOCKING));
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "retained";
    struct side worker, owner;
    uint64_t *bad;
    int made = 0;
    OK(cuInit(0));
    if (!strcmp(way, "created")) {
        OK(cuCtxCreate_v2(&worker.context, 0, 0));
    } else if (!strcmp(way, "green")) {
        char resource[144];
        void *description, *green;
        OK(cuDeviceGetDevResource(0, resource, 1));
        OK(cuDevResourceGenerateDesc(&description, resource, 1));
        OK(cuGreenCtxCreate(&green, description, 0, 1));
        OK(cuCtxFromGreenCtx(&worker.context, green));
    } else {
        OK(cuDevicePrimaryCtxRetain(&worker.context, 0));
    }
    OK(cuCtxCreate_v2(&owner.context, 0, 0));
    prepare(&worker);
    OK(cuMemHostAlloc((void **)&bad, sizeof *bad, 0));
    *bad = 0;
    prepare(&owner);
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr p;
        enter(&owner);
        OK(cuMemAlloc(&p, BYTES));
        made++;
        /* In turns; the worker writes late, while the owner waits before it looks. */
        struct side *user = i % 2 ? &owner : &worker;
        enter(user);
        OK(launch_spin(user->stream, user == &worker ? 2000000 : 0));
        OK(launch_fill(user->stream, (void *)p, WORDS, 7 * i, 1000));
        OK(launch_spin(user->stream, user == &worker ? 0 : 4000000));
        OK(launch_check(user->stream, (void *)p, WORDS, 7 * i, bad, 1000));
        enter(&owner);
        OK(cuMemFree(p));
    }
    OK(cuStreamSynchronize(owner.stream));
    enter(&worker);
    OK(cuStreamSynchronize(worker.stream));
    if (*bad) FAIL("wrong words: %llu", (unsigned long long)*bad);
    printf("ok allocs=%d\n", made);
    return 0;
}
