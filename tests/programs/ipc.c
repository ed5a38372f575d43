/*
 * Exports blocks to another process, which must find each block's own bytes, or an error; never other bytes.
 *
 *   ipc with|without     the other process inherits LD_PRELOAD, or does not
 *   ipc older            it does, and opens the handles by the driver's function of before CUDA 11
 */
#define _GNU_SOURCE
#include <cuda_runtime.h>

#include "testkernels.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 6, WORDS = 1024 };

/* By value, as a struct of 64 bytes. */
typedef int (*open_older)(unsigned long long *pointer, cudaIpcMemHandle_t handle, unsigned flags);

static int import(int older) {
    int refused = 0;
    open_older open = NULL;
    if (older) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        ASSERT(driver);
        *(void **)&open = dlsym(driver, "cuIpcOpenMemHandle");
        ASSERT(open);
    }
    for (int i = 0; i < BLOCKS; i++) {
        cudaIpcMemHandle_t handle;
        static uint32_t host[WORDS];
        void *p = NULL;
        EXPECT(read(0, &handle, sizeof handle), sizeof handle);
        cudaError_t e;
        if (open) {
            unsigned long long address = 0;
            e = (cudaError_t)open(&address, handle, 1);
            p = (void *)address;
        } else {
            e = cudaIpcOpenMemHandle(&p, handle, cudaIpcMemLazyEnablePeerAccess);
        }
        if (e != cudaSuccess) {
            EXPECT(e, cudaErrorInvalidValue);
            refused++;
            continue;
        }
        OK(cudaMemcpy(host, p, sizeof host, cudaMemcpyDeviceToHost));
        for (unsigned w = 0; w < WORDS; w++)
            if (host[w] != 100000u * (i + 1) + w) FAIL("block %d, word %u: %u of another block", i, w, host[w]);
        OK(launch_add1(NULL, p, WORDS, 1000));
        OK(cudaDeviceSynchronize());
        OK(cudaIpcCloseMemHandle(p));
        EXPECT(cudaIpcCloseMemHandle(p), cudaErrorInvalidValue);
    }
    return 10 + refused;
}

int main(int argc, char **argv) {
    const char *role = argc > 1 ? argv[1] : "with";
    tk_init_runtime();
    if (!strcmp(role, "import") || !strcmp(role, "import-older")) return import(!strcmp(role, "import-older"));
    int pipes[2];
    cudaIpcMemHandle_t handle[BLOCKS];
    void *block[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        OK(cudaMalloc(&block[i], i < 3 ? 8192 : 3 << 20));
        OK(launch_fill(NULL, block[i], WORDS, 100000u * (i + 1), 1000));
    }
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < BLOCKS; i++) OK(cudaIpcGetMemHandle(&handle[i], block[i]));
    EXPECT(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipes[0], 0);
        close(pipes[1]);
        if (!strcmp(role, "without")) unsetenv("LD_PRELOAD");
        execl("/proc/self/exe", "ipc", strcmp(role, "older") ? "import" : "import-older", (char *)NULL);
        _exit(99);
    }
    close(pipes[0]);
    EXPECT(write(pipes[1], handle, sizeof handle), sizeof handle);
    int status = 0;
    EXPECT(waitpid(child, &status, 0), child);
    ASSERT(WIFEXITED(status) && WEXITSTATUS(status) >= 10 && WEXITSTATUS(status) <= 10 + BLOCKS);
    int refused = WEXITSTATUS(status) - 10, changed = 0;
    for (int i = 0; i < BLOCKS; i++) {
        uint32_t word;
        OK(cudaMemcpy(&word, block[i], 4, cudaMemcpyDeviceToHost));
        changed += word == 100000u * (i + 1) + 1;
        OK(cudaFree(block[i]));
    }
    EXPECT(changed, BLOCKS - refused);
    printf("imported=%d refused=%d\n", BLOCKS - refused, refused);
    return 0;
}
