/* Wrong frees: twice, from two threads at once, inside a block, of host memory; then everything still works. */
#include <cuda_runtime.h>

#include "testkernels.h"

#include <pthread.h>

static void *shared_block;
static pthread_barrier_t both;

static void *free_it(void *unused) {
    (void)unused;
    pthread_barrier_wait(&both);
    return (void *)(uintptr_t)cudaFree(shared_block);
}

int main(void) {
    int made = 0, wrong = 0;
    static const size_t sizes[] = {512, 4096, 1 << 20, 30 << 20};
    tk_init_runtime();
    for (int s = 0; s < 4; s++) {
        void *p, *q;
        OK(cudaMalloc(&p, sizes[s]));
        OK(cudaMalloc(&q, sizes[s]));
        made += 2;
        EXPECT(cudaFree((char *)p + 256), cudaErrorInvalidValue);
        EXPECT(cudaGetLastError(), cudaErrorInvalidValue);
        EXPECT(cudaFree((char *)p + sizes[s] - 1), cudaErrorInvalidValue);
        OK(cudaFree(p));
        EXPECT(cudaFree(p), cudaErrorInvalidValue);
        EXPECT(cudaGetLastError(), cudaErrorInvalidValue);
        EXPECT(cudaFree(&p), cudaErrorInvalidValue);
        EXPECT(cudaGetLastError(), cudaErrorInvalidValue);
        OK(cudaFree(q));
        /* The last is the driver's to refuse: it was never the pool's. */
        wrong += 3;
    }
    for (int i = 0; i < 50; i++) {
        OK(cudaMalloc(&shared_block, sizes[i % 4]));
        made++;
        EXPECT(pthread_barrier_init(&both, NULL, 2), 0);
        pthread_t other;
        EXPECT(pthread_create(&other, NULL, free_it, NULL), 0);
        int mine = (int)(uintptr_t)free_it(NULL);
        void *result;
        pthread_join(other, &result);
        int theirs = (int)(uintptr_t)result;
        if (mine + theirs != 1) FAIL("two frees at once gave %d and %d", mine, theirs);
        wrong++;
        cudaGetLastError();
    }
    /* No block is handed out twice. */
    void *p[64];
    uint32_t word;
    for (int i = 0; i < 64; i++) {
        OK(cudaMalloc(&p[i], sizes[i % 3]));
        OK(launch_fill(NULL, p[i], 4, i, 1000));
        made++;
    }
    for (int i = 0; i < 64; i++) {
        OK(cudaMemcpy(&word, p[i], 4, cudaMemcpyDeviceToHost));
        EXPECT(word, i);
        OK(cudaFree(p[i]));
    }
    printf("ok allocs=%d invalid=%d\n", made, wrong);
    return 0;
}
