/* Frees with another device, another context or no context current. Needs two devices. */
#include <cuda.h>
#include <cuda_runtime.h>

#include "check.h"

#include <pthread.h>

static void *block;

static void *free_in_fresh_thread(void *unused) {
    (void)unused;
    return (void *)(unsigned long)cudaFree(block);
}

int main(void) {
    int devices = 0;
    OK(cudaGetDeviceCount(&devices));
    if (devices < 2) FAIL("needs two devices");
    size_t f[2], t, after;
    for (int d = 0; d < 2; d++) {
        OK(cudaSetDevice(d));
        OK(cudaMemGetInfo(&f[d], &t));
    }
    for (int i = 0; i < 10; i++) {
        void *p, *q;
        OK(cudaSetDevice(0));
        OK(cudaMalloc(&p, 3 << 20));
        OK(cudaSetDevice(1));
        OK(cudaMalloc(&q, 5 << 20));
        OK(cudaFree(p));
        OK(cudaSetDevice(0));
        OK(cudaFree(q));
        EXPECT(cudaFree(p), cudaErrorInvalidValue);
        EXPECT(cudaFree(q), cudaErrorInvalidValue);
        /* A thread whose current device is 0 by default. */
        OK(cudaSetDevice(1));
        OK(cudaMalloc(&block, 7 << 20));
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, free_in_fresh_thread, NULL);
        pthread_join(thread, &result);
        EXPECT((unsigned long)result, 0);
    }
    cudaGetLastError();
    for (int d = 0; d < 2; d++) {
        OK(cudaSetDevice(d));
        OK(cudaMemGetInfo(&after, &t));
        EXPECT(after, f[d]);
    }
    printf("ok device0=10 device1=20\n");
    return 0;
}
