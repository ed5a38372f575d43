/* What an older driver lacks is reported as lacking, by every route; prints what there is. */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#undef cuGetProcAddress

#include "check.h"

int main(void) {
    void *libcuda = dlopen("libcuda.so.1", RTLD_NOW);
    ASSERT(libcuda);
    CUresult (*v1)(const char *, void **, int, cuuint64_t);
    CUresult (*v2)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
    *(void **)&v1 = dlsym(libcuda, "cuGetProcAddress");
    *(void **)&v2 = dlsym(libcuda, "cuGetProcAddress_v2");
    static const char *const names[] = {"cuCtxRecordEvent", "cuCtxWaitEvent", "cuStreamBeginCaptureToGraph",
                                        "cuGetProcAddress_v2", "cuMemAlloc_v2", "cuMemAllocAsync_ptsz"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        printf("%s: dlsym %s\n", names[i], dlsym(libcuda, names[i]) ? "finds it" : "does not");
    static const char *const asked[] = {"cuCtxRecordEvent", "cuCtxWaitEvent", "cuMemAlloc", "cuMemAllocAsync"};
    for (unsigned i = 0; i < sizeof asked / sizeof *asked; i++) {
        void *f = NULL;
        CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
        int r1 = v1 ? (int)v1(asked[i], &f, 12050, 0) : -1;
        printf("%s: form 1 gives %d%s", asked[i], r1, f ? ", a pointer" : "");
        f = NULL;
        int r2 = v2 ? (int)v2(asked[i], &f, 12050, 0, &status) : -1;
        printf("; form 2 gives %d, status %d%s\n", r2, v2 ? (int)status : -1, f ? ", a pointer" : "");
        /* Asked for an interface older than the function. */
        f = NULL;
        r1 = v1 ? (int)v1(asked[i], &f, 2000, 0) : -1;
        printf("%s: at 2000 gives %d%s\n", asked[i], r1, f ? ", a pointer" : "");
    }
    return 0;
}
