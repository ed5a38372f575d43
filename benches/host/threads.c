/*
 * How many pairs several threads make at once: `threads COUNT own|cross gpu|malloc`. Prints millions of pairs a second,
 * in all. `own`: each frees what it allocated, of a window of 16 blocks of mixed sizes. `cross`: each frees what another
 * one allocated, handed over in batches of 64.
 */
#include "calls.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { WINDOW = 16, BATCH = 64 };
static const uint64_t sizes[] = {512, 4096, 64 << 10, 1 << 20};
static uint64_t (*take)(uint64_t);
static void (*give)(uint64_t);
static int threads, cross;
static long pairs_each;
static pthread_barrier_t begin;

/* What thread T hands to the next one; `full` says whose turn it is. */
static struct mailbox {
    _Alignas(128) atomic_int full;
    uint64_t block[BATCH];
} *mailbox;

static uint64_t next_size(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return sizes[*state >> 30];
}

static void own(unsigned state) {
    uint64_t window[WINDOW] = {0};
    for (long i = 0; i < pairs_each; i++) {
        uint64_t *slot = &window[i % WINDOW];
        if (*slot) give(*slot);
        *slot = take(next_size(&state));
    }
    for (int i = 0; i < WINDOW; i++)
        if (window[i]) give(window[i]);
}

static void wait_for(struct mailbox *m, int full) {
    for (int spins = 0; atomic_load_explicit(&m->full, memory_order_acquire) != full; spins++)
        if (spins > 100) sched_yield();
}

static void crossing(int self, unsigned state) {
    struct mailbox *out = &mailbox[self], *in = &mailbox[(self + threads - 1) % threads];
    for (long done = 0; done < pairs_each; done += BATCH) {
        wait_for(out, 0);
        for (int i = 0; i < BATCH; i++) out->block[i] = take(next_size(&state));
        atomic_store_explicit(&out->full, 1, memory_order_release);
        wait_for(in, 1);
        for (int i = 0; i < BATCH; i++) give(in->block[i]);
        atomic_store_explicit(&in->full, 0, memory_order_release);
    }
}

static void *work(void *arg) {
    int self = (int)(intptr_t)arg;
    unsigned state = 7919u * (unsigned)self + 1;
    gpu_open();
    own(state);
    pthread_barrier_wait(&begin);
    if (cross) crossing(self, state);
    else own(state);
    pthread_barrier_wait(&begin);
    return NULL;
}

int main(int argc, char **argv) {
    threads = argc > 1 ? atoi(argv[1]) : 0;
    if (argc < 4 || threads < 1 || threads > 256) {
        fprintf(stderr, "usage: threads COUNT own|cross gpu|malloc\n");
        return 2;
    }
    cross = !strcmp(argv[2], "cross");
    int host = !strcmp(argv[3], "malloc");
    take = host ? host_alloc_some : gpu_alloc;
    give = host ? host_free : gpu_free;
    pairs_each = 1600000 / threads / BATCH * BATCH;
    gpu_open();
    mailbox = aligned_alloc(128, (size_t)threads * sizeof *mailbox);
    memset(mailbox, 0, (size_t)threads * sizeof *mailbox);
    pthread_barrier_init(&begin, NULL, (unsigned)threads + 1);
    pthread_t *all = malloc((size_t)threads * sizeof *all);
    for (int i = 0; i < threads; i++) pthread_create(&all[i], NULL, work, (void *)(intptr_t)i);
    pthread_barrier_wait(&begin);
    uint64_t start = now_ns();
    pthread_barrier_wait(&begin);
    double seconds = (double)(now_ns() - start) / 1e9;
    for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
    printf("%.3f\n", (double)pairs_each * threads / seconds / 1e6);
    return 0;
}
