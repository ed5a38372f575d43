/* Looks the functions of include/gpucache.h up by name, and threads use them while others allocate. */
#define _GNU_SOURCE
#include <cuda.h>

#include "check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>

static int stop;

static void *churn(void *ctx) {
    OK(cuCtxSetCurrent(ctx));
    for (unsigned i = 0; !__atomic_load_n(&stop, __ATOMIC_ACQUIRE); i++) {
        CUdeviceptr p;
        OK(cuMemAlloc(&p, 1 << (12 + i % 12)));
        OK(cuMemFree(p));
    }
    return NULL;
}

int main(void) {
    uint64_t (*empty)(void);
    uint64_t (*allocated)(int);
    uint64_t (*reserved)(int);
    int (*mark)(const char *);
    int (*set_limit)(int, uint64_t);
    int64_t (*json)(char *, size_t);
    *(void **)&empty = dlsym(RTLD_DEFAULT, "gpucache_empty_cache");
    *(void **)&allocated = dlsym(RTLD_DEFAULT, "gpucache_memory_allocated");
    *(void **)&reserved = dlsym(RTLD_DEFAULT, "gpucache_max_memory_reserved");
    *(void **)&mark = dlsym(RTLD_DEFAULT, "gpucache_mark");
    *(void **)&set_limit = dlsym(RTLD_DEFAULT, "gpucache_set_limit");
    *(void **)&json = dlsym(RTLD_DEFAULT, "gpucache_stats_json");
    ASSERT(!!empty == !!mark && !!empty == !!json);
    CUcontext ctx;
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&ctx, 0, 0));
    pthread_t thread[3];
    for (int t = 0; t < 3; t++) EXPECT(pthread_create(&thread[t], NULL, churn, ctx), 0);
    for (int i = 0; i < 300 && empty; i++) {
        char name[32], text[4096];
        snprintf(name, sizeof name, "phase %d", i % 100);
        OK(mark(name));
        if (i % 10 == 0) empty();
        OK(set_limit(0, (uint64_t)(i % 2 ? 64 : 512) << 20));
        ASSERT(allocated(0) <= 3ull << 24);
        ASSERT(reserved(0) <= 512ull << 20);
        ASSERT(json(text, sizeof text) > 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (int t = 0; t < 3; t++) pthread_join(thread[t], NULL);
    if (allocated) EXPECT(allocated(0), 0);
    OK(cuCtxDestroy(ctx));
    printf("ok\n");
    return 0;
}
