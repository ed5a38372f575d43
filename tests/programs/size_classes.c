/* Holds blocks just above powers of two; the report says what that wasted. */
#include <cuda_runtime.h>

#include "check.h"

int main(void) {
    size_t requested = 0;
    int n = 0;
    for (int shift = 13; shift <= 26; shift++)
        for (int i = 0; i < (shift < 20 ? 64 : 2); i++) {
            void *p;
            size_t bytes = ((size_t)1 << shift) + 1 + 64 * i;
            OK(cudaMalloc(&p, bytes));
            requested += bytes;
            n++;
        }
    printf("ok allocs=%d requested=%zu\n", n, requested);
    return 0;
}
