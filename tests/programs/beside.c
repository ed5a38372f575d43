/* Runs with another library preloaded beside; prints what that one saw of the program's calls. */
#define _GNU_SOURCE
#include <cuda_runtime.h>

#include "exercise.h"

#include <dlfcn.h>
#include <unistd.h>

static int download(void *host, const void *device, size_t bytes) {
    return cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost);
}

int main(void) {
    tk_init_runtime();
    struct memory_calls m = {.download = download};
    *(void **)&m.alloc = (void *)cudaMalloc;
    *(void **)&m.free = (void *)cudaFree;
    *(void **)&m.info = (void *)cudaMemGetInfo;
    int n = exercise(&m);
    for (int i = 0; i < 5; i++) getppid();
    int (*counts)(int *), libc_calls = -1, mallocs = -1;
    *(void **)&counts = dlsym(RTLD_DEFAULT, "other_preload_counts");
    if (counts) mallocs = counts(&libc_calls);
    printf("ok allocs=%d\n", n);
    fprintf(stderr, "other saw: getppid %d, cudaMalloc %d\n", libc_calls, mallocs);
    return 0;
}
