/*
 * Host memory that live blocks cost: `held COUNT BYTES`. Prints how many bytes of resident memory COUNT blocks added,
 * for each block. The blocks stay: the report of the process then says how much was reserved for them.
 */
#include "calls.h"

#include <unistd.h>

static long resident(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    long size = 0, pages = 0;
    if (!file || fscanf(file, "%ld %ld", &size, &pages) != 2) MUST(1);
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

int main(int argc, char **argv) {
    long count = argc > 2 ? atol(argv[1]) : 0, bytes = argc > 2 ? atol(argv[2]) : 0;
    if (count < 1 || bytes < 1) return fprintf(stderr, "usage: held COUNT BYTES\n"), 2;
    gpu_open();
    if (count > 1) gpu_free(gpu_alloc((uint64_t)bytes)); /* what the first call of all sets up is not a block's */
    long before = resident();
    for (long i = 0; i < count; i++) gpu_alloc((uint64_t)bytes);
    printf("%.1f\n", (double)(resident() - before) / (double)count);
    return 0;
}
