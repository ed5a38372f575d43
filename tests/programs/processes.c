/*
 * Child processes of every kind, made while other threads allocate and free, so that any lock may be held. The child uses
 * CUDA nowhere and ends at once.
 *
 *   processes WAY
 *
 * vfork_exec, vfork_exit, spawn, clone, clone_vm, syscall (a raw fork), fork_exit, fork_quick_exit, fork_thread_exit (the
 * child makes a thread, which exits), fork_abort, fork_signal, fork_fork (of the child's child), daemon (the process
 * leaves its terminal before it uses CUDA), handlers (the program's own fork handlers allocate).
 */
#define _GNU_SOURCE
#include <cuda_runtime.h>

#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static const char *way;
static int stop;
static char *const command[] = {"sh", "-c", "exit 5", NULL};

static int is(const char *name) { return strcmp(way, name) == 0; }

static void *churn(void *unused) {
    (void)unused;
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        void *p, *q, *r;
        OK(cudaMalloc(&p, 1 << 16));
        OK(cudaMalloc(&q, 5 << 20));
        OK(cudaMallocAsync(&r, 1 << 20, 0));
        OK(cudaFree(p));
        OK(cudaFreeAsync(r, 0));
        OK(cudaFree(q));
    }
    return NULL;
}

static int in_clone(void *unused) {
    (void)unused;
    _exit(5);
}

static void *exit_from_thread(void *unused) {
    (void)unused;
    exit(5);
}

static void allocate(void) {
    void *p;
    OK(cudaMalloc(&p, 12345));
    OK(cudaFree(p));
}

static pid_t child(void) {
    static char *stack;
    pid_t pid = -1;
    if (!stack) stack = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (is("vfork_exec")) {
        if ((pid = vfork()) == 0) execv("/bin/sh", command);
    } else if (is("vfork_exit")) {
        if ((pid = vfork()) == 0) _exit(5);
    } else if (is("spawn")) {
        EXPECT(posix_spawn(&pid, "/bin/sh", NULL, NULL, command, environ), 0);
    } else if (is("clone")) {
        pid = clone(in_clone, stack + (1 << 20), SIGCHLD, NULL);
    } else if (is("clone_vm")) {
        pid = clone(in_clone, stack + (1 << 20), CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
    } else if (is("syscall")) {
        if ((pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)) == 0) _exit(5);
    } else if ((pid = fork()) == 0) {
        if (is("fork_quick_exit")) quick_exit(5);
        if (is("fork_thread_exit")) {
            pthread_t thread;
            pthread_create(&thread, NULL, exit_from_thread, NULL);
            pthread_join(thread, NULL);
        }
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        if (is("fork_abort")) abort();
        if (is("fork_signal")) raise(SIGTERM);
        if (is("fork_fork")) {
            int status;
            pid_t next = fork();
            if (next == 0) exit(5);
            EXPECT(waitpid(next, &status, 0), next);
            exit(WEXITSTATUS(status));
        }
        exit(5);
    }
    ASSERT(pid > 0);
    return pid;
}

int main(int argc, char **argv) {
    way = argc > 1 ? argv[1] : "fork_exit";
    if (is("daemon")) {
        /* The parent waits for the daemon's word, for the test looks at the daemon's report afterwards. */
        int pipes[2];
        char word[3] = "";
        EXPECT(pipe(pipes), 0);
        if (fork() != 0) {
            close(pipes[1]);
            while (read(pipes[0], word, 1) == 1) {}
            _exit(0);
        }
        setsid();
        if (fork() != 0) _exit(0);
    }
    if (is("handlers")) EXPECT(pthread_atfork(allocate, allocate, NULL), 0);
    allocate();
    pthread_t thread[3];
    for (int t = 0; t < 3; t++) EXPECT(pthread_create(&thread[t], NULL, churn, NULL), 0);
    for (int i = 0; i < 25; i++) {
        int status = 0;
        fflush(NULL);
        pid_t pid = child();
        EXPECT(waitpid(pid, &status, 0), pid);
        if (is("fork_abort")) ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
        else if (is("fork_signal")) ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
        else ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (int t = 0; t < 3; t++) pthread_join(thread[t], NULL);
    OK(cudaDeviceSynchronize());
    printf("ok\n");
    return 0;
}
