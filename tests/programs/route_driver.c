/* Route: a program linked with the driver library. */
#include <cuda.h>

#include "exercise.h"

static int allocate(void **p, size_t bytes) { return cuMemAlloc((CUdeviceptr *)p, bytes); }
static int release(void *p) { return cuMemFree((CUdeviceptr)p); }
static int info(size_t *f, size_t *t) { return cuMemGetInfo(f, t); }
static int download(void *host, const void *device, size_t bytes) {
    return cuMemcpyDtoH(host, (CUdeviceptr)device, bytes);
}

int main(void) {
    CUdevice device;
    CUcontext context;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    tk_init_driver();
    struct memory_calls m = {allocate, release, info, download};
    int n = exercise(&m);
    OK(cuCtxSynchronize());
    OK(cuDevicePrimaryCtxRelease(device));
    printf("ok allocs=%d\n", n);
    return 0;
}
