/* Route: the shared runtime opened privately and its functions found on the handle, as a Python extension does. */
#define _GNU_SOURCE
#include <cuda_runtime.h>
#include <dlfcn.h>

static cudaError_t (*entry_point)(const char *, void **, unsigned, unsigned long long,
                                  enum cudaDriverEntryPointQueryResult *);
static cudaError_t (*free_it)(void *);
#define cudaGetDriverEntryPointByVersion entry_point
#define cudaFree free_it
#include "exercise.h"
#undef cudaFree

#define GET(variable, name) *(void **)&variable = dlsym(runtime, name)

static cudaError_t (*copy)(void *, const void *, size_t, enum cudaMemcpyKind);
static int download(void *host, const void *device, size_t bytes) {
    return copy(host, device, bytes, cudaMemcpyDeviceToHost);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "libcudart.so.13";
    void *runtime = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!runtime) FAIL("%s", dlerror());
    struct memory_calls m = {.download = download};
    GET(entry_point, "cudaGetDriverEntryPointByVersion");
    GET(free_it, "cudaFree");
    GET(copy, "cudaMemcpy");
    GET(m.alloc, "cudaMalloc");
    GET(m.free, "cudaFree");
    GET(m.info, "cudaMemGetInfo");
    tk_init_runtime();
    int n = exercise(&m);
    printf("ok allocs=%d\n", n);
    return 0;
}
