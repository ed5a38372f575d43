/* A plugin on a runtime of its own: its device, its memory, its last error. */
#include <cuda_runtime.h>

int plugin_alloc(int device, size_t bytes, void **out, int *last) {
    int result = cudaSetDevice(device);
    if (result) return 1000 + result;
    result = cudaMalloc(out, bytes);
    *last = cudaGetLastError();
    return result;
}

int plugin_free(void *p) {
    int result = cudaFree(p);
    return result ? result : (int)cudaGetLastError();
}
