/*
 * Looks for children that it never made, while memory grows until an alarm is raised and its command has made a file `ran`.
 *
 *   reaper [subreaper]
 */
#define _GNU_SOURCE
#include <cuda_runtime.h>

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int children, signals, over;

static void on_child(int number) {
    (void)number;
    signals++;
}

static void *reap(void *flags) {
    while (!over) {
        if (waitpid(-1, NULL, (int)(long)flags) > 0) children++;
        usleep(20);
    }
    return NULL;
}

int main(int argc, char **argv) {
    struct sigaction action = {.sa_handler = on_child};
    EXPECT(sigaction(SIGCHLD, &action, NULL), 0);
    signal(SIGPIPE, SIG_IGN);
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, NULL);
    int file = open("/dev/zero", O_RDONLY);
    ASSERT(file >= 0 && dup2(file, 20) == 20);
    int refused = argc > 1 && !strcmp(argv[1], "subreaper");
    if (refused) EXPECT(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
    pthread_t blocking, polling;
    pthread_create(&blocking, NULL, reap, (void *)0);
    pthread_create(&polling, NULL, reap, (void *)WNOHANG);
    for (int i = 0; i < 40; i++) {
        void *p;
        OK(cudaMalloc(&p, 10 << 20));
    }
    for (int i = 0; !refused && i < 2000 && access("ran", F_OK); i++) usleep(10000);
    usleep(50000);
    over = 1;
    pthread_join(blocking, NULL);
    pthread_join(polling, NULL);
    EXPECT(waitpid(-1, NULL, __WALL), -1);
    EXPECT(errno, ECHILD);
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    printf("ran=%d children=%d signals=%d term=%d\n", !access("ran", F_OK), children, signals, sigismember(&mask, SIGTERM));
    return 0;
}
