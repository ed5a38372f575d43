/* Route: two runtimes of different versions in one process; blocks of each are freed through the other. */
#define _GNU_SOURCE
#include <cuda_runtime.h>
#include <dlfcn.h>

#include "exercise.h"

static int download(void *host, const void *device, size_t bytes) {
    return cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost);
}

int main(void) {
    void *other = dlopen("libcudart.so.12", RTLD_NOW | RTLD_LOCAL);
    if (!other) FAIL("%s", dlerror());
    cudaError_t (*other_malloc)(void **, size_t), (*other_free)(void *);
    cudaError_t (*other_version)(int *), (*other_last)(void);
    *(void **)&other_malloc = dlsym(other, "cudaMalloc");
    *(void **)&other_free = dlsym(other, "cudaFree");
    *(void **)&other_version = dlsym(other, "cudaRuntimeGetVersion");
    *(void **)&other_last = dlsym(other, "cudaGetLastError");
    int mine = 0, theirs = 0;
    OK(cudaRuntimeGetVersion(&mine));
    OK(other_version(&theirs));
    ASSERT(mine / 1000 == 13 && theirs / 1000 == 12);
    tk_init_runtime();
    struct memory_calls m = {.download = download};
    *(void **)&m.alloc = (void *)other_malloc;
    *(void **)&m.free = (void *)cudaFree;
    *(void **)&m.info = (void *)cudaMemGetInfo;
    int n = exercise(&m);
    *(void **)&m.alloc = (void *)cudaMalloc;
    *(void **)&m.free = (void *)other_free;
    n += exercise(&m);
    /* A failure in one is the last error of that one only. */
    EXPECT(other_malloc(NULL, 16), cudaErrorInvalidValue);
    EXPECT(cudaGetLastError(), cudaSuccess);
    EXPECT(other_last(), cudaErrorInvalidValue);
    printf("ok allocs=%d\n", n);
    return 0;
}
