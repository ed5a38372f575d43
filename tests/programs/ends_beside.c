/*
 * Threads that make a context, use it and end it with blocks in it, beside others that do the same and two that stay in the
 * primary context: what the driver takes back of one, it hands out to another at once. Every free must succeed. Prints how many
 * bytes the device has less at the end than at the beginning.
 */
#include <cuda.h>
#include <pthread.h>

#include "check.h"

/* Newer headers declare only its successors; every driver has it. */
extern CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);

enum { ENDING = 6, STAYING = 2, HELD = 16, STEPS = 60 };
static int rounds;
static CUcontext primary;

static void use(unsigned *state, int leave) {
    CUdeviceptr held[HELD];
    int count = 0;
    for (int step = 0; step < STEPS; step++) {
        if (count < HELD && (count == 0 || next_random(state) % 2)) {
            OK(cuMemAlloc(&held[count], 1 + next_random(state) % (1 << 20)));
            count++;
        } else {
            OK(cuMemFree(held[--count]));
        }
    }
    while (!leave && count) OK(cuMemFree(held[--count]));
}

static void *end(void *number) {
    unsigned state = 1000 + (unsigned)(size_t)number;
    for (int round = 0; round < rounds; round++) {
        CUcontext context;
        OK(cuCtxCreate_v2(&context, 0, 0));
        use(&state, 1);
        OK(cuCtxDestroy(context));
    }
    return NULL;
}

static void *stay(void *number) {
    unsigned state = 2000 + (unsigned)(size_t)number;
    OK(cuCtxSetCurrent(primary));
    for (int round = 0; round < 4 * rounds; round++) use(&state, 0);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[ENDING + STAYING];
    size_t before, after, total;
    rounds = argc > 1 ? atoi(argv[1]) : 100;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    OK(cuMemGetInfo(&before, &total));
    for (size_t i = 0; i < ENDING + STAYING; i++)
        ASSERT(!pthread_create(&threads[i], NULL, i < ENDING ? end : stay, (void *)i));
    for (size_t i = 0; i < ENDING + STAYING; i++) ASSERT(!pthread_join(threads[i], NULL));
    OK(cuMemGetInfo(&after, &total));
    printf("%lld bytes missing\n", (long long)before - (long long)after);
    return 0;
}
