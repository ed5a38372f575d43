/*
 * A server that looks at the driver without initialising it, and forks workers that do: CUDA allows that. The workers'
 * allocations are pooled, counted and capped like any process's.
 *
 *   fork_first looks_up|version|nothing BLOCKS
 */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *library;

static void *find(const char *name) {
    void *f = dlsym(library, name);
    if (!f) FAIL("no %s", name);
    return f;
}

static int worker(int most) {
    int (*init)(unsigned) = (int (*)(unsigned))find("cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))find("cuDevicePrimaryCtxRetain");
    int (*set)(void *) = (int (*)(void *))find("cuCtxSetCurrent");
    int (*alloc)(unsigned long long *, size_t) = (int (*)(unsigned long long *, size_t))find("cuMemAlloc_v2");
    void *context;
    unsigned long long p;
    int n = 0, e = 0;
    OK(init(0));
    OK(retain(&context, 0));
    OK(set(context));
    while (n < most && (e = alloc(&p, 16 << 20)) == 0) n++;
    if (n < most) EXPECT(e, 2);
    return n;
}

int main(int argc, char **argv) {
    if (argc < 3) FAIL("fork_first WAY BLOCKS");
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) FAIL("%s", dlerror());
    if (!strcmp(argv[1], "looks_up")) find("cuMemAlloc_v2");
    if (!strcmp(argv[1], "version")) {
        int version = 0;
        OK(((int (*)(int *))find("cuDriverGetVersion"))(&version));
        find("cuGetProcAddress");
    }
    pid_t pid = fork();
    if (pid == 0) exit(worker(atoi(argv[2])));
    int status = 0;
    EXPECT(waitpid(pid, &status, 0), pid);
    ASSERT(WIFEXITED(status));
    printf("blocks=%d\n", WEXITSTATUS(status));
    return 0;
}
