/* A library whose constructor works for a while and then allocates; the loader's lock is held meanwhile. */
#include <cuda_runtime.h>
#include <semaphore.h>
#include <unistd.h>

extern sem_t loading;

__attribute__((constructor)) static void constructor(void) {
    void *p;
    sem_post(&loading);
    usleep(300000);
    if (cudaMalloc(&p, 1 << 20) == cudaSuccess) cudaFree(p);
}
