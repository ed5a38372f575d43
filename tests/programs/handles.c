/* A physical allocation with several references, given up in several orders: charged once, given back once. */
#include <cuda.h>

#include "check.h"

static size_t granularity;
static const size_t BLOCKS = 8;
static size_t bytes;
static CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                   .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static size_t free_now(void) {
    size_t f, t;
    OK(cuMemGetInfo(&f, &t));
    return f;
}

int main(void) {
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    bytes = granularity * BLOCKS;
    size_t before = free_now();
    for (int order = 0; order < 4; order++) {
        CUmemGenericAllocationHandle h, retained;
        CUdeviceptr va;
        CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        OK(cuMemCreate(&h, bytes, &prop, 0));
        EXPECT(before - free_now(), bytes);
        OK(cuMemAddressReserve(&va, bytes, 0, 0, 0));
        OK(cuMemMap(va, bytes, 0, h, 0));
        OK(cuMemSetAccess(va, bytes, &access, 1));
        OK(cuMemsetD8(va, 1, bytes));
        OK(cuMemRetainAllocationHandle(&retained, (void *)(va + granularity)));
        EXPECT(before - free_now(), bytes);
        switch (order) {
        case 0:
            OK(cuMemRelease(h));
            OK(cuMemRelease(retained));
            EXPECT(before - free_now(), bytes);
            OK(cuMemUnmap(va, bytes));
            break;
        case 1:
            OK(cuMemUnmap(va, bytes));
            OK(cuMemRelease(retained));
            EXPECT(before - free_now(), bytes);
            OK(cuMemRelease(h));
            break;
        case 2:
            OK(cuMemRelease(retained));
            OK(cuMemUnmap(va, bytes));
            EXPECT(before - free_now(), bytes);
            OK(cuMemRelease(h));
            break;
        case 3:
            OK(cuMemRelease(h));
            OK(cuMemUnmap(va, bytes));
            EXPECT(before - free_now(), bytes);
            OK(cuMemRelease(retained));
            break;
        }
        EXPECT(before, free_now());
        OK(cuMemAddressFree(va, bytes));
    }
    printf("ok bytes=%zu orders=4\n", bytes);
    return 0;
}
