/* Threads that take as much as they get, at once, in several kinds: none may pass the cap. cap_race THREADS */
#include <cuda_runtime.h>

#include "check.h"

#include <pthread.h>

enum { HELD = 64 };

static void *greedy(void *argument) {
    unsigned seed = (unsigned)(unsigned long)argument;
    for (int round = 0; round < 10; round++) {
        void *p[HELD];
        int kind[HELD], n = 0;
        for (int i = 0; i < HELD; i++) {
            size_t bytes = (1 + next_random(&seed) % 32) << 20;
            kind[n] = next_random(&seed) % 4;
            cudaError_t e = kind[n] == 0   ? cudaMallocAsync(&p[n], bytes, 0)
                            : kind[n] == 1 ? cudaMallocManaged(&p[n], bytes, cudaMemAttachGlobal)
                                           : cudaMalloc(&p[n], bytes);
            if (e == cudaSuccess) n++;
            else EXPECT(e, cudaErrorMemoryAllocation);
        }
        cudaGetLastError();
        for (int i = 0; i < n; i++) OK(kind[i] == 0 ? cudaFreeAsync(p[i], 0) : cudaFree(p[i]));
    }
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 4;
    pthread_t thread[64];
    OK(cudaFree(0));
    for (int t = 0; t < threads; t++)
        EXPECT(pthread_create(&thread[t], NULL, greedy, (void *)(unsigned long)(t + 1)), 0);
    for (int t = 0; t < threads; t++) pthread_join(thread[t], NULL);
    OK(cudaDeviceSynchronize());
    printf("ok\n");
    return 0;
}
