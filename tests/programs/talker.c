/*
 * Does what it is told, line by line on its standard input, and makes a file `done-N` in its folder after the N-th:
 *
 *   alloc MIB COUNT    blocks that stay
 *   free COUNT         the last ones of them
 *   pairs COUNT        allocations of 4096 bytes, freed at once
 *   churn              such pairs until there is a file `stop`
 *   device N           the device of what follows
 *   async MIB          memory outside the pool
 *   oom MIB            an allocation that must fail
 *   limit MIB          sets the cap itself
 *   info               prints what cudaMemGetInfo tells
 *   fork               a child that uses no CUDA and stays for three seconds
 *   small-files KIB    initialises CUDA, then makes longer files impossible
 *   exec PROGRAM       becomes another program
 *   segv|abort|exit
 */
#define _GNU_SOURCE
#include <cuda_runtime.h>
#include <gpucache.h>

#include "check.h"

#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void *block[10000];
static int blocks;

int main(void) {
    char line[4096], name[4200], what[32], rest[4000];
    int lines = 0;
    setvbuf(stdin, NULL, _IONBF, 0); /* what follows an `exec` is the next program's */
    while (fgets(line, sizeof line, stdin)) {
        int a = 0, b = 0;
        void *p;
        rest[0] = 0;
        if (sscanf(line, "%31s", what) != 1) continue;
        sscanf(line, "%*s %d %d", &a, &b);
        sscanf(line, "%*s %3999s", rest);
        if (!strcmp(what, "alloc")) {
            while (b-- > 0) OK(cudaMalloc(&block[blocks++], (size_t)a << 20));
        } else if (!strcmp(what, "free")) {
            while (a-- > 0) OK(cudaFree(block[--blocks]));
        } else if (!strcmp(what, "pairs")) {
            while (a-- > 0) {
                OK(cudaMalloc(&p, 4096));
                OK(cudaFree(p));
            }
        } else if (!strcmp(what, "churn")) {
            while (access("stop", F_OK)) {
                for (int i = 0; i < 64; i++) {
                    OK(cudaMalloc(&p, 4096));
                    OK(cudaFree(p));
                }
                usleep(1000);
            }
        } else if (!strcmp(what, "device")) {
            OK(cudaSetDevice(a));
        } else if (!strcmp(what, "async")) {
            OK(cudaMallocAsync(&p, (size_t)a << 20, 0));
        } else if (!strcmp(what, "oom")) {
            EXPECT(cudaMalloc(&p, (size_t)a << 20), 2);
            cudaGetLastError();
        } else if (!strcmp(what, "limit")) {
            EXPECT(gpucache_set_limit(-1, (uint64_t)a << 20), 0);
        } else if (!strcmp(what, "info")) {
            size_t free_bytes, total;
            OK(cudaMemGetInfo(&free_bytes, &total));
            printf("info%d free=%zu total=%zu\n", lines, free_bytes, total);
            fflush(stdout);
        } else if (!strcmp(what, "fork")) {
            pid_t child = fork();
            if (child == 0) {
                for (int fd = 0; fd < 3; fd++) close(fd);
                sleep(3);
                _exit(0);
            }
        } else if (!strcmp(what, "small-files")) {
            struct rlimit limit = {(rlim_t)a << 10, (rlim_t)a << 10};
            OK(cudaSetDevice(0));
            EXPECT(setrlimit(RLIMIT_FSIZE, &limit), 0);
        } else if (!strcmp(what, "exec")) {
            execl(rest, rest, (char *)NULL);
            FAIL("exec %s", rest);
        } else if (!strcmp(what, "segv")) *(volatile int *)8 = 1;
        else if (!strcmp(what, "abort")) abort();
        else if (!strcmp(what, "exit")) return 0;
        else FAIL("what is %s?", what);
        snprintf(name, sizeof name, "done-%d", ++lines);
        int file = open(name, O_CREAT | O_WRONLY, 0600);
        ASSERT(file >= 0);
        close(file);
    }
    return 0;
}
