/*
 * More managed memory than the device has, which a driver allows; then, what is free, and an allocation of it.
 *
 *   oversubscribed MIB PLAIN_MIB
 */
#include <cuda_runtime.h>

#include "check.h"

int main(int argc, char **argv) {
    size_t mib = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, plain = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    size_t free_before, free_now, total;
    void *managed = NULL, *p = NULL;
    OK(cudaFree(0));
    OK(cudaMemGetInfo(&free_before, &total));
    int error = cudaMallocManaged(&managed, mib << 20, cudaMemAttachGlobal);
    OK(cudaMemGetInfo(&free_now, &total));
    printf("managed=%d taken=%zu total=%zu ", error, (free_before - free_now) >> 20, total >> 20);
    printf("plain=%d\n", cudaMalloc(&p, plain << 20));
    cudaGetLastError();
    if (p) OK(cudaFree(p));
    if (managed) OK(cudaFree(managed));
    return 0;
}
