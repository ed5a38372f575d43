/*
 * Blocks of one device used by streams of all the others, freed without waiting, and taken again at once: the barrier
 * has to order the work of every context, not only of the block's own. Also contexts that come and go between.
 *
 *   peers ROUNDS
 */
#include <cuda_runtime.h>

#include "testkernels.h"

enum { MAX = 8, WORDS = 4096, BLOCKS = 12 };
static const size_t BYTES = 4 << 20;

/* Lets every device reach the memory of every other. */
static void let_all_in(int devices) {
    int (*current)(void **context), (*enable)(void *peer, unsigned flags);
    void *context[MAX];
    *(void **)&current = tk_find_by_runtime("cuCtxGetCurrent");
    *(void **)&enable = tk_find_by_runtime("cuCtxEnablePeerAccess");
    for (int d = 0; d < devices; d++) {
        OK(cudaSetDevice(d));
        OK(current(&context[d]));
    }
    for (int d = 0; d < devices; d++) {
        OK(cudaSetDevice(d));
        for (int peer = 0; peer < devices; peer++)
            if (peer != d) OK(enable(context[peer], 0));
    }
}

int main(int argc, char **argv) {
    int devices = 0, rounds = argc > 1 ? atoi(argv[1]) : 10;
    uint64_t *bad;
    cudaStream_t stream[MAX][2];
    struct testkernels kernels[MAX];
    OK(cudaGetDeviceCount(&devices));
    if (devices > MAX) FAIL("more than %d devices", MAX);
    for (int d = 0; d < devices; d++) {
        OK(cudaSetDevice(d));
        tk_init_runtime();
        kernels[d] = tk;
        for (int s = 0; s < 2; s++) OK(cudaStreamCreateWithFlags(&stream[d][s], cudaStreamNonBlocking));
    }
    OK(cudaMallocHost((void **)&bad, sizeof *bad));
    *bad = 0;
    for (int round = 0; round < rounds; round++) {
        /* Not from the start: what has been allocated before becomes reachable, too. */
        if (round == 0) {
            void *early;
            OK(cudaSetDevice(0));
            OK(cudaMalloc(&early, BYTES));
            let_all_in(devices);
            OK(cudaSetDevice(devices - 1));
            tk = kernels[devices - 1];
            OK(launch_fill(stream[devices - 1][0], early, WORDS, 5, 1000));
            OK(launch_check(stream[devices - 1][0], early, WORDS, 5, bad, 1000));
            OK(cudaDeviceSynchronize());
            OK(cudaFree(early));
        }
        for (int d = 0; d < devices; d++) {
            void *p[BLOCKS];
            OK(cudaSetDevice(d));
            for (int i = 0; i < BLOCKS; i++) OK(cudaMalloc(&p[i], BYTES));
            for (int i = 0; i < BLOCKS; i++) {
                /* On another device than the block's, behind work that makes it late. */
                int user = (d + 1 + (i + round) % (devices > 1 ? devices - 1 : 1)) % devices;
                cudaStream_t here = stream[user][(i + round) % 2];
                uint32_t v = 10000 * round + 100 * d + i;
                OK(cudaSetDevice(user));
                tk = kernels[user];
                OK(launch_fill(here, p[i], WORDS, v, 1000));
                OK(launch_spin(here, 2000000 * (i % 3)));
                OK(launch_check(here, p[i], WORDS, v, bad, 1000));
                /* The block's own device waits for it, and the free for that device. */
                cudaEvent_t done;
                OK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
                OK(cudaEventRecord(done, here));
                OK(cudaStreamWaitEvent(stream[d][0], done, 0));
                OK(cudaEventDestroy(done));
            }
            /* Freed with any device current. */
            for (int i = 0; i < BLOCKS; i++) {
                OK(cudaSetDevice(i % devices));
                OK(cudaFree(p[i]));
            }
        }
    }
    for (int d = 0; d < devices; d++) {
        OK(cudaSetDevice(d));
        OK(cudaDeviceSynchronize());
    }
    if (*bad) FAIL("wrong words: %llu", (unsigned long long)*bad);
    printf("ok allocs=%d\n", rounds * devices * BLOCKS + 1);
    return 0;
}
