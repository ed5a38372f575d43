/*
 * Captures an allocation in stream order and its free, again and again, and keeps only the executable graphs: each holds
 * its memory for its runs.
 *
 *   graph_memory GRAPHS
 */
#include <cuda.h>

#include "check.h"

int main(int argc, char **argv) {
    int most = argc > 1 ? atoi(argv[1]) : 1, count = 0;
    CUcontext context;
    CUstream stream;
    CUgraphExec exec[64];
    CUresult error = CUDA_SUCCESS;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, 1));
    while (count < most && count < 64) {
        CUdeviceptr p;
        CUgraph graph;
        OK(cuStreamBeginCapture(stream, 2));
        error = cuMemAllocAsync(&p, 32 << 20, stream);
        if (!error) OK(cuMemFreeAsync(p, stream));
        CUresult ended = cuStreamEndCapture(stream, &graph);
        if (error || ended) {
            if (!ended) OK(cuGraphDestroy(graph));
            break;
        }
        OK(cuGraphInstantiateWithFlags(&exec[count], graph, 0));
        OK(cuGraphDestroy(graph));
        OK(cuGraphLaunch(exec[count], stream));
        count++;
    }
    OK(cuStreamSynchronize(stream));
    for (int i = 0; i < count; i++) OK(cuGraphExecDestroy(exec[i]));
    printf("graphs=%d error=%d\n", count, error);
    return 0;
}
