/*
 * Everything at once, at random but correctly: threads allocate memory of several kinds, use it on several streams with
 * the events that this takes, copy it, capture graphs over it, hand it to other threads and free it without waiting.
 * Every block's contents are known at every moment and checked late.
 *
 *   mixture SEED THREADS OPERATIONS
 *
 * Out of memory is allowed (a run may be capped); any other error and any wrong word is not.
 */
#include <cuda_runtime.h>

#include "testkernels.h"

#include <pthread.h>

enum { SLOTS = 24, STREAMS = 4, MAILBOXES = 8 };
enum kind { MALLOC, PITCH, ASYNC, POOL, MANAGED, KINDS };

struct block {
    void *p;
    size_t bytes, words;
    uint32_t value;
    int stream;
    enum kind kind;
};

static int operations;
static unsigned seed_of_run;
static uint64_t *bad;
static cudaStream_t stream[STREAMS];
static cudaMemPool_t pool;
static struct block mailbox[MAILBOXES];
static pthread_mutex_t mailbox_lock = PTHREAD_MUTEX_INITIALIZER;
/* No context is synchronised while one of its streams captures: that would break the capture, and is an error. */
static pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;
static int plain, out_of_memory;

/* Makes later work of one stream wait for earlier work of another. */
static void order(int after, int before) {
    if (after == before) return;
    cudaEvent_t event;
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    OK(cudaEventRecord(event, stream[before]));
    OK(cudaStreamWaitEvent(stream[after], event, 0));
    OK(cudaEventDestroy(event));
}

static size_t random_size(unsigned *seed) {
    unsigned shift = next_random(seed) % 16;
    size_t bytes = (256u << shift) + next_random(seed) % (256u << shift);
    return bytes / 4 * 4;
}

static void fill(struct block *b, unsigned *seed) {
    b->value = next_random(seed);
    OK(launch_fill(stream[b->stream], b->p, b->words, b->value, 500 + next_random(seed) % 20000));
}

static void check(const struct block *b, unsigned *seed) {
    OK(launch_check(stream[b->stream], b->p, b->words, b->value, bad, 500 + next_random(seed) % 20000));
}

static void take(struct block *b, unsigned *seed) {
    unsigned r = next_random(seed) % 20;
    size_t pitch = 0;
    cudaError_t e;
    b->kind = r < 14 ? MALLOC : r < 16 ? PITCH : r < 18 ? ASYNC : r < 19 ? POOL : MANAGED;
    b->bytes = random_size(seed);
    b->words = b->bytes / 4 < 2048 ? b->bytes / 4 : 2048;
    b->stream = next_random(seed) % STREAMS;
    b->p = NULL;
    switch (b->kind) {
    case PITCH: e = cudaMallocPitch(&b->p, &pitch, b->bytes < 4096 ? b->bytes : 4096, b->bytes / 4096 + 1); break;
    case ASYNC: e = cudaMallocAsync(&b->p, b->bytes, stream[b->stream]); break;
    case POOL: e = cudaMallocFromPoolAsync(&b->p, b->bytes, pool, stream[b->stream]); break;
    case MANAGED: e = cudaMallocManaged(&b->p, b->bytes, cudaMemAttachGlobal); break;
    default: e = cudaMalloc(&b->p, b->bytes);
    }
    if (e == cudaErrorMemoryAllocation) {
        ASSERT(b->p == NULL);
        EXPECT(cudaGetLastError(), cudaErrorMemoryAllocation);
        __atomic_add_fetch(&out_of_memory, 1, __ATOMIC_RELAXED);
        return;
    }
    OK(e);
    ASSERT(b->p != NULL);
    if (b->kind == MALLOC) __atomic_add_fetch(&plain, 1, __ATOMIC_RELAXED);
    fill(b, seed);
}

static void give(struct block *b, unsigned *seed) {
    check(b, seed);
    if (b->kind == ASYNC || b->kind == POOL) OK(cudaFreeAsync(b->p, stream[b->stream]));
    else OK(cudaFree(b->p));
    b->p = NULL;
}

static void capture(struct block *b) {
    cudaStream_t own;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
    pthread_mutex_lock(&capture_lock);
    OK(cudaStreamBeginCapture(own, cudaStreamCaptureModeRelaxed));
    OK(launch_add1(own, b->p, b->words, 1000));
    OK(launch_add1(own, b->p, b->words, 1000));
    OK(cudaStreamEndCapture(own, &graph));
    pthread_mutex_unlock(&capture_lock);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, stream[b->stream]));
    b->value += 2;
    OK(cudaStreamSynchronize(stream[b->stream]));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(own));
}

static void *work(void *argument) {
    unsigned seed = seed_of_run * 31 + (unsigned)(uintptr_t)argument;
    struct block slot[SLOTS] = {{0}};
    static const unsigned capture_every = 64;
    for (int i = 0; i < operations; i++) {
        struct block *b = &slot[next_random(&seed) % SLOTS], *other = &slot[next_random(&seed) % SLOTS];
        if (!b->p) {
            take(b, &seed);
            continue;
        }
        unsigned operation = next_random(&seed) % 16;
        switch (operation) {
        case 0: case 1: check(b, &seed); break;
        case 2: check(b, &seed), fill(b, &seed); break;
        case 3: {
            int to = next_random(&seed) % STREAMS;
            order(to, b->stream);
            b->stream = to;
            check(b, &seed);
            break;
        }
        case 4:
            if (other->p && other != b) {
                size_t words = b->words < other->words ? b->words : other->words;
                order(b->stream, other->stream);
                OK(cudaMemcpyAsync(b->p, other->p, words * 4, cudaMemcpyDeviceToDevice, stream[b->stream]));
                b->words = words;
                b->value = other->value;
                order(other->stream, b->stream);
            }
            break;
        case 5: {
            uint32_t host[64];
            size_t words = b->words < 64 ? b->words : 64;
            OK(cudaStreamSynchronize(stream[b->stream]));
            OK(cudaMemcpy(host, b->p, words * 4, cudaMemcpyDeviceToHost));
            for (size_t w = 0; w < words; w++)
                if (host[w] != b->value + w) FAIL("word %zu is %u, not %u", w, host[w], (unsigned)(b->value + w));
            break;
        }
        case 6:
            if (next_random(&seed) % capture_every == 0) capture(b);
            break;
        case 7: {
            size_t f = 1, t = 0;
            OK(cudaMemGetInfo(&f, &t));
            ASSERT(f <= t);
            break;
        }
        case 8: {
            pthread_mutex_lock(&mailbox_lock);
            struct block *box = &mailbox[next_random(&seed) % MAILBOXES], sent = *b;
            *b = *box;
            *box = sent;
            pthread_mutex_unlock(&mailbox_lock);
            break;
        }
        case 9:
            if (next_random(&seed) % 32 != 0) break;
            pthread_mutex_lock(&capture_lock);
            OK(cudaDeviceSynchronize());
            pthread_mutex_unlock(&capture_lock);
            break;
        default: give(b, &seed);
        }
    }
    for (int i = 0; i < SLOTS; i++)
        if (slot[i].p) give(&slot[i], &seed);
    return NULL;
}

int main(int argc, char **argv) {
    seed_of_run = argc > 1 ? atoi(argv[1]) : 1;
    int threads = argc > 2 ? atoi(argv[2]) : 2;
    operations = argc > 3 ? atoi(argv[3]) : 2000;
    tk_init_runtime();
    OK(cudaMallocHost((void **)&bad, sizeof *bad));
    *bad = 0;
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    for (int s = 0; s < STREAMS - 1; s++) OK(cudaStreamCreateWithFlags(&stream[s], s ? cudaStreamNonBlocking : 0));
    stream[STREAMS - 1] = cudaStreamLegacy;
    pthread_t thread[64];
    for (int t = 0; t < threads; t++) EXPECT(pthread_create(&thread[t], NULL, work, (void *)(uintptr_t)(t + 1)), 0);
    for (int t = 0; t < threads; t++) pthread_join(thread[t], NULL);
    unsigned seed = 1;
    for (int i = 0; i < MAILBOXES; i++)
        if (mailbox[i].p) give(&mailbox[i], &seed);
    OK(cudaDeviceSynchronize());
    OK(cudaGetLastError());
    if (*bad) FAIL("wrong words: %llu", (unsigned long long)*bad);
    printf("ok allocs=%d\n", plain);
    fprintf(stderr, "out of memory %d times\n", out_of_memory);
    return 0;
}
