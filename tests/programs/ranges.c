/* What the driver says about a pointer is about the program's block: its start, its size, from any byte of it. */
#include <cuda.h>

#include "check.h"

int main(void) {
    static const size_t sizes[] = {512, 1024, 8192, 100 * 512, 1 << 20, 5 << 20, (2 << 20) + 512, 40 << 20};
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    CUdeviceptr block[8];
    for (int i = 0; i < 8; i++) OK(cuMemAlloc(&block[i], sizes[i]));
    for (int i = 0; i < 8; i++) {
        const size_t offsets[] = {0, 1, sizes[i] / 2, sizes[i] - 1};
        for (int o = 0; o < 4; o++) {
            CUdeviceptr base = 0, start = 0;
            size_t size = 0, range = 0;
            OK(cuMemGetAddressRange(&base, &size, block[i] + offsets[o]));
            EXPECT(base, block[i]);
            EXPECT(size, sizes[i]);
            OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, block[i] + offsets[o]));
            OK(cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, block[i] + offsets[o]));
            EXPECT(start, block[i]);
            EXPECT(range, sizes[i]);
        }
        CUdeviceptr base = 0;
        OK(cuMemGetAddressRange(&base, NULL, block[i]));
        size_t size = 0;
        OK(cuMemGetAddressRange(NULL, &size, block[i]));
        EXPECT(base, block[i]);
        EXPECT(size, sizes[i]);
    }
    for (int i = 0; i < 8; i++) OK(cuMemFree(block[i]));
    printf("ok allocs=8\n");
    return 0;
}
