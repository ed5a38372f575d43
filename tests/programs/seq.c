/*
 * Runs a script of allocations, so that a test states its case in one line. Commands, separated by blanks:
 *
 *   aSIZE or aSIZE*N   allocate (units k, m, g), in the next slots; a failure is printed and leaves the slot empty
 *   fN                 free slot N                      F    free all slots, in order
 *   w                  write and check all live blocks   s    synchronise
 *   i                  print free and total memory       r    cudaDeviceReset
 *
 * Numbers of slots count every allocation from 0, failed ones too.
 */
#include <cuda_runtime.h>

#include "testkernels.h"

#include <string.h>

enum { SLOTS = 4096, CHECKED_WORDS = 16384 };
static void *slot[SLOTS];
static size_t size[SLOTS];
static int used, made;

static size_t parse_size(const char *text, char **end) {
    double value = strtod(text, end);
    switch (**end) {
    case 'k': ++*end; return (size_t)(value * 1024);
    case 'm': ++*end; return (size_t)(value * 1048576);
    case 'g': ++*end; return (size_t)(value * 1073741824);
    }
    return (size_t)value;
}

static void allocate(size_t bytes) {
    if (used == SLOTS) FAIL("too many allocations");
    void *untouched = (void *)&slot;
    void *p = untouched;
    cudaError_t e = cudaMalloc(&p, bytes);
    if (e == cudaSuccess) {
        EXPECT(cudaPeekAtLastError(), cudaSuccess);
        slot[used] = p;
        made += bytes != 0;
    } else {
        ASSERT(p == untouched);
        EXPECT(cudaGetLastError(), e);
        printf("slot %d: error %d (%s)\n", used, (int)e, cudaGetErrorString(e));
    }
    size[used++] = bytes;
}

static void release(int i) {
    OK(cudaFree(slot[i]));
    slot[i] = NULL;
}

static void write_and_check(void) {
    uint64_t *bad;
    OK(cudaMallocHost((void **)&bad, sizeof *bad));
    *bad = 0;
    for (int i = 0; i < used; i++) {
        size_t words = size[i] / 4 < CHECKED_WORDS ? size[i] / 4 : CHECKED_WORDS;
        if (slot[i]) OK(launch_fill(NULL, slot[i], words, 77u * i, 1000));
    }
    for (int i = 0; i < used; i++) {
        size_t words = size[i] / 4 < CHECKED_WORDS ? size[i] / 4 : CHECKED_WORDS;
        if (slot[i]) OK(launch_check(NULL, slot[i], words, 77u * i, bad, 1000));
    }
    OK(cudaDeviceSynchronize());
    if (*bad) FAIL("wrong words: %llu", (unsigned long long)*bad);
    OK(cudaFreeHost(bad));
}

int main(int argc, char **argv) {
    if (argc < 2) FAIL("needs a script");
    tk_init_runtime();
    for (char *word = strtok(argv[1], " "); word; word = strtok(NULL, " ")) {
        char *end = word + 1;
        switch (word[0]) {
        case 'a': {
            size_t bytes = parse_size(word + 1, &end);
            int n = *end == '*' ? atoi(end + 1) : 1;
            for (int i = 0; i < n; i++) allocate(bytes);
            break;
        }
        case 'f': release(atoi(word + 1)); break;
        case 'F':
            for (int i = 0; i < used; i++)
                if (slot[i]) release(i);
            break;
        case 'w': write_and_check(); break;
        case 's': OK(cudaDeviceSynchronize()); break;
        case 'r':
            OK(cudaDeviceReset());
            memset(slot, 0, sizeof slot);
            tk_init_runtime();
            break;
        case 'i': {
            size_t free_bytes = 0, total = 0;
            OK(cudaMemGetInfo(&free_bytes, &total));
            printf("free=%zu total=%zu\n", free_bytes, total);
            break;
        }
        default: FAIL("unknown command %s", word);
        }
    }
    OK(cudaDeviceSynchronize());
    printf("ok allocs=%d\n", made);
    return 0;
}
