/*
 * Something like a training job of variable batch size: every step allocates activations and gradients of other sizes,
 * writes them on one stream, checks and copies them on another, and frees them without waiting. Wrong reuse of a block
 * shows as a wrong word. Prints the steps and a checksum that depends on the data only.
 *
 *   train [STEPS]
 */
#include <cuda_runtime.h>

#include "testkernels.h"

enum { LAYERS = 8, MIB = 1 << 20 };
static const size_t CHECKED_WORDS = 4096;

static size_t words_of(size_t bytes) { return bytes / 4 < CHECKED_WORDS ? bytes / 4 : CHECKED_WORDS; }

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 200;
    unsigned seed = 42;
    tk_init_runtime();
    cudaStream_t compute, side;
    cudaEvent_t produced;
    OK(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&produced, cudaEventDisableTiming));
    uint64_t *bad;
    OK(cudaMallocHost((void **)&bad, sizeof *bad));
    *bad = 0;

    void *weights[LAYERS];
    for (int l = 0; l < LAYERS; l++) {
        OK(cudaMalloc(&weights[l], (size_t)(l + 1) * 3 * MIB));
        OK(cudaMemsetAsync(weights[l], 0, CHECKED_WORDS * 4, compute));
    }
    unsigned checksum = 0;
    for (int step = 0; step < steps; step++) {
        size_t batch = 1 + next_random(&seed) % 16;
        void *activation[LAYERS];
        for (int l = 0; l < LAYERS; l++) {
            size_t bytes = batch * (l + 1) * (128 << 10) + (next_random(&seed) % 4) * 16384;
            unsigned v = step * 1000 + l;
            OK(cudaMalloc(&activation[l], bytes));
            OK(launch_fill(compute, activation[l], words_of(bytes), v, 20000));
            OK(launch_add1(compute, weights[l], CHECKED_WORDS, 5000));
        }
        OK(cudaEventRecord(produced, compute));
        OK(cudaStreamWaitEvent(side, produced, 0));
        for (int l = LAYERS - 1; l >= 0; l--) {
            void *gradient, *workspace;
            size_t bytes = batch * (l + 1) * (128 << 10);
            unsigned v = step * 1000 + l;
            OK(cudaMalloc(&gradient, bytes));
            OK(cudaMalloc(&workspace, 1024 + next_random(&seed) % 200000));
            OK(launch_check(side, activation[l], words_of(bytes), v, bad, 30000));
            OK(launch_copy(side, gradient, activation[l], words_of(bytes), 30000));
            OK(cudaFree(activation[l]));
            OK(launch_fill(compute, workspace, 256, v, 10000));
            OK(launch_check(side, gradient, words_of(bytes), v, bad, 30000));
            OK(launch_check(compute, workspace, 256, v, bad, 10000));
            OK(cudaFree(workspace));
            OK(cudaFree(gradient));
        }
        if (step % 50 == 49 || step == steps - 1) {
            unsigned loss[LAYERS];
            for (int l = 0; l < LAYERS; l++) {
                OK(cudaMemcpyAsync(&loss[l], (char *)weights[l] + 4 * (step % CHECKED_WORDS), 4, cudaMemcpyDeviceToHost,
                                   compute));
            }
            OK(cudaStreamSynchronize(compute));
            for (int l = 0; l < LAYERS; l++) checksum = checksum * 31 + loss[l];
            printf("step %d: batch %zu, checksum %08x\n", step + 1, batch, checksum);
        }
    }
    OK(cudaDeviceSynchronize());
    for (int l = 0; l < LAYERS; l++) OK(cudaFree(weights[l]));
    OK(cudaGetLastError());
    if (*bad) FAIL("wrong words: %llu", (unsigned long long)*bad);
    printf("ok, %d steps, no wrong word\n", steps);
    return 0;
}
