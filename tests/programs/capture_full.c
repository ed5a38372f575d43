/*
 * Stream-ordered memory is allocated inside a capture while all other memory lies freed in a caching allocator's hands. What
 * has to be given back for it is given back on the capturing thread, and must not cost the capture.
 *
 *   capture_full CACHED_MIB WANTED_MIB
 */
#include <cuda_runtime.h>

#include "testkernels.h"

int main(int argc, char **argv) {
    if (argc < 3) FAIL("capture_full CACHED_MIB WANTED_MIB");
    const size_t cached = strtoull(argv[1], NULL, 10) << 20, wanted = strtoull(argv[2], NULL, 10) << 20;
    tk_init_runtime();
    for (int mode = 0; mode < 3; mode++) {
        cudaStream_t stream;
        cudaGraph_t graph = NULL;
        cudaGraphExec_t exec;
        void *plain, *ordered;
        OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        OK(cudaMalloc(&plain, cached));
        OK(launch_fill(stream, plain, 1024, 1, 1000));
        OK(cudaFree(plain));
        OK(cudaDeviceSynchronize());
        OK(cudaStreamBeginCapture(stream, (enum cudaStreamCaptureMode)mode));
        OK(cudaMallocAsync(&ordered, wanted, stream));
        OK(launch_fill(stream, ordered, 1024, 7, 1000));
        OK(cudaFreeAsync(ordered, stream));
        OK(cudaStreamEndCapture(stream, &graph));
        OK(cudaGraphInstantiate(&exec, graph, 0));
        OK(cudaGraphLaunch(exec, stream));
        OK(cudaStreamSynchronize(stream));
        OK(cudaGraphExecDestroy(exec));
        OK(cudaGraphDestroy(graph));
        OK(cudaStreamDestroy(stream));
    }
    printf("ok allocs=3\n");
    return 0;
}
