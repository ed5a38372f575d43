/*
 * A signal handler ends the process in the middle of malloc. `_exit` is allowed there, so nothing that happens in it may
 * need malloc: the interrupted thread holds the allocator's lock.
 *
 *   exit_in_handler _exit|_Exit|quick_exit
 *
 * To hit that moment every time, the header of a free chunk is made inaccessible, and the next malloc that looks at it
 * faults.
 */
#define _GNU_SOURCE
#include <cuda.h>

#include "check.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *way = "_exit";

static void on_fault(int signal) {
    (void)signal;
    if (!strcmp(way, "_Exit")) _Exit(3);
    if (!strcmp(way, "quick_exit")) quick_exit(3);
    _exit(3);
}

/* With a second thread in the process malloc locks. */
static void *idle(void *unused) {
    pause();
    return unused;
}

int main(int argc, char **argv) {
    if (argc > 1) way = argv[1];
    CUcontext context;
    CUdeviceptr p;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&p, 64 << 20));
    pthread_t thread;
    pthread_create(&thread, NULL, idle, NULL);

    mallopt(M_MMAP_THRESHOLD, 16 << 20);
    /* Too large for a hole that somebody has left in the heap: then `block` would follow on what is another's. */
    enum { PAD = 1 << 20, BLOCK = 1 << 20 };
    volatile char *before = malloc(PAD), *block = malloc(BLOCK), *after = malloc(PAD);
    ASSERT(before && after && block == before + PAD + 16);
    /* The page of the chunk's header holds nothing but the end of `before` and the chunk itself. */
    uintptr_t size = sysconf(_SC_PAGESIZE), page = ((uintptr_t)block - 16) & ~(size - 1);
    free((void *)block);
    OK(mprotect((void *)page, size, PROT_NONE));
    signal(SIGSEGV, on_fault);
    volatile char *faults = malloc(BLOCK - 4096);
    FAIL("malloc went around the trap: %p", (void *)faults);
}
