/*
 * Memory freed in stream order behind a long kernel is still the device's: what is taken meanwhile, of any kind, may not
 * pass the cap together with it.
 *
 *   late_frees async|pool malloc|async|managed
 */
#include <cuda_runtime.h>

#include "testkernels.h"

#include <string.h>

enum { MAX = 4096 };
static const size_t BYTES = 16 << 20;

static cudaError_t take(const char *kind, void **p, cudaStream_t stream) {
    if (!strcmp(kind, "malloc")) return cudaMalloc(p, BYTES);
    if (!strcmp(kind, "managed")) return cudaMallocManaged(p, BYTES, cudaMemAttachGlobal);
    if (!strcmp(kind, "async")) return cudaMallocAsync(p, BYTES, stream);
    cudaMemPool_t pool;
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    return cudaMallocFromPoolAsync(p, BYTES, pool, stream);
}

int main(int argc, char **argv) {
    static void *first[MAX], *second[MAX];
    int n = 0, m = 0;
    cudaStream_t busy, other;
    if (argc < 3) FAIL("late_frees KIND KIND");
    tk_init_runtime();
    OK(cudaStreamCreateWithFlags(&busy, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    while (n < MAX && take(argv[1], &first[n], busy) == cudaSuccess) n++;
    EXPECT(cudaGetLastError(), cudaErrorMemoryAllocation);
    OK(launch_spin(busy, 1000000000));
    for (int i = 0; i < n; i++) OK(cudaFreeAsync(first[i], busy));
    while (m < MAX && take(argv[2], &second[m], other) == cudaSuccess) m++;
    EXPECT(cudaGetLastError(), cudaErrorMemoryAllocation);
    for (int i = 0; i < m; i++) OK(strcmp(argv[2], "async") ? cudaFree(second[i]) : cudaFreeAsync(second[i], other));
    OK(cudaDeviceSynchronize());
    /* In the end everything can be had again. */
    void *p;
    OK(cudaMalloc(&p, (size_t)n * BYTES / 2));
    OK(cudaFree(p));
    fprintf(stderr, "%d blocks, then %d\n", n, m);
    printf("ok\n");
    return 0;
}
