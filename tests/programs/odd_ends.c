/*
 * Unusual surroundings of the process's end, and of its libraries.
 *
 *   odd_ends WAY
 *
 * chdir: the working directory changes before and after the first CUDA call; reopen: libcuda is closed and opened again
 * between uses; signals: SIGALRM interrupts every call, its handler does arithmetic only; atexit: handlers registered
 * before and after the first CUDA call free memory; nested: exit is called by a handler; kill: ends by a signal while
 * other threads allocate; pipe: SIGPIPE is left as it is, and stderr is a pipe that nobody reads.
 */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

static const char *way;
static void *library;
static int (*init)(unsigned), (*retain)(void **, int), (*set)(void *), (*take)(unsigned long long *, size_t),
    (*give)(unsigned long long);
static unsigned long long kept[4];

static int is(const char *name) { return strcmp(way, name) == 0; }

static void *find(const char *name) {
    void *f = dlsym(library, name);
    if (!f) FAIL("no %s", name);
    return f;
}

static void open_driver(void) {
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) FAIL("%s", dlerror());
    *(void **)&init = find("cuInit");
    *(void **)&retain = find("cuDevicePrimaryCtxRetain");
    *(void **)&set = find("cuCtxSetCurrent");
    *(void **)&take = find("cuMemAlloc_v2");
    *(void **)&give = find("cuMemFree_v2");
}

static void use(void) {
    void *context;
    unsigned long long p;
    OK(init(0));
    OK(retain(&context, 0));
    OK(set(context));
    OK(take(&p, 1 << 20));
    OK(give(p));
}

static void free_one(void) {
    static int next;
    give(kept[next++]);
}

static void exit_again(void) { exit(4); }

static volatile unsigned long ticks;

static void tick(int number) {
    (void)number;
    ticks++;
}

static void *churn(void *unused) {
    void *context;
    (void)unused;
    OK(retain(&context, 0));
    OK(set(context));
    for (;;) {
        unsigned long long p;
        if (take(&p, 70000) == 0) give(p);
    }
    return NULL;
}

int main(int argc, char **argv) {
    way = argc > 1 ? argv[1] : "chdir";
    if (is("atexit")) atexit(free_one);
    if (is("chdir")) {
        mkdir("inner", 0777);
        mkdir("inner/innermost", 0777);
        EXPECT(chdir("inner"), 0);
    }
    if (is("pipe")) {
        int ends[2];
        EXPECT(pipe(ends), 0);
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
    }
    open_driver();
    use();
    for (int i = 0; i < 4; i++) OK(take(&kept[i], 12345 << (2 * i)));
    if (is("chdir")) EXPECT(chdir("innermost"), 0);
    if (is("reopen"))
        for (int i = 0; i < 5; i++) {
            EXPECT(dlclose(library), 0);
            open_driver();
            use();
        }
    if (is("signals")) {
        struct sigaction action = {.sa_handler = tick};
        struct itimerval often = {{0, 200}, {0, 200}};
        sigaction(SIGALRM, &action, NULL);
        setitimer(ITIMER_REAL, &often, NULL);
        for (int i = 0; i < 20000; i++) use();
        struct itimerval off = {{0, 0}, {0, 0}};
        setitimer(ITIMER_REAL, &off, NULL);
        ASSERT(ticks > 0);
    }
    if (is("atexit")) atexit(free_one);
    if (is("nested")) atexit(exit_again);
    printf("ok\n");
    if (is("kill")) {
        pthread_t thread;
        for (int i = 0; i < 3; i++) pthread_create(&thread, NULL, churn, NULL);
        usleep(10000);
        fflush(stdout);
        kill(getpid(), SIGTERM);
        pause();
    }
    return 3;
}
