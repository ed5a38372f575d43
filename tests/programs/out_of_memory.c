/* Out of memory is that and nothing else, outputs stay untouched, and everything works afterwards. */
#include <cuda.h>
#include <cuda_runtime.h>

#include "check.h"

int main(void) {
    size_t f, t;
    OK(cudaFree(0));
    OK(cudaMemGetInfo(&f, &t));
    void *p = (void *)0x77;
    size_t pitch = 55;
    EXPECT(cudaMalloc(&p, t + (1 << 20)), cudaErrorMemoryAllocation);
    EXPECT(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
    EXPECT(cudaGetLastError(), cudaErrorMemoryAllocation);
    EXPECT(cudaGetLastError(), cudaSuccess);
    EXPECT(cudaMalloc(&p, (size_t)-1), cudaErrorMemoryAllocation);
    EXPECT(cudaMalloc(&p, (size_t)1 << 60), cudaErrorMemoryAllocation);
    EXPECT(cudaMallocPitch(&p, &pitch, 1 << 20, t >> 19), cudaErrorMemoryAllocation);
    EXPECT(cudaMallocAsync(&p, t * 2, 0), cudaErrorMemoryAllocation);
    ASSERT(p == (void *)0x77 && pitch == 55);
    EXPECT(cudaGetLastError(), cudaErrorMemoryAllocation);

    CUresult (*alloc)(CUdeviceptr *, size_t);
    CUdeviceptr d = 0x77;
    OK(cudaGetDriverEntryPointByVersion("cuMemAlloc", (void **)&alloc, 12000, 0, NULL));
    EXPECT(alloc(&d, t + (1 << 20)), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(alloc(&d, (size_t)-1), CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT(d == 0x77);
    /* A driver call's failure is not the runtime's last error. */
    EXPECT(cudaGetLastError(), cudaSuccess);

    /* Bad arguments, as the runtime and the driver define them. */
    EXPECT(cudaMalloc(NULL, 16), cudaErrorInvalidValue);
    EXPECT(cudaGetLastError(), cudaErrorInvalidValue);
    EXPECT(alloc(NULL, 16), CUDA_ERROR_INVALID_VALUE);
    EXPECT(alloc(&d, 0), CUDA_ERROR_INVALID_VALUE);
    ASSERT(d == 0x77);
    OK(cudaMalloc(&p, 0));
    ASSERT(p == NULL);

    OK(cudaMalloc(&p, 1 << 20));
    OK(cudaFree(p));
    EXPECT(cudaGetLastError(), cudaSuccess);
    printf("ok\n");
    return 0;
}
