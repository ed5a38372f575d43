/*
 * A block that cannot be exported: asking gives an error and changes nothing, and asking again does too. And memory of
 * cuMemAlloc has no handle, whatever lies behind it.
 */
#include <cuda.h>

#include "check.h"

int main(void) {
    CUcontext context, told;
    CUdeviceptr block;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&block, 8 << 20));
    for (int i = 0; i < 2; i++) {
        CUipcMemHandle handle;
        for (unsigned b = 0; b < sizeof handle; b++) ((char *)&handle)[b] = 0x5a;
        EXPECT(cuIpcGetMemHandle(&handle, block), CUDA_ERROR_INVALID_VALUE);
        for (unsigned b = 0; b < sizeof handle; b++) ASSERT(((char *)&handle)[b] == 0x5a);
    }
    CUmemGenericAllocationHandle physical = 77;
    EXPECT(cuMemRetainAllocationHandle(&physical, (void *)block), CUDA_ERROR_INVALID_VALUE);
    ASSERT(physical == 77);
    EXPECT(cuMemUnmap(block, 8 << 20), CUDA_ERROR_INVALID_VALUE);
    OK(cuPointerGetAttribute(&told, CU_POINTER_ATTRIBUTE_CONTEXT, block));
    ASSERT(told == context);
    OK(cuMemFree(block));
    printf("ok\n");
    return 0;
}
