/*
 * Names must not appear to exist because the library exports them. The program has a static runtime and has opened
 * driver and shared runtime privately, so the scopes that it asks have neither until it opens them for everybody.
 */
#define _GNU_SOURCE
#include <cuda_runtime.h>

#include "check.h"

#include <dlfcn.h>

static void look(const char *when, void *handle, const char *how) {
    static const char *const names[] = {"cuInit", "cuMemAlloc_v2", "cuMemAlloc", "cudaMalloc", "cudaFree"};
    for (int i = 0; i < 5; i++) {
        dlerror();
        int found = dlsym(handle, names[i]) != NULL;
        int error = dlerror() != NULL;
        printf("%s, %s: %s %s%s\n", when, how, names[i], found ? "found" : "not found", error ? " with an error" : "");
    }
}

static void look_everywhere(const char *when) {
    look(when, RTLD_DEFAULT, "default scope");
    look(when, RTLD_NEXT, "next");
    look(when, dlopen(NULL, RTLD_NOW), "main handle");
}

int main(void) {
    void *p;
    OK(cudaMalloc(&p, 1));
    ASSERT(dlopen("libcudart.so.12", RTLD_NOW | RTLD_LOCAL));
    look_everywhere("private");

    /* A library finds what it was linked with, though nobody else does; and so does one that it was loaded for. */
    void *scoped = dlopen("libscoped.so", RTLD_NOW | RTLD_LOCAL);
    if (!scoped) FAIL("%s", dlerror());
    static const char *const askers[] = {"scoped_default", "scoped_next", "inner_default"};
    for (int i = 0; i < 3; i++) {
        void *(*ask)(const char *);
        *(void **)&ask = dlsym(scoped, askers[i]);
        ASSERT(ask);
        printf("%s: cuMemAlloc_v2 %s, cuMemAllocNever %s\n", askers[i], ask("cuMemAlloc_v2") ? "found" : "not found",
               ask("cuMemAllocNever") ? "found" : "not found");
    }

    ASSERT(dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL));
    look_everywhere("driver for all");
    ASSERT(dlopen("libcudart.so.12", RTLD_NOW | RTLD_GLOBAL));
    look_everywhere("both for all");
    return 0;
}
