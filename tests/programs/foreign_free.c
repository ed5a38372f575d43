/* cuMemFree of memory that did not come from cuMemAlloc: it works, and the accounts come back to zero. */
#include <cuda.h>

#include "testkernels.h"

int main(void) {
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    tk_init_driver();
    for (int i = 0; i < 10; i++) {
        CUdeviceptr async, managed, pitched, plain;
        size_t pitch;
        OK(cuMemAllocAsync(&async, 3 << 20, NULL));
        OK(launch_fill(NULL, (void *)async, 1000, 5, 1000));
        OK(cuStreamSynchronize(NULL));
        OK(cuMemFree(async));
        OK(cuMemAllocManaged(&managed, 3 << 20, CU_MEM_ATTACH_GLOBAL));
        OK(cuMemFree(managed));
        OK(cuMemAllocPitch(&pitched, &pitch, 1000, 1000, 4));
        OK(cuMemFree(pitched));
        /* And the other way round: plain memory through the asynchronous free. */
        OK(cuMemAlloc(&plain, 3 << 20));
        OK(launch_fill(NULL, (void *)plain, 1000, 5, 1000));
        OK(cuMemFreeAsync(plain, NULL));
        OK(cuCtxSynchronize());
    }
    EXPECT(cuMemFree(0x12345678), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(0));
    printf("ok\n");
    return 0;
}
