/* Route: dlopen of the driver and dlsym on the handle, as JAX and many bindings do. */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>

#define TK_NO_DRIVER_LINK
#include "exercise.h"

static void *libcuda;
static void *find(const char *name) { return dlsym(libcuda, name); }

#define GET(variable, name) *(void **)&variable = find(name)

int main(void) {
    libcuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    ASSERT(libcuda != NULL);
    CUresult (*init)(unsigned), (*get)(CUdevice *, int), (*retain)(CUcontext *, CUdevice), (*set)(CUcontext);
    GET(init, "cuInit");
    GET(get, "cuDeviceGet");
    GET(retain, "cuDevicePrimaryCtxRetain");
    GET(set, "cuCtxSetCurrent");
    CUdevice device;
    CUcontext context;
    OK(init(0));
    OK(get(&device, 0));
    OK(retain(&context, device));
    OK(set(context));
    tk_init_from(find);
    struct memory_calls m;
    GET(m.alloc, "cuMemAlloc_v2");
    GET(m.free, "cuMemFree_v2");
    GET(m.info, "cuMemGetInfo_v2");
    GET(m.download, "cuMemcpyDtoH_v2");
    int n = exercise(&m);
    ASSERT(dlsym(libcuda, "cuNoSuchFunction") == NULL);
    ASSERT(dlerror() != NULL);
    printf("ok allocs=%d\n", n);
    return 0;
}
