/* Allocates some MiB and prints the capped truth: total and free, by the runtime and by the driver. meminfo [MIB] */
#include <cuda.h>
#include <cuda_runtime.h>

#include "check.h"

int main(int argc, char **argv) {
    size_t mib = argc > 1 ? strtoull(argv[1], NULL, 10) : 0, f, t, df, dt, total;
    void *p;
    int first = cudaFree(0);
    if (first) {
        printf("first call gives %d (%s)\n", first, cudaGetErrorName((cudaError_t)first));
        return 4;
    }
    if (mib) OK(cudaMalloc(&p, mib << 20));
    CUresult (*info)(size_t *, size_t *), (*device_total)(size_t *, CUdevice);
    OK(cudaGetDriverEntryPointByVersion("cuMemGetInfo", (void **)&info, 12000, 0, NULL));
    OK(cudaGetDriverEntryPointByVersion("cuDeviceTotalMem", (void **)&device_total, 12000, 0, NULL));
    OK(cudaMemGetInfo(&f, &t));
    OK(info(&df, &dt));
    OK(device_total(&total, 0));
    EXPECT(df, f);
    EXPECT(dt, t);
    EXPECT(total, t);
    printf("free=%zu total=%zu\n", f, t);
    return 0;
}
