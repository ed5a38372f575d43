/* Many threads start and end one after another; what each freed is there for the next. */
#include <cuda_runtime.h>

#include "check.h"

#include <pthread.h>

enum { THREADS = 64, BLOCKS = 16 };

static void *work(void *unused) {
    void *p[BLOCKS];
    (void)unused;
    for (int i = 0; i < BLOCKS; i++) OK(cudaMalloc(&p[i], 4096 << (i % 9)));
    for (int i = 0; i < BLOCKS; i++) OK(cudaFree(p[i]));
    return NULL;
}

int main(void) {
    OK(cudaFree(0));
    for (int t = 0; t < THREADS; t++) {
        pthread_t thread;
        EXPECT(pthread_create(&thread, NULL, work, NULL), 0);
        pthread_join(thread, NULL);
        OK(cudaDeviceSynchronize());
    }
    printf("ok allocs=%d\n", THREADS * BLOCKS);
    return 0;
}
