/*
 * fork after CUDA use. The children end in the given way while threads of the parent keep allocating, so that any lock
 * may be held at the moment of the fork.
 *
 *   forks exit|_exit|exec|allocate|free|system
 */
#define _GNU_SOURCE
#include <cuda_runtime.h>

#include "check.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int stop;

static void *churn(void *unused) {
    (void)unused;
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        void *p;
        OK(cudaMalloc(&p, 1 << 16));
        OK(cudaFree(p));
    }
    return NULL;
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "exit";
    void *kept;
    OK(cudaMalloc(&kept, 1 << 20));
    int (*release)(unsigned long long);
    OK(cudaGetDriverEntryPointByVersion("cuMemFree", (void **)&release, 12000, 0, NULL));
    pthread_t thread[2];
    for (int t = 0; t < 2; t++) EXPECT(pthread_create(&thread[t], NULL, churn, NULL), 0);
    for (int i = 0; i < 20; i++) {
        fflush(NULL);
        if (!strcmp(way, "system")) {
            EXPECT(system("exit 5"), 5 << 8);
            continue;
        }
        pid_t child = fork();
        if (child == 0) {
            if (!strcmp(way, "_exit")) _exit(5);
            if (!strcmp(way, "exec")) execl("/bin/sh", "sh", "-c", "exit 5", (char *)NULL);
            if (!strcmp(way, "allocate")) {
                /* CUDA in a forked child is an error; it must stay one, and must come back. */
                void *p = NULL;
                _exit(cudaMalloc(&p, 1 << 16) == cudaSuccess ? 6 : 5);
            }
            /* Nor does it give back what is its parent's. */
            if (!strcmp(way, "free")) _exit(release((unsigned long long)kept) == 0 ? 6 : 5);
            exit(5);
        }
        int status = 0;
        EXPECT(waitpid(child, &status, 0), child);
        ASSERT(WIFEXITED(status));
        EXPECT(WEXITSTATUS(status), 5);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (int t = 0; t < 2; t++) pthread_join(thread[t], NULL);
    OK(cudaFree(kept));
    printf("ok\n");
    return 0;
}
