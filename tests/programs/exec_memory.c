/*
 * Memory of a graph's nodes is held until everything instantiated from the graph is destroyed, too, and memory in stream
 * order outlives the context that was current: neither makes room under a cap before it is gone.
 *
 *   exec_memory graph|async
 *
 * Run under a cap of 1 GiB; prints what a second large allocation gave while the first is held, and after it is gone.
 */
#include <cuda.h>

#include "check.h"

#include <string.h>

typedef struct {
    CUmemPoolProps pool;
    const void *access;
    size_t access_count;
    size_t bytes;
    CUdeviceptr address;
} AllocNode;

CUresult cuGraphCreate(CUgraph *graph, unsigned flags);
CUresult cuGraphAddMemAllocNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, AllocNode *);
CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);

static const size_t large = 600u << 20;

static int second(void) {
    CUdeviceptr p;
    CUresult result = cuMemAlloc(&p, large);
    if (result == CUDA_SUCCESS) OK(cuMemFree(p));
    return result;
}

int main(int argc, char **argv) {
    OK(cuInit(0));
    CUcontext context;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    int held, gone;
    if (argc > 1 && !strcmp(argv[1], "graph")) {
        CUgraph graph;
        CUgraphExec exec;
        CUgraphNode node;
        AllocNode params;
        memset(&params, 0, sizeof params);
        params.pool.allocType = 1;
        params.pool.location.type = 1;
        params.bytes = large;
        OK(cuGraphCreate(&graph, 0));
        OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
        OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        OK(cuGraphDestroy(graph));
        held = second();
        OK(cuGraphExecDestroy(exec));
        gone = second();
    } else {
        CUcontext other;
        CUdeviceptr p;
        OK(cuCtxCreate_v2(&other, 0, 0));
        OK(cuMemAllocAsync(&p, large, 0));
        OK(cuCtxSynchronize());
        OK(cuCtxDestroy(other));
        OK(cuCtxSetCurrent(context));
        held = second();
        OK(cuMemFree(p));
        gone = second();
    }
    printf("held=%d gone=%d\n", held, gone);
    return 0;
}
