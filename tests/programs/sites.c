/*
 * Places that allocate, each known by the name of its function and by what it keeps: a leak, a place that gives all of it
 * back, the two ends of a recursion, a thread, a library that is loaded and unloaded, memory outside the pool, a free that
 * fails, and what a context takes along when it ends.
 *
 *   sites PART…
 */
#define _GNU_SOURCE
#include <cuda_runtime.h>

#include "check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define PLACE __attribute__((noinline, noclone))

/* Keeps a call from becoming a jump, which would leave no frame of the caller. */
static volatile int after;

PLACE static void *leaks_here(size_t bytes) {
    void *p;
    OK(cudaMalloc(&p, bytes));
    after++;
    return p;
}

PLACE static void *gives_back_here(size_t bytes) {
    void *p;
    OK(cudaMalloc(&p, bytes));
    after++;
    return p;
}

PLACE static void *descends(int depth, size_t bytes) {
    void *p = depth ? descends(depth - 1, bytes) : leaks_here(bytes);
    after++;
    return p;
}

PLACE static void *of_a_thread(void *bytes) {
    void *p = leaks_here((size_t)bytes);
    after++;
    return p;
}

PLACE static void *in_stream_order(size_t bytes) {
    void *p;
    OK(cudaMallocAsync(&p, bytes, 0));
    after++;
    return p;
}

PLACE static void managed(void) {
    void *p;
    OK(cudaMallocManaged(&p, 3 * MIB, cudaMemAttachGlobal));
    after++;
}

static void *loads(void *unused) {
    if (!dlopen("libsitesloading.so", RTLD_NOW | RTLD_LOCAL)) FAIL("%s", dlerror());
    return unused;
}

/* Allocates while another thread is in a constructor, with the loader's lock held, that goes on when that is done; or ends. */
PLACE static void while_loading(int leave) {
    int begun[2], done[2];
    char byte = 0;
    pthread_t thread;
    OK(cudaFree(0)); /* what the runtime and the driver need of the loader; a first allocation needs nothing more */
    EXPECT(pipe(begun) | pipe(done), 0);
    EXPECT(dup2(begun[1], 100), 100);
    EXPECT(dup2(done[0], 101), 101);
    EXPECT(pthread_create(&thread, NULL, loads, NULL), 0);
    EXPECT(read(begun[0], &byte, 1), 1);
    if (leave) _exit(3);
    leaks_here(MIB);
    EXPECT(write(done[1], &byte, 1), 1);
    pthread_join(thread, NULL);
}

PLACE static void part(const char *name) {
    if (!strcmp(name, "leak")) {
        for (volatile int i = 0; i < 3; i++) leaks_here(4 * MIB);
    } else if (!strcmp(name, "churn")) {
        for (int i = 0; i < 50; i++) OK(cudaFree(gives_back_here(16 * MIB)));
    } else if (!strcmp(name, "peak")) {
        void *p[4];
        for (volatile int i = 0; i < 4; i++) p[i] = gives_back_here(32 * MIB);
        for (int i = 0; i < 4; i++) OK(cudaFree(p[i]));
    } else if (!strcmp(name, "recursion")) {
        for (volatile int depth = 1; depth <= 200; depth += 199) descends(depth, MIB);
    } else if (!strcmp(name, "thread")) {
        pthread_t thread;
        EXPECT(pthread_create(&thread, NULL, of_a_thread, (void *)(8 * MIB)), 0);
        pthread_join(thread, NULL);
    } else if (!strncmp(name, "library", 7)) {
        void *library = dlopen("libsitesplugin.so", RTLD_NOW | RTLD_LOCAL);
        if (!library) FAIL("%s", dlerror());
        void *(*allocate)(size_t);
        *(void **)&allocate = dlsym(library, "plugin_allocates");
        ASSERT(allocate != NULL);
        allocate(2 * MIB);
        if (!strcmp(name, "library-gone")) dlclose(library);
    } else if (!strcmp(name, "outside")) {
        void *kept = in_stream_order(5 * MIB), *given = in_stream_order(5 * MIB);
        (void)kept;
        OK(cudaFreeAsync(given, 0));
        managed();
    } else if (!strcmp(name, "failing-free")) {
        char *p = leaks_here(MIB);
        EXPECT(cudaFree(p + 512), cudaErrorInvalidValue);
        cudaGetLastError();
    } else if (!strcmp(name, "refused")) {
        /* Of a driver that was told to refuse. */
        void *p = in_stream_order(7 * MIB);
        EXPECT(cudaFreeAsync(p, 0), cudaErrorInvalidValue);
        cudaGetLastError();
    } else if (!strcmp(name, "loading")) {
        while_loading(0);
    } else if (!strcmp(name, "exit-while-loading")) {
        while_loading(1);
    } else if (!strcmp(name, "reset")) {
        leaks_here(64 * MIB);
        OK(cudaDeviceReset());
    } else if (!strcmp(name, "small")) {
        for (int i = 0; i < 20000; i++) {
            void *p = leaks_here(i % 2 ? 2048 : 512);
            if (i % 4) OK(cudaFree(p));
        }
    } else {
        FAIL("no part %s", name);
    }
    after++;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) part(argv[i]);
    return 0;
}
