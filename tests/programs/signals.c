/*
 * Says how it finds SIGINT and SIGHUP when it begins, makes CUDA calls, and then handles SIGINT itself until one has come.
 */
#define _GNU_SOURCE
#include <cuda_runtime.h>

#include "check.h"

#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t came;

static void on_signal(int number) {
    came = number;
}

static const char *found(int number) {
    struct sigaction action;
    ASSERT(!sigaction(number, NULL, &action));
    return action.sa_handler == SIG_IGN ? "ignored" : action.sa_handler == SIG_DFL ? "default" : "handled";
}

int main(void) {
    printf("INT %s, HUP %s\n", found(SIGINT), found(SIGHUP));
    void *p;
    OK(cudaMalloc(&p, 8 << 20));
    signal(SIGINT, on_signal);
    printf("ready\n");
    fflush(stdout);
    for (int i = 0; i < 3000 && !came; i++) usleep(10000);
    printf("got %d\n", came);
    return came ? 7 : 1;
}
