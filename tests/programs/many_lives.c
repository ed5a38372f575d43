/*
 * A context begins, allocates and is reset, thousands of times: nothing may pile up, in memory or in time.
 *
 *   many_lives TIMES
 */
#include <cuda.h>

#include "check.h"

#include <sys/resource.h>

static long resident_kib(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

int main(int argc, char **argv) {
    int times = argc > 1 ? atoi(argv[1]) : 100;
    long early = 0;
    OK(cuInit(0));
    for (int i = 0; i < times; i++) {
        CUcontext context;
        CUdeviceptr p[8];
        OK(cuDevicePrimaryCtxRetain(&context, 0));
        OK(cuCtxSetCurrent(context));
        for (int k = 0; k < 8; k++) OK(cuMemAlloc(&p[k], 100000));
        OK(cuMemFree(p[0]));
        OK(cuDevicePrimaryCtxReset(0));
        if (i == times / 10) early = resident_kib();
    }
    printf("times=%d grown_kib=%ld\n", times, resident_kib() - early);
    return 0;
}
