/* A shared library that brings its own runtime along; plugin_host.c opens it privately. */
#include <cuda_runtime.h>

#include "exercise.h"

static int download(void *host, const void *device, size_t bytes) {
    return cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost);
}

int plugin_run(void) {
    tk_init_runtime();
    struct memory_calls m = {.download = download};
    *(void **)&m.alloc = (void *)cudaMalloc;
    *(void **)&m.free = (void *)cudaFree;
    *(void **)&m.info = (void *)cudaMemGetInfo;
    return exercise(&m);
}
