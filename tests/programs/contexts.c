/*
 * Several contexts of one device: blocks of each freed while the other, or none, is current; a context destroyed with
 * blocks live, pending and cached; and its successor, which often has the same handle.
 */
#include <cuda.h>

#include "testkernels.h"

/* Newer headers declare only its successors; every driver has it. */
extern CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);

enum { BLOCKS = 8, WORDS = 4096 };
static const size_t BYTES = 1 << 20;

int main(void) {
    CUcontext context[2];
    uint64_t *bad;
    int made = 0;
    OK(cuInit(0));
    for (int round = 0; round < 4; round++) {
        CUdeviceptr block[2][BLOCKS];
        struct testkernels kernels[2];
        CUstream stream[2][2];
        for (int c = 0; c < 2; c++) {
            OK(cuCtxCreate_v2(&context[c], 0, 0));
            tk_init_driver();
            kernels[c] = tk;
            for (int s = 0; s < 2; s++) OK(cuStreamCreate(&stream[c][s], CU_STREAM_NON_BLOCKING));
        }
        OK(cuCtxSetCurrent(context[0]));
        OK(cuMemHostAlloc((void **)&bad, sizeof *bad, 0));
        *bad = 0;
        for (int again = 0; again < 3; again++) {
            for (int c = 0; c < 2; c++) {
                OK(cuCtxSetCurrent(context[c]));
                tk = kernels[c];
                /* Each time on the other stream, while the one before is still busy. */
                CUstream here = stream[c][again % 2];
                for (int i = 0; i < BLOCKS; i++) {
                    unsigned v = 1000 * c + 10 * i + again;
                    OK(cuMemAlloc(&block[c][i], BYTES));
                    made++;
                    OK(launch_fill(here, (void *)block[c][i], WORDS, v, 1000));
                }
                OK(launch_spin(here, 3000000 * (c + 1)));
                for (int i = 0; i < BLOCKS; i++)
                    OK(launch_check(here, (void *)block[c][i], WORDS, 1000 * c + 10 * i + again, bad, 1000));
            }
            /* The first context's with the second current, the second's with none or the first. */
            for (int i = 0; i < BLOCKS; i++) OK(cuMemFree(block[0][i]));
            OK(cuCtxSetCurrent(context[0]));
            for (int i = 0; i < BLOCKS; i++) OK(cuMemFree(block[1][i]));
            EXPECT(cuMemFree(block[1][0]), CUDA_ERROR_INVALID_VALUE);
        }
        for (int c = 0; c < 2; c++) {
            OK(cuCtxSetCurrent(context[c]));
            OK(cuCtxSynchronize());
        }
        if (*bad) FAIL("wrong words: %llu", (unsigned long long)*bad);
        /* Gone with blocks live, cached and still in use by queued work. */
        OK(cuCtxSetCurrent(context[1]));
        tk = kernels[1];
        CUdeviceptr live, pending;
        OK(cuMemAlloc(&live, BYTES));
        OK(cuMemAlloc(&pending, BYTES));
        made += 2;
        OK(launch_fill(stream[1][0], (void *)pending, WORDS, 1, 1000000));
        OK(cuMemFree(pending));
        OK(cuCtxDestroy(context[1]));
        OK(cuCtxSetCurrent(context[0]));
        EXPECT(cuMemFree(live), CUDA_ERROR_INVALID_VALUE);
        OK(cuMemFreeHost(bad));
        OK(cuCtxDestroy(context[0]));
    }
    CUdeviceptr none = 7;
    EXPECT(cuMemAlloc(&none, BYTES), CUDA_ERROR_INVALID_CONTEXT);
    ASSERT(none == 7);
    printf("ok allocs=%d\n", made);
    return 0;
}
