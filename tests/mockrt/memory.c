/* The runtime calls that have one form only: memory, streams, events, graphs, IPC. Each is a thin layer over the driver. */
#include "driver.h"

/* Enters the context and calls the driver; a function that the driver lacks fails as with the vendor's runtime. */
#define CALL(name, ...)                                                        \
    do {                                                                       \
        cudaError_t entered = mockrt_context();                                \
        if (entered != cudaSuccess) return mockrt_result(entered);             \
        if (!mockrt_driver[0].p_##name) return mockrt_result(cudaErrorCallRequiresNewerDriver); \
        return mockrt_result(mockrt_driver[0].p_##name(__VA_ARGS__));          \
    } while (0)

cudaError_t cudaMalloc(void **devPtr, size_t size) {
    if (!devPtr) return mockrt_result(cudaErrorInvalidValue);
    if (size == 0) {
        cudaError_t e = mockrt_context();
        if (e == cudaSuccess) *devPtr = NULL;
        return mockrt_result(e);
    }
    CALL(cuMemAlloc, (CUdeviceptr *)devPtr, size);
}

cudaError_t cudaFree(void *devPtr) {
    if (!devPtr) return mockrt_result(mockrt_context());
    CALL(cuMemFree, (CUdeviceptr)devPtr);
}

cudaError_t cudaMemGetInfo(size_t *freeBytes, size_t *totalBytes) { CALL(cuMemGetInfo, freeBytes, totalBytes); }

cudaError_t cudaMallocPitch(void **devPtr, size_t *pitch, size_t width, size_t height) {
    if (!devPtr || !pitch) return mockrt_result(cudaErrorInvalidValue);
    CALL(cuMemAllocPitch, (CUdeviceptr *)devPtr, pitch, width, height, 4);
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *p, struct cudaExtent extent) {
    if (!p) return mockrt_result(cudaErrorInvalidValue);
    void *base = NULL;
    size_t pitch = 0;
    cudaError_t e = cudaMallocPitch(&base, &pitch, extent.width, extent.height * extent.depth);
    if (e != cudaSuccess) return e;
    *p = (struct cudaPitchedPtr){base, pitch, extent.width, extent.height};
    return cudaSuccess;
}

cudaError_t cudaMallocArray(cudaArray_t *array, const struct cudaChannelFormatDesc *desc, size_t width, size_t height,
                            unsigned int flags) {
    if (!array || !desc || flags != 0) return mockrt_result(cudaErrorInvalidValue);
    unsigned channels = (desc->x > 0) + (desc->y > 0) + (desc->z > 0) + (desc->w > 0);
    CUarray_format format = desc->x == 8 ? CU_AD_FORMAT_UNSIGNED_INT8 : CU_AD_FORMAT_FLOAT;
    CUDA_ARRAY_DESCRIPTOR d = {width, height, format, channels};
    CALL(cuArrayCreate, (CUarray *)array, &d);
}

cudaError_t cudaFreeArray(cudaArray_t array) {
    if (!array) return mockrt_result(mockrt_context());
    CALL(cuArrayDestroy, (CUarray)array);
}

cudaError_t cudaMallocManaged(void **devPtr, size_t size, unsigned int flags) {
    if (!devPtr) return mockrt_result(cudaErrorInvalidValue);
    CALL(cuMemAllocManaged, (CUdeviceptr *)devPtr, size, flags);
}

cudaError_t cudaMallocHost(void **ptr, size_t size) { CALL(cuMemHostAlloc, ptr, size, 0); }

cudaError_t cudaFreeHost(void *ptr) {
    if (!ptr) return mockrt_result(mockrt_context());
    CALL(cuMemFreeHost, ptr);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    CALL(cuDeviceGetDefaultMemPool, pool, device);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) { CALL(cuStreamCreate, stream, 0); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) { CALL(cuStreamCreate, stream, flags); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { CALL(cuStreamDestroy, stream); }

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    CALL(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *)mode);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
#if CUDART_VERSION >= 12000
    CALL(cuGraphInstantiate, exec, graph, flags);
#else
    if (flags != 0) return mockrt_result(cudaErrorInvalidValue);
    CALL(cuGraphInstantiate, exec, graph, NULL, NULL, 0);
#endif
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { CALL(cuGraphExecDestroy, exec); }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { CALL(cuGraphDestroy, graph); }

cudaError_t cudaEventCreate(cudaEvent_t *event) { CALL(cuEventCreate, event, 0); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) { CALL(cuEventCreate, event, flags); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { CALL(cuEventDestroy, event); }
cudaError_t cudaEventQuery(cudaEvent_t event) { CALL(cuEventQuery, event); }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { CALL(cuEventSynchronize, event); }

cudaError_t cudaDeviceSynchronize(void) {
    cudaError_t entered = mockrt_context();
    if (entered != cudaSuccess) return mockrt_result(entered);
    return mockrt_result(mockrt_driver[0].p_cuCtxSynchronize());
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *devPtr) {
    CALL(cuIpcGetMemHandle, (CUipcMemHandle *)handle, (CUdeviceptr)devPtr);
}

cudaError_t cudaIpcOpenMemHandle(void **devPtr, cudaIpcMemHandle_t handle, unsigned int flags) {
    CUipcMemHandle h;
    __builtin_memcpy(&h, &handle, sizeof h);
    CALL(cuIpcOpenMemHandle, (CUdeviceptr *)devPtr, h, flags);
}

cudaError_t cudaIpcCloseMemHandle(void *devPtr) { CALL(cuIpcCloseMemHandle, (CUdeviceptr)devPtr); }
