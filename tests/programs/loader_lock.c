/*
 * The first allocation comes from one thread while another is in a library's constructor, inside dlopen, and allocates
 * there too: whoever waits for the dynamic loader must hold nothing that a constructor can need.
 */
#define _GNU_SOURCE
#include <cuda_runtime.h>

#include "check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <unistd.h>

sem_t loading;

static void *allocate(void *unused) {
    void *p;
    sem_wait(&loading);
    OK(cudaMalloc(&p, 1 << 20));
    OK(cudaFree(p));
    return unused;
}

static void *leave(void *unused) {
    (void)unused;
    sem_wait(&loading);
    _exit(3);
}

int main(int argc, char **argv) {
    int leaves = argc > 1 && strcmp(argv[1], "_exit") == 0;
    cudaStream_t stream;
    if (!leaves) OK(cudaStreamCreate(&stream));
    sem_init(&loading, 0, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, leaves ? leave : allocate, NULL);
    void *library = dlopen(leaves ? "libsleeps.so" : "libloads.so", RTLD_NOW | RTLD_GLOBAL);
    if (!library) FAIL("%s", dlerror());
    pthread_join(thread, NULL);
    printf("ok\n");
    return 0;
}
