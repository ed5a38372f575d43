/* Another library for LD_PRELOAD: wraps the runtime's cudaMalloc and one function of libc, and says what it saw. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

static int mallocs, getppids;

int cudaMalloc(void **p, size_t bytes) {
    static int (*next)(void **, size_t);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "cudaMalloc");
    __atomic_add_fetch(&mallocs, 1, __ATOMIC_RELAXED);
    return next ? next(p, bytes) : 999;
}

pid_t getppid(void) {
    static pid_t (*next)(void);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "getppid");
    getppids++;
    return next();
}

int other_preload_counts(int *libc_calls) {
    *libc_calls = getppids;
    return mallocs;
}
