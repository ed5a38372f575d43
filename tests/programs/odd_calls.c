/*
 * Functions that are seldom called, and arguments that no header names: unknown flags, modes, attributes and kinds, null
 * outputs, handles of nothing. Prints the code of each call; all of them are the driver's to answer.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>

#include "check.h"

typedef unsigned long long word;
static word p, out[16];
static void *libcuda;

/* By name and not by prototype: what is passed is what the prototype would not let through. */
static void call(const char *name, word a, word b, word c, word d, word e, word f) {
    int (*function)(word, word, word, word, word, word);
    *(void **)&function = dlsym(libcuda, name);
    if (!function) {
        printf("%s: not there\n", name);
        return;
    }
    static int calls;
    printf("%d: %s gives %d\n", ++calls, name, function(a, b, c, d, e, f));
}

int main(void) {
    const word to = (word)out, none = 0x12345, mib = 1 << 20;
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    libcuda = dlopen("libcuda.so.1", RTLD_NOW);
    ASSERT(libcuda);
    CUdeviceptr block;
    OK(cuMemAlloc(&block, mib));
    p = block;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAllocationProp odd = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {(CUmemLocationType)77, 5}};

    call("cuInit", 7, 0, 0, 0, 0, 0);
    call("cuDevicePrimaryCtxRetain", to, 99, 0, 0, 0, 0);
    call("cuDevicePrimaryCtxRelease_v2", 99, 0, 0, 0, 0, 0);
    call("cuDevicePrimaryCtxReset_v2", 99, 0, 0, 0, 0, 0);
    call("cuCtxCreate_v2", to, 0, 99, 0, 0, 0);
    call("cuCtxDestroy_v2", 0, 0, 0, 0, 0, 0);

    call("cuMemAlloc_v2", 0, mib, 0, 0, 0, 0);
    call("cuMemAlloc_v2", to, 0, 0, 0, 0, 0);
    call("cuMemFree_v2", none, 0, 0, 0, 0, 0);
    call("cuMemFree_v2", p + 512, 0, 0, 0, 0, 0);
    call("cuMemAllocManaged", to, mib, 0x80, 0, 0, 0);
    call("cuMemAllocManaged", to, mib, 0, 0, 0, 0);
    call("cuMemAllocManaged", 0, mib, 1, 0, 0, 0);
    call("cuMemAllocPitch_v2", to, to + 8, 100, 10, 3, 0);
    call("cuMemAllocPitch_v2", to, to + 8, 0, 10, 4, 0);
    call("cuMemAllocPitch_v2", 0, 0, 100, 10, 4, 0);
    call("cuMemAllocAsync", 0, mib, 0, 0, 0, 0);
    call("cuMemAllocAsync", to, 0, 0, 0, 0, 0);
    call("cuMemFreeAsync", none, 0, 0, 0, 0, 0);
    call("cuMemFreeAsync", p + 512, 0, 0, 0, 0, 0);

    call("cuMemCreate", to, 2 * mib, (word)&prop, 1, 0, 0);
    call("cuMemCreate", to, 2 * mib, (word)&odd, 0, 0, 0);
    call("cuMemCreate", 0, 2 * mib, (word)&prop, 0, 0, 0);
    call("cuMemCreate", to, 2 * mib, 0, 0, 0, 0);
    call("cuMemRelease", none, 0, 0, 0, 0, 0);
    call("cuMemMap", none, 2 * mib, 0, none, 0, 0);
    call("cuMemUnmap", none, 2 * mib, 0, 0, 0, 0);
    call("cuMemRetainAllocationHandle", to, none, 0, 0, 0, 0);
    call("cuMemImportFromShareableHandle", to, -1ull, 99, 0, 0, 0);
    call("cuArrayCreate_v2", to, 0, 0, 0, 0, 0);
    call("cuArrayDestroy", none, 0, 0, 0, 0, 0);
    call("cuMipmappedArrayDestroy", none, 0, 0, 0, 0, 0);

    call("cuMemGetAddressRange_v2", 0, 0, p, 0, 0, 0);
    call("cuPointerGetAttribute", to, 999, p, 0, 0, 0);
    call("cuPointerGetAttribute", to, 0, p, 0, 0, 0);
    call("cuPointerGetAttribute", to, 16, p, 0, 0, 0);
    call("cuPointerGetAttribute", 0, 11, p, 0, 0, 0);
    call("cuPointerGetAttribute", to, 11, none, 0, 0, 0);
    call("cuPointerGetAttributes", 0, 0, 0, p, 0, 0);
    call("cuIpcGetMemHandle", to, none, 0, 0, 0, 0);
    call("cuIpcCloseMemHandle", none, 0, 0, 0, 0, 0);
    call("cuMemGetHandleForAddressRange", to, p, mib, 99, 0, 0);
    call("cuMemGetHandleForAddressRange", to, p, mib, 1, 7, 0);
    call("cuDeviceTotalMem_v2", to, 99, 0, 0, 0, 0);
    call("cuDeviceTotalMem_v2", 0, 0, 0, 0, 0, 0);

    call("cuStreamBeginCapture_v2", 0, 77, 0, 0, 0, 0);
    call("cuStreamEndCapture", 0, to, 0, 0, 0, 0);
    call("cuGetProcAddress_v2", (word) "cuNoSuchFunction", to, 12000, 0, 0, 0);
    OK(cuMemFree(block));
    OK(cuCtxSynchronize());
    printf("ok\n");
    return 0;
}
