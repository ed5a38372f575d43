/*
 * Contexts that end while other threads are at work. Threads allocate, write, check and free on every device, and free
 * each other's blocks with any context current, while the main thread resets devices, destroys contexts and releases
 * primary contexts to zero.
 *
 *   lives WAY THREADS ROUNDS RACING     WAY: reset|release|create     RACING: frees|all
 *
 * A call that meets the end of its context may fail, as it may without a caching allocator; it may not crash or hang.
 * With RACING `frees` no allocation is under way at such a moment, with `all` allocations are too. Blocks of a context
 * that has ended are refused with error 1. The last round runs undisturbed: every error is one, every word is checked.
 */
#include <cuda.h>

#include "testkernels.h"

#include <pthread.h>
#include <string.h>

enum { MAX = 16, BLOCKS = 64, WORDS = 512 };
static const char *way;
static int devices, stop, calm, exclude;
static CUcontext context[MAX];
static struct block {
    CUdeviceptr p;
    int device;
    unsigned life;
} shared[BLOCKS];
/* Counts up when a device's context ends and when the next one has begun. */
static unsigned life[MAX];
static pthread_mutex_t swap_lock = PTHREAD_MUTEX_INITIALIZER;
/* Held for reading by allocations, and by frees. An address may be freed only as long as nobody can have got it anew. */
static pthread_rwlock_t allocating = PTHREAD_RWLOCK_INITIALIZER, freeing = PTHREAD_RWLOCK_INITIALIZER;
static unsigned long made, refused;

static struct block swap(int at, struct block b) {
    pthread_mutex_lock(&swap_lock);
    struct block old = shared[at];
    shared[at] = b;
    pthread_mutex_unlock(&swap_lock);
    return old;
}

static unsigned life_of(int d) { return __atomic_load_n(&life[d], __ATOMIC_ACQUIRE); }

static CUcontext context_of(int d) { return __atomic_load_n(&context[d], __ATOMIC_ACQUIRE); }

static void *work(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    uint32_t host[WORDS], back[WORDS];
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        struct block b = {0, next_random(&seed) % devices, 0};
        size_t bytes = 1 + next_random(&seed) % (1u << (4 + next_random(&seed) % 19)) + sizeof host;
        if (exclude) pthread_rwlock_rdlock(&allocating);
        b.life = life_of(b.device);
        CUresult e = cuCtxSetCurrent(context_of(b.device));
        if (!e) e = cuMemAlloc(&b.p, bytes);
        int known = b.life % 2 == 0 && b.life == life_of(b.device);
        if (exclude) pthread_rwlock_unlock(&allocating);
        if (calm) OK(e);
        if (e) continue;
        __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED);
        /* Of the context that has ended, or of the new one: nobody can say, so it is never freed. */
        if (!known) continue;
        for (unsigned i = 0; i < WORDS; i++) host[i] = seed + i;
        if (calm) {
            OK(cuMemcpyHtoD(b.p, host, sizeof host));
            OK(cuMemcpyDtoH(back, b.p, sizeof back));
            ASSERT(memcmp(host, back, sizeof back) == 0);
        }
        pthread_rwlock_rdlock(&freeing);
        if (b.life == life_of(b.device)) {
            struct block old = swap(next_random(&seed) % BLOCKS, b);
            /* Freed with whichever context happens to be current. */
            cuCtxSetCurrent(context_of(next_random(&seed) % devices));
            e = old.p ? cuMemFree(old.p) : 0;
            if (calm) OK(e);
            if (e) __atomic_add_fetch(&refused, 1, __ATOMIC_RELAXED);
        }
        pthread_rwlock_unlock(&freeing);
    }
    cuCtxSetCurrent(NULL);
    return NULL;
}

static void begin(int d) {
    CUcontext c;
    if (!strcmp(way, "create")) OK(cuCtxCreate_v2(&c, 0, d));
    else OK(cuDevicePrimaryCtxRetain(&c, d));
    __atomic_store_n(&context[d], c, __ATOMIC_RELEASE);
    OK(cuCtxSetCurrent(c));
}

static void end(int d) {
    if (!strcmp(way, "create")) OK(cuCtxDestroy(context[d]));
    else if (!strcmp(way, "release")) OK(cuDevicePrimaryCtxRelease(d));
    else OK(cuDevicePrimaryCtxReset(d));
}

/* Ends a context and begins the next: frees may be under way at the end, and are over at the beginning. */
static void renew(int d) {
    if (exclude) pthread_rwlock_wrlock(&allocating);
    __atomic_add_fetch(&life[d], 1, __ATOMIC_ACQ_REL);
    end(d);
    pthread_rwlock_wrlock(&freeing);
    begin(d);
    for (int i = 0; i < BLOCKS; i++) {
        if (!shared[i].p || shared[i].device != d) continue;
        /* Where allocations go on, the address may already be another block's. */
        if (exclude) EXPECT(cuMemFree(shared[i].p), CUDA_ERROR_INVALID_VALUE);
        shared[i].p = 0;
    }
    __atomic_add_fetch(&life[d], 1, __ATOMIC_ACQ_REL);
    pthread_rwlock_unlock(&freeing);
    if (exclude) pthread_rwlock_unlock(&allocating);
}

int main(int argc, char **argv) {
    if (argc < 5) FAIL("lives WAY THREADS ROUNDS RACING");
    way = argv[1];
    exclude = !strcmp(argv[4], "frees");
    int threads = atoi(argv[2]), rounds = atoi(argv[3]);
    pthread_t thread[64];
    OK(cuInit(0));
    OK(cuDeviceGetCount(&devices));
    for (int d = 0; d < devices; d++) begin(d);
    for (int round = 0; round <= rounds; round++) {
        calm = round == rounds;
        for (int d = 0; d < devices; d++) renew(d);
        __atomic_store_n(&stop, 0, __ATOMIC_RELEASE);
        for (int t = 0; t < threads; t++)
            EXPECT(pthread_create(&thread[t], NULL, work, (void *)(uintptr_t)(1 + t + 100 * round)), 0);
        unsigned long before = __atomic_load_n(&made, __ATOMIC_RELAXED);
        for (int i = 0; i < 6; i++) {
            while (__atomic_load_n(&made, __ATOMIC_RELAXED) < before + 100) sched_yield();
            before = __atomic_load_n(&made, __ATOMIC_RELAXED);
            if (!calm) renew(i % devices);
        }
        __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
        for (int t = 0; t < threads; t++) pthread_join(thread[t], NULL);
    }
    for (int i = 0; i < BLOCKS; i++)
        if (shared[i].p) OK(cuMemFree(shared[i].p));
    fprintf(stderr, "%lu allocations, %lu frees refused\n", made, refused);
    printf("ok\n");
    return 0;
}
