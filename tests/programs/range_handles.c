/* Descriptors for ranges of device memory, as RDMA libraries ask for them: of blocks, and not of what has been freed. */
#include <cuda.h>

#include "check.h"

#include <unistd.h>

enum { DMA_BUF_FD = 1, PAGE = 4096 };

static int ask(CUdeviceptr start, size_t bytes) {
    int fd = -1;
    CUresult result = cuMemGetHandleForAddressRange(&fd, start, bytes, (CUmemRangeHandleType)DMA_BUF_FD, 0);
    if (result == CUDA_SUCCESS) OK(close(fd));
    return result;
}

int main(void) {
    static const size_t BYTES = 8 << 20;
    CUcontext context;
    CUdeviceptr block[2];
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < 2; i++) OK(cuMemAlloc(&block[i], BYTES));
    for (int i = 0; i < 2; i++) {
        OK(ask(block[i], BYTES));
        OK(ask(block[i], PAGE));
        OK(ask(block[i] + PAGE, BYTES - PAGE));
        EXPECT(ask(block[i], 0), CUDA_ERROR_INVALID_VALUE);
        EXPECT(ask(block[i] + 512, PAGE), CUDA_ERROR_INVALID_VALUE);
    }
    OK(cuMemFree(block[0]));
    EXPECT(ask(block[0], BYTES), CUDA_ERROR_INVALID_VALUE);
    EXPECT(ask(block[0] + PAGE, PAGE), CUDA_ERROR_INVALID_VALUE);
    OK(ask(block[1], BYTES));
    OK(cuMemFree(block[1]));
    printf("ok allocs=2\n");
    return 0;
}
