/*
 * Route: cuGetProcAddress of both forms, at several versions and with every flag; with and without a place for the
 * symbol's status; and asking the resolver for itself first, over and over.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#undef cuGetProcAddress

#define TK_NO_DRIVER_LINK
#include "exercise.h"

typedef CUresult (*resolver_v1)(const char *, void **, int, cuuint64_t);
typedef CUresult (*resolver_v2)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static resolver_v1 v1;
static resolver_v2 v2;
static int form, version, flags, sizes_used = 5;

static void *find_at(const char *name, int at) {
    void *function = (void *)1;
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77;
    if (form == 1) OK(v1(name, &function, at, (cuuint64_t)flags));
    if (form == 2) OK(v2(name, &function, at, (cuuint64_t)flags, NULL));
    if (form == 3) {
        OK(v2(name, &function, at, (cuuint64_t)flags, &status));
        EXPECT(status, CU_GET_PROC_ADDRESS_SUCCESS);
    }
    ASSERT(function != NULL && function != (void *)1);
    return function;
}

static void *find(const char *name) { return find_at(name, version); }

static int total;

static void use(void) {
    struct memory_calls m;
    *(void **)&m.alloc = find("cuMemAlloc");
    *(void **)&m.free = find("cuMemFree");
    *(void **)&m.info = find("cuMemGetInfo");
    *(void **)&m.download = find("cuMemcpyDtoH");
    tk_init_from(find);
    total += exercise_some(&m, sizes_used);
}

int main(void) {
    void *libcuda = dlopen("libcuda.so.1", RTLD_NOW);
    ASSERT(libcuda != NULL);
    *(void **)&v1 = dlsym(libcuda, "cuGetProcAddress");
    *(void **)&v2 = dlsym(libcuda, "cuGetProcAddress_v2");
    ASSERT(v1 && v2);
    CUresult (*init)(unsigned), (*retain)(CUcontext *, CUdevice), (*set)(CUcontext);
    form = 2, version = 12000;
    *(void **)&init = find("cuInit");
    *(void **)&retain = find("cuDevicePrimaryCtxRetain");
    *(void **)&set = find("cuCtxSetCurrent");
    CUcontext context;
    OK(init(0));
    OK(retain(&context, 0));
    OK(set(context));

    static const int versions[] = {4000, 7000, 11030, 12000, 13000};
    for (unsigned i = 0; i < sizeof versions / sizeof *versions; i++)
        for (flags = 0; flags <= 2; flags++)
            for (form = 1; form <= 3; form++) {
                version = versions[i];
                use();
            }
    /* The resolver that the resolver hands out, three deep, in each form. */
    flags = 0, version = 13000;
    form = 1;
    for (int depth = 0; depth < 3; depth++) *(void **)&v1 = find_at("cuGetProcAddress", 11030);
    use();
    form = 2;
    for (int depth = 0; depth < 3; depth++) *(void **)&v2 = find_at("cuGetProcAddress", 12000);
    use();
    form = 3;
    sizes_used = 8;
    use();
    /* What does not exist is said so, in each form. */
    void *none = (void *)1;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    EXPECT(v1("cuNoSuchFunction", &none, 12000, 0), CUDA_ERROR_NOT_FOUND);
    EXPECT(v2("cuNoSuchFunction", &none, 12000, 0, NULL), CUDA_ERROR_NOT_FOUND);
    EXPECT(v2("cuNoSuchFunction", &none, 12000, 0, &status), CUDA_ERROR_NOT_FOUND);
    EXPECT(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    printf("ok allocs=%d\n", total);
    return 0;
}
