/* The first CUDA call of the process is the resolver; then an allocation before cuInit, then one without a context. */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#undef cuGetProcAddress

#include "check.h"

int main(void) {
    void *libcuda = dlopen("libcuda.so.1", RTLD_NOW);
    ASSERT(libcuda);
    CUresult (*resolve)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
    *(void **)&resolve = dlsym(libcuda, "cuGetProcAddress_v2");
    CUresult (*init)(unsigned), (*alloc)(CUdeviceptr *, size_t), (*release)(CUdeviceptr);
    CUresult (*retain)(CUcontext *, CUdevice), (*set)(CUcontext), (*info)(size_t *, size_t *);
    OK(resolve("cuMemAlloc", (void **)&alloc, 12000, 0, NULL));
    OK(resolve("cuMemFree", (void **)&release, 12000, 0, NULL));
    OK(resolve("cuMemGetInfo", (void **)&info, 12000, 0, NULL));
    OK(resolve("cuInit", (void **)&init, 12000, 0, NULL));
    OK(resolve("cuDevicePrimaryCtxRetain", (void **)&retain, 12000, 0, NULL));
    OK(resolve("cuCtxSetCurrent", (void **)&set, 12000, 0, NULL));
    CUdeviceptr p = 0x1234;
    size_t f = 1, t = 2;
    EXPECT(alloc(&p, 4096), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(release(p), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(info(&f, &t), CUDA_ERROR_NOT_INITIALIZED);
    ASSERT(p == 0x1234 && f == 1 && t == 2);
    OK(init(0));
    EXPECT(alloc(&p, 4096), CUDA_ERROR_INVALID_CONTEXT);
    ASSERT(p == 0x1234);
    CUcontext context;
    OK(retain(&context, 0));
    OK(set(context));
    OK(alloc(&p, 4096));
    OK(release(p));
    printf("ok allocs=1\n");
    return 0;
}
