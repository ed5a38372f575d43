/*
 * The same function by symbol, by dlsym and by the resolver at several versions and flags: equal interfaces are one
 * function, different interfaces are different functions, and each does what its interface says.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>

#include "testkernels.h"

static void *libcuda;

static void *by_resolver(const char *name, int version, int flags) {
    void *f = NULL;
    OK(cuGetProcAddress(name, &f, version, (cuuint64_t)flags, NULL));
    return f;
}

/* One allocation through whatever pointer was handed out. */
static int made;
static void works(void *alloc, void *release) {
    CUdeviceptr p = 0;
    OK(((CUresult(*)(CUdeviceptr *, size_t))alloc)(&p, 100000));
    ASSERT(p);
    OK(((CUresult(*)(CUdeviceptr))release)(p));
    made++;
}

int main(void) {
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    libcuda = dlopen("libcuda.so.1", RTLD_NOW);
    works((void *)cuMemAlloc, (void *)cuMemFree);
    works(dlsym(libcuda, "cuMemAlloc_v2"), dlsym(libcuda, "cuMemFree_v2"));
    works(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), dlsym(RTLD_DEFAULT, "cuMemFree_v2"));
    static const int versions[] = {3020, 4000, 11030, 12000, 12050, 13000};
    for (unsigned v = 0; v < sizeof versions / sizeof *versions; v++)
        for (int flags = 0; flags <= 2; flags++)
            works(by_resolver("cuMemAlloc", versions[v], flags), by_resolver("cuMemFree", versions[v], flags));

    /* One interface, one function. */
    ASSERT(dlsym(libcuda, "cuMemAlloc_v2") == by_resolver("cuMemAlloc", 3020, 0));
    ASSERT(by_resolver("cuMemAlloc", 3020, 0) == by_resolver("cuMemAlloc", 13000, 2));
    ASSERT(dlsym(libcuda, "cuMemAllocAsync") == by_resolver("cuMemAllocAsync", 12000, 0));
    ASSERT(dlsym(libcuda, "cuMemAllocAsync") == by_resolver("cuMemAllocAsync", 12000, 1));
    ASSERT(dlsym(libcuda, "cuMemAllocAsync_ptsz") == by_resolver("cuMemAllocAsync", 12000, 2));
    ASSERT(dlsym(libcuda, "cuGetProcAddress") == by_resolver("cuGetProcAddress", 11030, 0));
    ASSERT(dlsym(libcuda, "cuGetProcAddress_v2") == by_resolver("cuGetProcAddress", 12000, 0));
    /* Different interfaces, different functions. */
    ASSERT(by_resolver("cuMemAllocAsync", 12000, 0) != by_resolver("cuMemAllocAsync", 12000, 2));
    ASSERT(by_resolver("cuMemFreeAsync", 12000, 0) != by_resolver("cuMemFreeAsync", 12000, 2));
    ASSERT(by_resolver("cuStreamBeginCapture", 12000, 0) != by_resolver("cuStreamBeginCapture", 12000, 2));
    ASSERT(by_resolver("cuGetProcAddress", 11030, 0) != by_resolver("cuGetProcAddress", 12000, 0));

    /* The oldest interface, with 32-bit addresses, is not the one that programs mean. */
    ASSERT(dlsym(libcuda, "cuMemAlloc") == NULL || dlsym(libcuda, "cuMemAlloc") != dlsym(libcuda, "cuMemAlloc_v2"));
    ASSERT(dlsym(libcuda, "cuMemAlloc") == by_resolver("cuMemAlloc", 2000, 0));
    ASSERT(dlsym(libcuda, "cuMemFree") == by_resolver("cuMemFree", 3010, 0));
    ASSERT(dlsym(libcuda, "cuMemGetInfo") == by_resolver("cuMemGetInfo", 2000, 0));
    ASSERT(by_resolver("cuCtxSynchronize", 12000, 0) != by_resolver("cuCtxSynchronize", 13000, 0));
    ASSERT(by_resolver("cuCtxGetDevice", 12000, 0) != by_resolver("cuCtxGetDevice", 13000, 0));

    /* The asynchronous pair in both kinds of default stream. */
    for (int flags = 0; flags <= 2; flags++) {
        CUdeviceptr p = 0;
        CUresult (*alloc)(CUdeviceptr *, size_t, CUstream), (*release)(CUdeviceptr, CUstream);
        *(void **)&alloc = by_resolver("cuMemAllocAsync", 11020, flags);
        *(void **)&release = by_resolver("cuMemFreeAsync", 11020, flags);
        OK(alloc(&p, 1 << 20, NULL));
        OK(release(p, NULL));
    }
    OK(cuCtxSynchronize());
    printf("ok allocs=%d\n", made);
    return 0;
}
