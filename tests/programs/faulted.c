/*
 * Allocates, writes, checks and frees in two contexts of one device and in a capture, on a driver that may fail in the
 * middle. Of the functions that a caching allocator may call on its own it calls only those that allocate and free: so
 * whatever else fails is the allocator's to bear. At most ERRORS of its own calls may fail, each with CODE or out of
 * memory, and each succeeds when it is made again.
 *
 *   faulted CODE ERRORS
 */
#include <cuda.h>

#include "testkernels.h"

enum { SLOTS = 24, WORDS = 1024, ROUNDS = 40 };
static int code, errors, seen;
static uint64_t *bad;
static CUcontext context[2];
static struct testkernels kernels[2];
static CUstream stream[2][2];
static struct block {
    CUdeviceptr p;
    int context, kind;
    uint32_t value;
} slot[SLOTS];

static void count(int e, const char *call) {
    if (e != code && e != CUDA_ERROR_OUT_OF_MEMORY) FAIL("%s gave %d", call, e);
    if (++seen > errors) FAIL("%s gave %d, error number %d", call, e, seen);
}

/* Makes the call until it succeeds. */
#define STUBBORN(call)                                         \
    for (CUresult e_; (e_ = (call)) != CUDA_SUCCESS;) count(e_, #call)

static void enter(int c) {
    OK(cuCtxSetCurrent(context[c]));
    tk = kernels[c];
}

static void take(struct block *b, unsigned *seed) {
    size_t bytes = WORDS * 4 + (next_random(seed) % 7 == 0 ? 20u << 20 : next_random(seed) % (3 << 20));
    b->context = next_random(seed) % 2;
    b->kind = next_random(seed) % 8;
    b->value = next_random(seed);
    enter(b->context);
    CUstream s = stream[b->context][next_random(seed) % 2];
    if (b->kind == 6) STUBBORN(cuMemAllocAsync(&b->p, bytes, s));
    else if (b->kind == 7) STUBBORN(cuMemAllocManaged(&b->p, bytes, CU_MEM_ATTACH_GLOBAL));
    else STUBBORN(cuMemAlloc(&b->p, bytes));
    OK(launch_fill(s, (void *)b->p, WORDS, b->value, 50000));
    OK(launch_check(s, (void *)b->p, WORDS, b->value, bad, 50000));
}

static void give(struct block *b, unsigned *seed) {
    CUstream s = stream[b->context][0];
    enter(b->context);
    if (b->kind >= 6)
        for (int i = 0; i < 2; i++) OK(cuStreamSynchronize(stream[b->context][i]));
    if (b->kind != 6) enter(next_random(seed) % 2);
    if (b->kind == 6) STUBBORN(cuMemFreeAsync(b->p, s));
    else STUBBORN(cuMemFree(b->p));
    b->p = 0;
}

int main(int argc, char **argv) {
    unsigned seed = 7;
    code = argc > 1 ? atoi(argv[1]) : 0;
    errors = argc > 2 ? atoi(argv[2]) : 0;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context[0], 0));
    OK(cuCtxCreate_v2(&context[1], 0, 0));
    for (int c = 0; c < 2; c++) {
        OK(cuCtxSetCurrent(context[c]));
        tk_init_driver();
        kernels[c] = tk;
        for (int s = 0; s < 2; s++) OK(cuStreamCreate(&stream[c][s], CU_STREAM_NON_BLOCKING));
    }
    OK(cuMemHostAlloc((void **)&bad, sizeof *bad, 0));
    *bad = 0;
    for (int round = 0; round < ROUNDS; round++) {
        CUgraph graph;
        CUstream own = stream[1][1];
        int capturing = round % 8 == 3;
        if (capturing) {
            enter(1);
            OK(cuStreamSynchronize(own));
            CUstream fresh;
            OK(cuStreamCreate(&fresh, CU_STREAM_NON_BLOCKING));
            OK(cuStreamBeginCapture(fresh, CU_STREAM_CAPTURE_MODE_RELAXED));
            own = fresh;
        }
        for (int i = 0; i < 12; i++) {
            struct block *b = &slot[next_random(&seed) % SLOTS];
            if (b->p) give(b, &seed);
            else take(b, &seed);
        }
        if (capturing) {
            enter(1);
            OK(cuStreamEndCapture(own, &graph));
            OK(cuGraphDestroy(graph));
            OK(cuStreamDestroy(own));
        }
        size_t f, t;
        STUBBORN(cuMemGetInfo(&f, &t));
        ASSERT(f <= t);
    }
    for (int i = 0; i < SLOTS; i++)
        if (slot[i].p) give(&slot[i], &seed);
    for (int c = 0; c < 2; c++) {
        enter(c);
        for (int s = 0; s < 2; s++) OK(cuStreamSynchronize(stream[c][s]));
    }
    if (*bad) FAIL("wrong words: %llu", (unsigned long long)*bad);
    printf("ok errors=%d\n", seen);
    return 0;
}
