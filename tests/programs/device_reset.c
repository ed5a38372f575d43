/* cudaDeviceReset in the middle, with blocks live and blocks cached; old frees fail, new memory is good. */
#include <cuda_runtime.h>

#include "testkernels.h"

int main(void) {
    uint32_t host[1024];
    for (int round = 0; round < 3; round++) {
        tk_init_runtime();
        void *live[8], *p;
        for (int i = 0; i < 8; i++) OK(cudaMalloc(&live[i], (i + 1) << 18));
        OK(cudaMalloc(&p, 5 << 20));
        OK(launch_fill(NULL, p, 1024, 3, 1000));
        OK(cudaFree(p));
        size_t f, t;
        OK(cudaDeviceReset());
        EXPECT(cudaGetLastError(), cudaSuccess);
        for (int i = 0; i < 4; i++) EXPECT(cudaFree(live[i]), cudaErrorInvalidValue);
        EXPECT(cudaGetLastError(), cudaErrorInvalidValue);
        tk_init_runtime();
        OK(cudaMemGetInfo(&f, &t));
        for (int i = 0; i < 8; i++) {
            OK(cudaMalloc(&p, (i + 1) << 18));
            OK(launch_fill(NULL, p, 1024, 10 * round + i, 1000));
            OK(cudaMemcpy(host, p, sizeof host, cudaMemcpyDeviceToHost));
            for (int w = 0; w < 1024; w++) EXPECT(host[w], 10 * round + i + w);
            OK(cudaFree(p));
        }
        OK(cudaDeviceReset());
    }
    printf("ok allocs=%d\n", 3 * (9 + 8));
    return 0;
}
