/*
 * Memory shared between processes in unusual ways: many blocks of one region open at once, the same one several times,
 * closed in any order; interior pointers; blocks that are free, managed or of a stream-ordered pool.
 *
 *   shares
 */
#define _GNU_SOURCE
#include <cuda_runtime.h>

#include "testkernels.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 8, WORDS = 256, ROUNDS = 6 };

static void look(const void *p, unsigned block) {
    static uint32_t host[WORDS];
    OK(cudaMemcpy(host, p, sizeof host, cudaMemcpyDeviceToHost));
    for (unsigned w = 0; w < WORDS; w++)
        if (host[w] != 1000u * block + w) FAIL("block %u, word %u: %u", block, w, host[w]);
}

static int import(void) {
    cudaIpcMemHandle_t handle[BLOCKS];
    unsigned seed = 1;
    EXPECT(read(0, handle, sizeof handle), sizeof handle);
    for (int round = 0; round < ROUNDS; round++) {
        void *p[BLOCKS];
        int order[BLOCKS];
        for (int i = 0; i < BLOCKS; i++) {
            OK(cudaIpcOpenMemHandle(&p[i], handle[i], cudaIpcMemLazyEnablePeerAccess));
            order[i] = i;
        }
        for (int i = BLOCKS - 1; i > 0; i--) {
            int j = next_random(&seed) % (i + 1), t = order[i];
            order[i] = order[j];
            order[j] = t;
        }
        for (int i = 0; i < BLOCKS; i++) {
            /* Those that are still open are whole. */
            for (int j = i; j < BLOCKS; j++) look(p[order[j]], order[j] / 2);
            OK(cudaIpcCloseMemHandle(p[order[i]]));
        }
        for (int i = 0; i < BLOCKS; i++) EXPECT(cudaIpcCloseMemHandle(p[i]), cudaErrorInvalidValue);
        void *own;
        OK(cudaMalloc(&own, 1 << 20));
        OK(cudaFree(own));
    }
    return 7;
}

int main(int argc, char **argv) {
    tk_init_runtime();
    if (argc > 1 && !strcmp(argv[1], "import")) return import();
    int pipes[2];
    cudaIpcMemHandle_t handle[BLOCKS], other;
    char *block[BLOCKS / 2];
    void *managed, *async;
    for (int i = 0; i < BLOCKS / 2; i++) {
        OK(cudaMalloc((void **)&block[i], i % 2 ? 4096 : 700000));
        OK(launch_fill(NULL, block[i], WORDS, 1000u * i, 1000));
    }
    OK(cudaDeviceSynchronize());
    /* Each twice: of its start and of an address inside. Both mean the block. */
    for (int i = 0; i < BLOCKS; i++) OK(cudaIpcGetMemHandle(&handle[i], block[i / 2] + (i % 2) * 512));
    OK(cudaMallocManaged(&managed, 4096, cudaMemAttachGlobal));
    OK(cudaMallocAsync(&async, 4096, 0));
    printf("managed %d\n", cudaIpcGetMemHandle(&other, managed));
    printf("async %d\n", cudaIpcGetMemHandle(&other, async));
    printf("host %d\n", cudaIpcGetMemHandle(&other, &other));
    printf("null %d\n", cudaIpcGetMemHandle(&other, NULL));
    OK(cudaFree(managed));
    OK(cudaFreeAsync(async, 0));
    cudaGetLastError();
    EXPECT(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipes[0], 0);
        close(pipes[1]);
        execl("/proc/self/exe", "shares", "import", (char *)NULL);
        _exit(99);
    }
    close(pipes[0]);
    EXPECT(write(pipes[1], handle, sizeof handle), sizeof handle);
    int status = 0;
    EXPECT(waitpid(child, &status, 0), child);
    ASSERT(WIFEXITED(status));
    EXPECT(WEXITSTATUS(status), 7);
    for (int i = 0; i < BLOCKS / 2; i++) OK(cudaFree(block[i]));
    printf("ok\n");
    return 0;
}
