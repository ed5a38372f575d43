/*
 * A second runtime arrives after the first one is in use, with a plugin that was linked with it. Each call belongs to
 * the runtime of the library that makes it: 11.x only notes what cudaSetDevice says and switches in the call after it,
 * and the last error is kept by each runtime for itself.
 */
#define _GNU_SOURCE
#include <cuda_runtime.h>

#include "check.h"

#include <cuda.h>
#include <dlfcn.h>

typedef CUresult (*attribute_fn)(void *, CUpointer_attribute, CUdeviceptr);

static attribute_fn attribute;

static int device_of(void *p) {
    int device = -1;
    OK(attribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (CUdeviceptr)p));
    return device;
}

/* One place for every call of this program, so that its return address is known before the plugin comes. */
static __attribute__((noinline)) cudaError_t host_alloc(void **p, size_t bytes) {
    cudaError_t result = cudaMalloc(p, bytes);
    __asm__ volatile("" ::: "memory");
    return result;
}

int main(void) {
    void *p = NULL, *q = NULL;
    OK(host_alloc(&p, 1 << 20));
    OK(cudaFree(p));
    void *libcuda = dlopen("libcuda.so.1", RTLD_NOW);
    ASSERT(libcuda);
    *(void **)&attribute = dlsym(libcuda, "cuPointerGetAttribute");
    ASSERT(attribute);

    void *plugin = dlopen("liblateplugin.so", RTLD_NOW | RTLD_LOCAL);
    if (!plugin) FAIL("%s", dlerror());
    int (*alloc)(int, size_t, void **, int *);
    int (*release)(void *);
    *(void **)&alloc = dlsym(plugin, "plugin_alloc");
    *(void **)&release = dlsym(plugin, "plugin_free");
    int last = -1;
    for (int i = 0; i < 3; i++) {
        OK(alloc(1, 1 << 20, &q, &last));
        printf("the plugin asked for device 1 and got device %d\n", device_of(q));
        OK(release(q));
        OK(cudaSetDevice(0));
        OK(host_alloc(&p, 1 << 20));
        printf("the host asked for device 0 and got device %d\n", device_of(p));
        OK(cudaFree(p));
    }
    int result = alloc(0, 1ull << 50, &q, &last);
    printf("too much for the plugin: %d, its last error %d, ours %d\n", result, last, cudaGetLastError());
    result = host_alloc(&q, 1ull << 50);
    int ours = cudaGetLastError();
    OK(alloc(0, 4096, &q, &last));
    printf("too much for the host: %d, our last error %d, the plugin's %d\n", result, ours, last);
    OK(release(q));
    return 0;
}
