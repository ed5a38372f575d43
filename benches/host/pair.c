/*
 * One allocation and its free, again and again: `pair COUNT`. Sizes of 512 B, 64 KiB, 1 MiB and 16 MiB, then the same
 * sizes with malloc. Each is one call of `measured`, which is what a profiler is told to look at; before it come some
 * pairs that fill the pool. Prints `INTERFACE SIZE NANOSECONDS`.
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

int main(int argc, char **argv) {
    long count = argc > 1 ? atol(argv[1]) : 1000000;
    if (count < 1) return fprintf(stderr, "usage: pair COUNT\n"), 2;
    gpu_open();
    for (int host = 0; host < 2; host++) {
        alloc_call *take = host ? host_alloc : gpu_alloc;
        free_call *give = host ? host_free : gpu_free;
        for (int s = 0; s < SIZES; s++) {
            pairs(take, give, sizes[s], WARM);
            uint64_t start = now_ns();
            measured(take, give, sizes[s], count);
            printf("%s %llu %.1f\n", host ? "malloc" : "gpu", (unsigned long long)sizes[s], (double)(now_ns() - start) / count);
        }
    }
    return 0;
}
