/* A library whose one function allocates. */
#include <cuda_runtime.h>

#include "check.h"

static volatile int after;

void *plugin_allocates(size_t bytes);
__attribute__((noinline)) void *plugin_allocates(size_t bytes) {
    void *p;
    OK(cudaMalloc(&p, bytes));
    after++;
    return p;
}
