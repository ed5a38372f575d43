/* What the driver says about a pointer to memory that has been freed: it knows no such memory. */
#include <cuda.h>

#include "check.h"

#include <string.h>

enum { ATTRIBUTES = 20, P2P_TOKENS = 5, HOST_POINTER = 4, DEVICE_ORDINAL = 9, RANGE_START = 11, RANGE_SIZE = 12 };

static void look(CUdeviceptr freed) {
    unsigned char value[32], unwritten[32];
    memset(unwritten, 0xab, sizeof unwritten);
    for (int a = 1; a <= ATTRIBUTES; a++) {
        memset(value, 0xab, sizeof value);
        EXPECT(cuPointerGetAttribute(value, (CUpointer_attribute)a, freed), CUDA_ERROR_INVALID_VALUE);
        EXPECT(memcmp(value, unwritten, sizeof value), 0);
        if (a == P2P_TOKENS) continue;
        CUpointer_attribute one = (CUpointer_attribute)a;
        void *place = value;
        OK(cuPointerGetAttributes(1, &one, &place, freed));
        long long wide = 0;
        memcpy(&wide, value, sizeof wide);
        if (a == RANGE_START || a == RANGE_SIZE) {
            EXPECT(memcmp(value, unwritten, sizeof value), 0);
        } else if (a == HOST_POINTER) {
            EXPECT(wide, freed);
        } else if (a == DEVICE_ORDINAL) {
            EXPECT((int)wide, -2);
        } else {
            EXPECT(value[0], 0);
        }
    }
    CUpointer_attribute both[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    int type = 7, device = 7;
    void *places[] = {&type, &device};
    OK(cuPointerGetAttributes(2, both, places, freed));
    EXPECT(type, 0);
    EXPECT(device, -2);
    CUdeviceptr base = 0;
    size_t size = 0;
    EXPECT(cuMemGetAddressRange(&base, &size, freed), CUDA_ERROR_NOT_FOUND);
    CUipcMemHandle handle;
    EXPECT(cuIpcGetMemHandle(&handle, freed), CUDA_ERROR_INVALID_VALUE);
}

int main(void) {
    static const size_t sizes[] = {512, 100 << 10, 5 << 20, 64 << 20};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    CUdeviceptr block[SIZES][2];
    for (int i = 0; i < SIZES; i++)
        for (int n = 0; n < 2; n++) OK(cuMemAlloc(&block[i][n], sizes[i]));
    for (int i = 0; i < SIZES; i++) {
        /* The other one stays, so that what is around the freed one is in use. */
        OK(cuMemFree(block[i][0]));
        look(block[i][0]);
        look(block[i][0] + sizes[i] / 2);
        int device = 7;
        OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, block[i][1]));
        EXPECT(device, 0);
    }
    for (int i = 0; i < SIZES; i++) OK(cuMemFree(block[i][1]));
    printf("ok allocs=%d\n", 2 * SIZES);
    return 0;
}
