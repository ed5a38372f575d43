/*
 * Allocations whose device is not the current one: a stream's, a pool's, a location's. Each counts against its own
 * device. Takes KIND on device 1 while device 0 is current, until there is no more.
 *
 *   other_device stream|pool|vmm
 */
#include <cuda.h>

#include "check.h"

#include <string.h>

enum { MAX = 4096 };
static const size_t BYTES = 16 << 20;

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "pool";
    CUcontext context[2];
    CUstream stream;
    CUmemoryPool pool;
    static CUdeviceptr p[MAX];
    int n = 0;
    OK(cuInit(0));
    for (int d = 0; d < 2; d++) OK(cuDevicePrimaryCtxRetain(&context[d], d));
    OK(cuCtxSetCurrent(context[1]));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
    OK(cuMemPoolCreate(&pool, &props));
    if (!strcmp(kind, "pool")) OK(cuCtxSetCurrent(context[0]));
    if (!strcmp(kind, "vmm")) OK(cuCtxSetCurrent(context[0]));
    CUresult e = 0;
    for (; n < MAX; n++) {
        CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
        e = !strcmp(kind, "pool")  ? cuMemAllocFromPoolAsync(&p[n], BYTES, pool, NULL)
            : !strcmp(kind, "vmm") ? cuMemCreate(&p[n], BYTES, &prop, 0)
                                   : cuMemAllocAsync(&p[n], BYTES, stream);
        if (e) break;
    }
    EXPECT(e, CUDA_ERROR_OUT_OF_MEMORY);
    for (int i = 0; i < n; i++) OK(!strcmp(kind, "vmm") ? cuMemRelease(p[i]) : cuMemFreeAsync(p[i], !strcmp(kind, "pool") ? NULL : stream));
    for (int d = 0; d < 2; d++) {
        OK(cuCtxSetCurrent(context[d]));
        OK(cuCtxSynchronize());
    }
    printf("blocks=%d\n", n);
    return 0;
}
