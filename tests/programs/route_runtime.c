/* Route: the runtime, however it is linked and whichever kind of default stream it was built for. */
#include <cuda_runtime.h>

#include "exercise.h"

static int download(void *host, const void *device, size_t bytes) {
    return cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost);
}

int main(void) {
    int devices = 0;
    OK(cudaGetDeviceCount(&devices));
    OK(cudaSetDevice(0));
    tk_init_runtime();
    struct memory_calls m = {.download = download};
    *(void **)&m.alloc = (void *)cudaMalloc;
    *(void **)&m.free = (void *)cudaFree;
    *(void **)&m.info = (void *)cudaMemGetInfo;
    int n = exercise(&m);
    OK(cudaDeviceSynchronize());
    OK(cudaGetLastError());
    printf("ok allocs=%d\n", n);
    return 0;
}
