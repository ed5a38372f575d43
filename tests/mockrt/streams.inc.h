/*
 * The runtime calls that have two forms. stream_forms.c includes this twice: KIND 0 with plain names, KIND 1 with the
 * names that a program built for per-thread default streams asks for. PTDS and PTSZ append the suffix.
 */
#define CALL(name, ...)                                                        \
    do {                                                                       \
        cudaError_t entered = mockrt_context();                                \
        if (entered != cudaSuccess) return mockrt_result(entered);             \
        if (!mockrt_driver[KIND].p_##name) return mockrt_result(cudaErrorCallRequiresNewerDriver); \
        return mockrt_result(mockrt_driver[KIND].p_##name(__VA_ARGS__));       \
    } while (0)

cudaError_t PTDS(cudaMemcpy)(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind) {
    switch (kind) {
    case cudaMemcpyHostToHost: __builtin_memmove(dst, src, count); return cudaSuccess;
    case cudaMemcpyHostToDevice: CALL(cuMemcpyHtoD, (CUdeviceptr)dst, src, count);
    case cudaMemcpyDeviceToHost: CALL(cuMemcpyDtoH, dst, (CUdeviceptr)src, count);
    case cudaMemcpyDeviceToDevice: CALL(cuMemcpyDtoD, (CUdeviceptr)dst, (CUdeviceptr)src, count);
    case cudaMemcpyDefault: CALL(cuMemcpy, (CUdeviceptr)dst, (CUdeviceptr)src, count);
    }
    return mockrt_result(cudaErrorInvalidMemcpyDirection);
}

cudaError_t PTSZ(cudaMemcpyAsync)(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                                  cudaStream_t stream) {
    switch (kind) {
    case cudaMemcpyHostToDevice: CALL(cuMemcpyHtoDAsync, (CUdeviceptr)dst, src, count, stream);
    case cudaMemcpyDeviceToHost: CALL(cuMemcpyDtoHAsync, dst, (CUdeviceptr)src, count, stream);
    case cudaMemcpyDeviceToDevice: CALL(cuMemcpyDtoDAsync, (CUdeviceptr)dst, (CUdeviceptr)src, count, stream);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault: CALL(cuMemcpyAsync, (CUdeviceptr)dst, (CUdeviceptr)src, count, stream);
    }
    return mockrt_result(cudaErrorInvalidMemcpyDirection);
}

cudaError_t PTDS(cudaMemset)(void *devPtr, int value, size_t count) {
    CALL(cuMemsetD8, (CUdeviceptr)devPtr, (unsigned char)value, count);
}

cudaError_t PTSZ(cudaMemsetAsync)(void *devPtr, int value, size_t count, cudaStream_t stream) {
    CALL(cuMemsetD8Async, (CUdeviceptr)devPtr, (unsigned char)value, count, stream);
}

cudaError_t PTSZ(cudaMallocAsync)(void **devPtr, size_t size, cudaStream_t stream) {
    if (!devPtr) return mockrt_result(cudaErrorInvalidValue);
    CALL(cuMemAllocAsync, (CUdeviceptr *)devPtr, size, stream);
}

cudaError_t PTSZ(cudaMallocFromPoolAsync)(void **devPtr, size_t size, cudaMemPool_t pool, cudaStream_t stream) {
    if (!devPtr) return mockrt_result(cudaErrorInvalidValue);
    CALL(cuMemAllocFromPoolAsync, (CUdeviceptr *)devPtr, size, pool, stream);
}

cudaError_t PTSZ(cudaFreeAsync)(void *devPtr, cudaStream_t stream) {
    CALL(cuMemFreeAsync, (CUdeviceptr)devPtr, stream);
}

cudaError_t PTSZ(cudaStreamSynchronize)(cudaStream_t stream) { CALL(cuStreamSynchronize, stream); }
cudaError_t PTSZ(cudaStreamQuery)(cudaStream_t stream) { CALL(cuStreamQuery, stream); }

cudaError_t PTSZ(cudaStreamWaitEvent)(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
    CALL(cuStreamWaitEvent, stream, event, flags);
}

cudaError_t PTSZ(cudaStreamBeginCapture)(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    CALL(cuStreamBeginCapture, stream, (CUstreamCaptureMode)mode);
}

cudaError_t PTSZ(cudaStreamEndCapture)(cudaStream_t stream, cudaGraph_t *graph) {
    CALL(cuStreamEndCapture, stream, graph);
}

cudaError_t PTSZ(cudaEventRecord)(cudaEvent_t event, cudaStream_t stream) { CALL(cuEventRecord, event, stream); }
cudaError_t PTSZ(cudaGraphLaunch)(cudaGraphExec_t exec, cudaStream_t stream) { CALL(cuGraphLaunch, exec, stream); }

cudaError_t PTSZ(cudaLaunchHostFunc)(cudaStream_t stream, cudaHostFn_t fn, void *userData) {
    CALL(cuLaunchHostFunc, stream, fn, userData);
}

cudaError_t PTSZ(cudaGetDriverEntryPointByVersion)(const char *symbol, void **funcPtr, unsigned int cudaVersion,
                                                   unsigned long long flags,
                                                   enum cudaDriverEntryPointQueryResult *driverStatus) {
    cudaError_t e = mockrt_resolve();
    if (e != cudaSuccess) return mockrt_result(e);
    if (!symbol || !funcPtr) return mockrt_result(cudaErrorInvalidValue);
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    cuuint64_t wanted = flags == cudaEnableDefault && KIND == 1 ? cudaEnablePerThreadDefaultStream : flags;
    CUresult r = mockrt_query(symbol, funcPtr, (int)cudaVersion, wanted, &status);
    if (driverStatus) *driverStatus = (enum cudaDriverEntryPointQueryResult)status;
    /* With a place to put the status in, "no such symbol" is an answer and not an error. */
    if (r == CUDA_ERROR_NOT_FOUND && driverStatus) {
        *funcPtr = NULL;
        r = CUDA_SUCCESS;
    }
    return mockrt_result(r);
}
