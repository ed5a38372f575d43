/*
 * Everything from threads with the smallest stacks that a program may ask for, the process's first CUDA call and a
 * refusal at the cap included; thousands of threads one after the other.
 *
 *   small_stacks KIB THREADS
 *
 * Where the C library wants more than KIB, as on 64-bit Arm, as much as that.
 */
#include <cuda_runtime.h>

#include "check.h"

#include <limits.h>
#include <pthread.h>

static void *work(void *unused) {
    (void)unused;
    void *p[6];
    static const size_t sizes[6] = {100, 3000, 70000, 1 << 20, 5 << 20, 12345678};
    for (int i = 0; i < 6; i++) OK(cudaMalloc(&p[i], sizes[i]));
    void *none = NULL, *async;
    EXPECT(cudaMalloc(&none, (size_t)1 << 40), cudaErrorMemoryAllocation);
    ASSERT(none == NULL);
    OK(cudaMallocAsync(&async, 4096, 0));
    EXPECT(cudaMallocAsync(&none, (size_t)1 << 40, 0), cudaErrorMemoryAllocation);
    cudaGetLastError();
    EXPECT(cudaFree((char *)p[3] + 256), cudaErrorInvalidValue);
    cudaGetLastError();
    size_t f, t;
    OK(cudaMemGetInfo(&f, &t));
    for (int i = 0; i < 6; i++) OK(cudaFree(p[i]));
    OK(cudaFreeAsync(async, 0));
    return NULL;
}

int main(int argc, char **argv) {
    size_t kib = argc > 1 ? (size_t)atoi(argv[1]) : 64;
    int threads = argc > 2 ? atoi(argv[2]) : 10;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    size_t bytes = kib << 10, least = PTHREAD_STACK_MIN;
    EXPECT(pthread_attr_setstacksize(&attributes, bytes > least ? bytes : least), 0);
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        EXPECT(pthread_create(&thread, &attributes, work, NULL), 0);
        pthread_join(thread, NULL);
    }
    OK(cudaDeviceSynchronize());
    printf("ok allocs=%d\n", threads * 6);
    return 0;
}
