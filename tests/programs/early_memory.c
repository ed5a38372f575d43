/*
 * Memory that was there before anything was intercepted: made by the driver's own functions (found without
 * asking the dynamic linker), freed by the ones that programs are handed. It works, and nothing is counted that was never charged.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>

#include "check.h"

#include <link.h>
#include <string.h>

static void *libcuda;

/* Read off the driver's table of symbols. The linkers lay the names right behind it. */
static void *own(const char *name) {
    struct link_map *map = NULL;
    const ElfW(Sym) *symbol = NULL;
    const char *names = NULL;
    EXPECT(dlinfo(libcuda, RTLD_DI_LINKMAP, &map), 0);
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB) symbol = (const void *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_STRTAB) names = (const void *)entry->d_un.d_ptr;
    }
    for (; (const char *)symbol < names; symbol++)
        if (symbol->st_value && !strcmp(names + symbol->st_name, name)) return (void *)(map->l_addr + symbol->st_value);
    FAIL("the driver has no %s", name);
}

static void *handed(const char *name) {
    void *function = dlsym(libcuda, name);
    if (!function) FAIL("%s: %s", name, dlerror());
    return function;
}

int main(void) {
    libcuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!libcuda) FAIL("%s", dlerror());
    CUcontext context;
    CUdeviceptr plain, ordered, managed, later;
    OK(((CUresult(*)(unsigned))own("cuInit"))(0));
    OK(((CUresult(*)(CUcontext *, CUdevice))own("cuDevicePrimaryCtxRetain"))(&context, 0));
    OK(((CUresult(*)(CUcontext))own("cuCtxSetCurrent"))(context));
    OK(((CUresult(*)(CUdeviceptr *, size_t))own("cuMemAlloc_v2"))(&plain, 3 << 20));
    OK(((CUresult(*)(CUdeviceptr *, size_t, CUstream))own("cuMemAllocAsync"))(&ordered, 5 << 20, NULL));
    OK(((CUresult(*)(CUdeviceptr *, size_t, unsigned))own("cuMemAllocManaged"))(&managed, 7 << 20, 1));

    CUresult (*release)(CUdeviceptr) = (CUresult(*)(CUdeviceptr))handed("cuMemFree_v2");
    CUresult (*release_async)(CUdeviceptr, CUstream) = (CUresult(*)(CUdeviceptr, CUstream))handed("cuMemFreeAsync");
    OK(((CUresult(*)(CUdeviceptr *, size_t))handed("cuMemAlloc_v2"))(&later, 3 << 20));
    OK(release(plain));
    EXPECT(release(plain), CUDA_ERROR_INVALID_VALUE);
    OK(release_async(ordered, NULL));
    OK(release(managed));
    OK(release(later));
    printf("ok allocs=1\n");
    return 0;
}
