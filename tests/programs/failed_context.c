/*
 * A kernel has written where nothing is: from then on every call in its context has the same error, frees of blocks and
 * frees that are wrong anyway included. Prints what each gave.
 */
#include <cuda.h>

#include "testkernels.h"

int main(void) {
    CUcontext context;
    CUdeviceptr p, q, r = 0;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    tk_init_driver();
    OK(cuMemAlloc(&p, 1 << 20));
    OK(cuMemAlloc(&q, 1 << 20));
    OK(cuMemFree(q));
    EXPECT(cuMemFree(q), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemFreeAsync(q, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemFree(p + 512), CUDA_ERROR_INVALID_VALUE);
    CUresult wrong[] = {launch_fill(NULL, (void *)1, 64, 1, 1000), cuCtxSynchronize(),
                        cuMemFree(p), cuMemFree(p), cuMemFree(q), cuMemFree(p + 512), cuMemFreeAsync(q, NULL),
                        cuMemAlloc(&r, 1 << 20)};
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) printf("%d ", wrong[i]);
    /* No context: its answer comes first. */
    OK(cuCtxSetCurrent(NULL));
    printf("%d ok\n", cuMemFree(q));
    return 0;
}
