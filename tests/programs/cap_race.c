/*
 * Threads that take as much as they get, at once: together they may never pass the cap. Sizes are whole pages of the
 * device, so that what is asked for is what is taken, or with `odd` anything from a few bytes to a few pages.
 *
 *   cap_race THREADS malloc|managed|async|all [odd]
 */
#include <cuda_runtime.h>

#include "check.h"

#include <pthread.h>
#include <string.h>

enum { HELD = 64, HELD_ODD = 512 };
enum kind { MALLOC, MANAGED, ASYNC, ALL };
static enum kind chosen = ALL;
static int odd;

static void *greedy(void *argument) {
    unsigned seed = (unsigned)(unsigned long)argument;
    for (int round = 0; round < 10; round++) {
        void *p[HELD_ODD];
        int kind[HELD_ODD], n = 0;
        for (int i = 0; i < (odd ? HELD_ODD : HELD); i++) {
            size_t bytes = (1 + next_random(&seed) % 16) << 21;
            if (odd) bytes = 1 + next_random(&seed) % (1u << (8 + next_random(&seed) % 16));
            kind[n] = chosen == ALL ? (int)(next_random(&seed) % 3) : (int)chosen;
            cudaError_t e = kind[n] == ASYNC     ? cudaMallocAsync(&p[n], bytes, 0)
                            : kind[n] == MANAGED ? cudaMallocManaged(&p[n], bytes, cudaMemAttachGlobal)
                                                 : cudaMalloc(&p[n], bytes);
            if (e == cudaSuccess) n++;
            else EXPECT(e, cudaErrorMemoryAllocation);
        }
        cudaGetLastError();
        for (int i = 0; i < n; i++) OK(kind[i] == ASYNC ? cudaFreeAsync(p[i], 0) : cudaFree(p[i]));
    }
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 4;
    static const char *const names[] = {"malloc", "managed", "async", "all"};
    for (int k = 0; k < 4; k++)
        if (argc > 2 && !strcmp(argv[2], names[k])) chosen = (enum kind)k;
    odd = argc > 3 && !strcmp(argv[3], "odd");
    pthread_t thread[64];
    OK(cudaFree(0));
    for (int t = 0; t < threads; t++)
        EXPECT(pthread_create(&thread[t], NULL, greedy, (void *)(unsigned long)(t + 1)), 0);
    for (int t = 0; t < threads; t++) pthread_join(thread[t], NULL);
    OK(cudaDeviceSynchronize());
    printf("ok\n");
    return 0;
}
