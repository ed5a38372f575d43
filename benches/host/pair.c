/*
 * One allocation and its free, again and again: `pair COUNT [times]`. Sizes of 512 B, 64 KiB, 1 MiB and 16 MiB, then the same
 * sizes with malloc. Each is one call of `measured`, which is what a profiler is told to look at; before it come some
 * pairs that fill the pool, so that none takes memory from the driver. Prints `INTERFACE SIZE NANOSECONDS`; with `times`
 * instead, for each size, `INTERFACE.SIZE.alloc` and `INTERFACE.SIZE.free` with mean, p50, p99 and p99.9.
 */
#include "calls.h"

static const uint64_t sizes[] = {512, 64 << 10, 1 << 20, 16 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes, WARM = 2000 };

typedef uint64_t alloc_call(uint64_t);
typedef void free_call(uint64_t);

static void pairs(alloc_call *take, free_call *give, uint64_t bytes, long count) {
    for (long i = 0; i < count; i++) give(take(bytes));
}

MEASURED void measured(alloc_call *take, free_call *give, uint64_t bytes, long count) {
    pairs(take, give, bytes, count);
}

static void by_the_clock(const char *interface, alloc_call *take, free_call *give, uint64_t bytes, long count) {
    uint32_t *takes = malloc((size_t)count * sizeof *takes), *gives = malloc((size_t)count * sizeof *gives);
    char name[64];
    for (long i = 0; i < count; i++) {
        uint64_t start = now_ns();
        uint64_t block = take(bytes);
        uint64_t between = now_ns();
        give(block);
        gives[i] = (uint32_t)(now_ns() - between);
        takes[i] = (uint32_t)(between - start);
    }
    snprintf(name, sizeof name, "%s.%llu.alloc", interface, (unsigned long long)bytes);
    print_times(name, takes, (size_t)count);
    snprintf(name, sizeof name, "%s.%llu.free", interface, (unsigned long long)bytes);
    print_times(name, gives, (size_t)count);
    free(takes);
    free(gives);
}

int main(int argc, char **argv) {
    long count = argc > 1 ? atol(argv[1]) : 1000000;
    if (count < 1) return fprintf(stderr, "usage: pair COUNT [times]\n"), 2;
    gpu_open();
    for (int host = 0; host < 2; host++) {
        alloc_call *take = host ? host_alloc : gpu_alloc;
        free_call *give = host ? host_free : gpu_free;
        for (int s = 0; s < SIZES; s++) {
            pairs(take, give, sizes[s], WARM);
            if (argc > 2) {
                by_the_clock(host ? "malloc" : "gpu", take, give, sizes[s], count);
                continue;
            }
            uint64_t start = now_ns();
            measured(take, give, sizes[s], count);
            printf("%s %llu %.1f\n", host ? "malloc" : "gpu", (unsigned long long)sizes[s], (double)(now_ns() - start) / count);
        }
    }
    return 0;
}
