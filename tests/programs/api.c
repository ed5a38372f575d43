/*
 * Uses the functions of include/gpucache.h, which are there or not. What it does with CUDA is the same.
 *
 *   api [fault]     with `fault`: everything after an internal fault of the library
 */
#define _GNU_SOURCE
#include <cuda_runtime.h>
#include <gpucache.h>

#include "check.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

/* Nothing is served: figures are 0, actions are refused, and nothing else happens. */
static void expect_inactive(void) {
    char text[8] = "xxxxxxx";
    EXPECT(gpucache_empty_cache(), 0);
    for (int device = -3; device < 3; device++) {
        EXPECT(gpucache_memory_allocated(device), 0);
        EXPECT(gpucache_max_memory_allocated(device), 0);
        EXPECT(gpucache_memory_reserved(device), 0);
        EXPECT(gpucache_max_memory_reserved(device), 0);
        EXPECT(gpucache_memory_requested(device), 0);
        EXPECT(gpucache_max_memory_requested(device), 0);
        EXPECT(gpucache_limit(device), 0);
        EXPECT(gpucache_reset_peak(device), GPUCACHE_INACTIVE);
    }
    EXPECT(gpucache_stats_json(NULL, 0), 0);
    EXPECT(gpucache_stats_json(text, sizeof text), 0);
    EXPECT(text[0], 0);
    EXPECT(gpucache_write_report("inactive.json"), GPUCACHE_INACTIVE);
    EXPECT(gpucache_write_report(NULL), GPUCACHE_INACTIVE);
    EXPECT(access("inactive.json", F_OK), -1);
    ASSERT(strlen(gpucache_version()) >= 5);
}

static void *nothing_current(void *unused) {
    (void)unused;
    EXPECT(gpucache_memory_allocated(0), 5 * MIB);
    return NULL;
}

static void with_the_library(void *first) {
    (void)first;
    EXPECT(gpucache_memory_requested(0), 1000);
    EXPECT(gpucache_memory_allocated(0), 1024);
    EXPECT(gpucache_memory_allocated(GPUCACHE_CURRENT_DEVICE), 1024);
    EXPECT(gpucache_memory_allocated(1), 0);
    EXPECT(gpucache_memory_allocated(1000000), 0);
    EXPECT(gpucache_memory_allocated(-7), 0);
    ASSERT(gpucache_memory_reserved(0) >= 2 * MIB);
    /* Set before the first CUDA call. */
    EXPECT(gpucache_limit(0), 512 * MIB);
    size_t free_bytes, total;
    OK(cudaMemGetInfo(&free_bytes, &total));
    EXPECT(total, 512 * MIB);

    void *p, *q;
    EXPECT(gpucache_mark("load"), 0);
    OK(cudaMalloc(&p, 100 * MIB));
    OK(cudaFree(p));
    OK(cudaDeviceSynchronize());
    EXPECT(gpucache_max_memory_allocated(0), 100 * MIB + 1024);
    EXPECT(gpucache_max_memory_requested(0), 100 * MIB + 1000);
    EXPECT(gpucache_mark("train"), 0);
    EXPECT(gpucache_reset_peak(0), 0);
    EXPECT(gpucache_max_memory_allocated(0), 1024);
    for (int i = 0; i < 10; i++) {
        OK(cudaMalloc(&p, 30 * MIB));
        OK(cudaFree(p));
    }
    EXPECT(gpucache_max_memory_allocated(0), 30 * MIB + 1024);
    ASSERT(gpucache_max_memory_reserved(0) >= 100 * MIB);
    OK(cudaDeviceSynchronize());
    ASSERT(gpucache_empty_cache() >= 100 * MIB);
    ASSERT(gpucache_memory_reserved(0) <= 24 * MIB);
    EXPECT(gpucache_mark("load"), 0);
    EXPECT(gpucache_max_memory_allocated(0), 30 * MIB + 1024);

    /* Lower than what is held: refused until it fits. */
    OK(cudaMalloc(&p, 200 * MIB));
    OK(cudaMalloc(&q, 100 * MIB));
    EXPECT(gpucache_set_limit(0, 250 * MIB), 0);
    OK(cudaMemGetInfo(&free_bytes, &total));
    EXPECT(total, 250 * MIB);
    EXPECT(free_bytes, 0);
    void *more = NULL;
    EXPECT(cudaMalloc(&more, 40 * MIB), cudaErrorMemoryAllocation);
    cudaGetLastError();
    OK(cudaFree(p));
    /* What has become idle goes back once the library has come by. */
    for (int i = 0; i < 64; i++) {
        OK(cudaMalloc(&p, 4096));
        OK(cudaFree(p));
    }
    ASSERT(gpucache_memory_reserved(0) <= 250 * MIB);
    OK(cudaMalloc(&more, 100 * MIB));
    ASSERT(gpucache_memory_reserved(0) <= 250 * MIB);
    OK(cudaFree(more));
    OK(cudaFree(q));
    /* Idle memory beyond the cap goes back at once. */
    OK(cudaMalloc(&p, 150 * MIB));
    OK(cudaFree(p));
    EXPECT(gpucache_set_limit(GPUCACHE_CURRENT_DEVICE, 32 * MIB), 0);
    ASSERT(gpucache_memory_reserved(0) <= 32 * MIB);
    EXPECT(gpucache_set_limit(0, GPUCACHE_CONFIGURED), 0);
    EXPECT(gpucache_limit(0), 1024 * MIB);
    EXPECT(gpucache_set_limit(0, 4096ull * MIB), 0);
    EXPECT(gpucache_limit(0), 1024 * MIB);
    EXPECT(gpucache_set_limit(-5, 1), GPUCACHE_INVALID);
    EXPECT(gpucache_set_limit(100000, 1), GPUCACHE_INVALID);
    EXPECT(gpucache_reset_peak(-5), GPUCACHE_INVALID);
    EXPECT(gpucache_mark(NULL), GPUCACHE_INVALID);

    /* As snprintf. */
    int64_t length = gpucache_stats_json(NULL, 0);
    ASSERT(length > 1000);
    char *text = malloc(length + 4096);
    memset(text, 'x', length + 4096);
    EXPECT(gpucache_stats_json(text, 10) > 1000, 1);
    EXPECT(strlen(text), 9);
    EXPECT(text[10], 'x');
    EXPECT(gpucache_stats_json(text, 1) > 1000, 1);
    EXPECT(strlen(text), 0);
    length = gpucache_stats_json(text, length + 4096);
    EXPECT(strlen(text), length);
    ASSERT(strstr(text, "\"ended_by\": \"running\""));
    EXPECT(gpucache_write_report("by-name.json"), 0);
    EXPECT(gpucache_write_report("no/such/folder.json"), GPUCACHE_FAILED);

    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        expect_inactive();
        EXPECT(gpucache_mark("child"), GPUCACHE_INACTIVE);
        EXPECT(gpucache_set_limit(0, 1), GPUCACHE_INACTIVE);
        _exit(0);
    }
    int status;
    EXPECT(waitpid(child, &status, 0), child);
    EXPECT(status, 0);
}

int main(void) {
    void *p, *more;
    int there = GPUCACHE_AVAILABLE();
    if (there) {
        expect_inactive();
        EXPECT(gpucache_mark("start"), 0);
        EXPECT(gpucache_set_limit(0, 512 * MIB), 0);
        EXPECT(gpucache_set_limit(GPUCACHE_CURRENT_DEVICE, 1), GPUCACHE_INVALID);
        EXPECT(gpucache_set_limit(1000, 1), GPUCACHE_INVALID);
    }
    OK(cudaMalloc(&p, 1000));
    if (there) with_the_library(p);
    OK(cudaFree(p));
    OK(cudaMalloc(&p, 4 * MIB));
    OK(cudaMalloc(&more, MIB));
    pthread_t thread;
    if (there) {
        EXPECT(pthread_create(&thread, NULL, nothing_current, NULL), 0);
        pthread_join(thread, NULL);
    }
    OK(cudaFree(p));
    OK(cudaFree(more));
    fprintf(stderr, there ? "with\n" : "without\n");
    printf("ok\n");
    return 0;
}
