/* dlsym on a handle that is not the driver's gives that library's own functions, whatever their names. */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>

int main(void) {
    void *blas = dlopen("libfakeblas.so", RTLD_NOW | RTLD_LOCAL);
    if (!blas) FAIL("%s", dlerror());
    void *libcuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    ASSERT(libcuda);
    static const char *const names[] = {"cuMemAlloc_v2", "cuMemFree_v2", "cuGetProcAddress_v2", "cudaMallocLike",
                                        "cublasCreate_v2", "cuBlasInternal", "curl_easy_init"};
    for (int i = 0; i < 7; i++) {
        int (*f)(void);
        *(void **)&f = dlsym(blas, names[i]);
        ASSERT(f != NULL);
        EXPECT(f(), 4711 + i);
    }
    ASSERT(dlsym(blas, "cudaMalloc") == NULL);
    ASSERT(dlsym(libcuda, "cuMemAlloc_v2") != NULL);
    ASSERT(dlsym(libcuda, "cuMemAlloc_v2") != dlsym(blas, "cuMemAlloc_v2"));
    printf("ok\n");
    return 0;
}
