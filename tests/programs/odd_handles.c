/* cuMemCreate on the host, and with a size that is no multiple of the granularity: prints the driver's own codes. */
#include <cuda.h>

#include "check.h"

int main(void) {
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    CUmemAllocationProp device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAllocationProp host = device;
    host.location.type = CU_MEM_LOCATION_TYPE_HOST;
    size_t granularity = 0;
    OK(cuMemGetAllocationGranularity(&granularity, &device, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUmemGenericAllocationHandle h = 99;
    int odd = cuMemCreate(&h, granularity + 512, &device, 0);
    ASSERT(odd == 0 || h == 99);
    int zero = cuMemCreate(&h, 0, &device, 0);
    printf("granularity %zu: odd size gives %d, size 0 gives %d, ", granularity, odd, zero);
    int on_host = cuMemCreate(&h, granularity, &host, 0);
    printf("on the host gives %d\n", on_host);
    if (on_host == 0) OK(cuMemRelease(h));
    return 0;
}
