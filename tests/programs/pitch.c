/* Pitched memory counts as the returned pitch times the height. */
#include <cuda.h>
#include <cuda_runtime.h>

#include "check.h"

int main(void) {
    void *p, *q;
    size_t pitch = 0, second = 0;
    OK(cudaMallocPitch(&p, &pitch, 1001, 5000));
    OK(cudaMallocPitch(&q, &second, 1 << 20, 3));
    ASSERT(pitch >= 1001 && pitch % 32 == 0 && (unsigned long)p % 256 == 0);
    OK(cudaMemset(p, 7, pitch * 5000));
    OK(cudaMemset(q, 7, second * 3));
    unsigned char last = 0;
    OK(cudaMemcpy(&last, (char *)p + pitch * 5000 - 1, 1, cudaMemcpyDeviceToHost));
    EXPECT(last, 7);
    printf("ok pitched=%zu\n", pitch * 5000 + second * 3);
    OK(cudaFree(p));
    OK(cudaFree(q));
    return 0;
}
