/*
 * Ends in the given way, with memory live and work queued:
 *
 *   ends return|exit|_exit|_Exit|quick_exit|abort|signal|segv|exec|thread|destructor|destructor_free|at_exit_exit|busy
 */
#define _GNU_SOURCE
#include <cuda_runtime.h>

#include "testkernels.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static const char *way;
static void *block[3];

static int is(const char *name) { return way && strcmp(way, name) == 0; }

static void *end_from_thread(void *unused) {
    (void)unused;
    exit(3);
}

static void *churn(void *unused) {
    void *p;
    (void)unused;
    while (cudaMalloc(&p, 1 << 16) == cudaSuccess) cudaFree(p);
    pause();
    return NULL;
}

/* What a static object's destructor does in programs of other languages. */
__attribute__((destructor)) static void late(void) {
    if (is("destructor")) _exit(3);
    if (is("destructor_free")) {
        /* Allowed to fail, not to crash. */
        cudaFree(block[0]);
        void *p = NULL;
        cudaMalloc(&p, 4096);
    }
}

static void leave(void) { _exit(3); }

int main(int argc, char **argv) {
    way = argc > 1 ? argv[1] : "return";
    tk_init_runtime();
    for (int i = 0; i < 3; i++) {
        OK(cudaMalloc(&block[i], 4 << 20));
        OK(launch_fill(NULL, block[i], 1000, i, 1000000));
    }
    OK(cudaFree(block[2]));
    printf("ok allocs=3\n");
    fflush(stdout);
    if (is("exit") || is("destructor_free") || is("destructor")) exit(3);
    if (is("_exit")) _exit(3);
    if (is("_Exit")) _Exit(3);
    if (is("quick_exit")) quick_exit(3);
    if (is("abort")) abort();
    if (is("signal")) raise(SIGTERM);
    if (is("segv")) *(volatile int *)8 = 1;
    if (is("exec")) execl("/bin/sh", "sh", "-c", "exit 3", (char *)NULL);
    if (is("at_exit_exit")) {
        atexit(leave);
        exit(4);
    }
    if (is("thread")) {
        pthread_t thread;
        pthread_create(&thread, NULL, end_from_thread, NULL);
        pthread_join(thread, NULL);
    }
    if (is("busy")) {
        /* Other threads are in the middle of their calls when this one ends the process. */
        pthread_t thread;
        for (int i = 0; i < 3; i++) pthread_create(&thread, NULL, churn, NULL);
        usleep(20000);
        exit(3);
    }
    return 3;
}
