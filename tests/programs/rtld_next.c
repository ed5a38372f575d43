/* RTLD_NEXT, RTLD_DEFAULT and plain handles, from the program and from libraries that define the looked-up name. */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>
#include <string.h>

int probe_id(void);
int first_next(void);
int second_next(void);

int main(void) {
    int (*found)(void);
    EXPECT(probe_id(), 1);
    EXPECT(first_next(), 2);
    EXPECT(second_next(), 0);
    *(void **)&found = dlsym(RTLD_DEFAULT, "probe_id");
    ASSERT(found && found() == 1);
    *(void **)&found = dlsym(RTLD_NEXT, "probe_id");
    ASSERT(found && found() == 1);
    void *self = dlopen(NULL, RTLD_NOW);
    *(void **)&found = dlsym(self, "probe_id");
    ASSERT(found && found() == 1);
    /* A hundred thousand misses: neither recursion nor a slow path. */
    for (int i = 0; i < 100000; i++) ASSERT(dlsym(RTLD_DEFAULT, "no_such_symbol_anywhere") == NULL);
    /* The error text is the caller's, naming the symbol. */
    dlerror();
    ASSERT(dlsym(RTLD_DEFAULT, "cuNoSuchFunction") == NULL);
    const char *error = dlerror();
    ASSERT(error && strstr(error, "cuNoSuchFunction"));
    /* Names of CUDA, without a driver or a runtime in the process: not found, whoever is preloaded. */
    static const char *const names[] = {"cuMemAlloc_v2", "cuGetProcAddress_v2", "cuInit", "cudaMalloc", "cudaFree"};
    for (int i = 0; i < 5; i++) {
        ASSERT(dlsym(RTLD_DEFAULT, names[i]) == NULL);
        ASSERT(dlsym(RTLD_NEXT, names[i]) == NULL);
        ASSERT(dlsym(self, names[i]) == NULL);
    }
    dlerror();
    /* dlsym finds itself. */
    ASSERT(dlsym(RTLD_DEFAULT, "dlsym") == (void *)dlsym);
    printf("ok\n");
    return 0;
}
