/* Lookups that look like unknown driver functions and are none; and one that is. */
#define _GNU_SOURCE
#include <cuda.h>

#include "check.h"

#include <dlfcn.h>

int main(void) {
    CUcontext context;
    CUdeviceptr p;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&p, 1 << 20));
    void *own = dlopen("libfakeblas.so", RTLD_NOW | RTLD_LOCAL);
    ASSERT(own && dlsym(own, "cuMemAllocFast"));
    void *all = dlopen(NULL, RTLD_NOW);
    ASSERT(dlsym(all, "cuMemAlloc_v2") == dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    ASSERT(dlsym(all, "cuMemAlloc_v2"));
    return 0;
}
