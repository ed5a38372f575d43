/*
 * The driver functions that the mock runtime uses. It resolves each by its unversioned name and the toolkit version
 * in which the wanted interface appeared, which is how the vendor's runtime selects an ABI.
 *
 * CUDART_VERSION chooses which runtime is imitated; see resolve.c for what differs.
 */
#ifndef MOCKRT_DRIVER_H
#define MOCKRT_DRIVER_H

#ifndef MOCKRT_VERSION
#define MOCKRT_VERSION 13000
#endif
#ifndef CUDART_VERSION
#define CUDART_VERSION MOCKRT_VERSION
#endif

#include "cuda.h"
#include "cuda_runtime_api.h"

/* Until 12.0 the plain name meant a call with room for an error text. */
#if CUDART_VERSION >= 12000
#define MOCKRT_INSTANTIATE(X) X(cuGraphInstantiate, 12000, (CUgraphExec *, CUgraph, unsigned long long))
#else
#define MOCKRT_INSTANTIATE(X) X(cuGraphInstantiate, 11000, (CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t))
#endif

/* name, version, parameters: the same for both kinds of default stream. */
#define MOCKRT_FUNCTIONS(X)                                                                            \
    X(cuInit, 2000, (unsigned))                                                                        \
    X(cuDriverGetVersion, 2020, (int *))                                                               \
    X(cuDeviceGetCount, 2000, (int *))                                                                 \
    X(cuDeviceGet, 2000, (CUdevice *, int))                                                            \
    X(cuDevicePrimaryCtxRetain, 7000, (CUcontext *, CUdevice))                                         \
    X(cuDevicePrimaryCtxReset, 11000, (CUdevice))                                                      \
    X(cuCtxSetCurrent, 4000, (CUcontext))                                                              \
    X(cuCtxGetCurrent, 4000, (CUcontext *))                                                            \
    X(cuCtxGetDevice, 2000, (CUdevice *))                                                              \
    X(cuCtxSynchronize, 2000, (void))                                                                  \
    X(cuMemAlloc, 3020, (CUdeviceptr *, size_t))                                                       \
    X(cuMemFree, 3020, (CUdeviceptr))                                                                  \
    X(cuMemGetInfo, 3020, (size_t *, size_t *))                                                        \
    X(cuMemAllocPitch, 3020, (CUdeviceptr *, size_t *, size_t, size_t, unsigned))                      \
    X(cuMemAllocManaged, 6000, (CUdeviceptr *, size_t, unsigned))                                      \
    X(cuMemHostAlloc, 2020, (void **, size_t, unsigned))                                               \
    X(cuMemFreeHost, 2000, (void *))                                                                   \
    X(cuDeviceGetDefaultMemPool, 11020, (CUmemoryPool *, CUdevice))                                    \
    X(cuArrayCreate, 3020, (CUarray *, const CUDA_ARRAY_DESCRIPTOR *))                                 \
    X(cuArrayDestroy, 2000, (CUarray))                                                                 \
    X(cuStreamCreate, 2000, (CUstream *, unsigned))                                                    \
    X(cuStreamDestroy, 4000, (CUstream))                                                               \
    X(cuThreadExchangeStreamCaptureMode, 10010, (CUstreamCaptureMode *))                               \
    MOCKRT_INSTANTIATE(X)                                                                              \
    X(cuGraphExecDestroy, 10000, (CUgraphExec))                                                        \
    X(cuGraphDestroy, 10000, (CUgraph))                                                                \
    X(cuEventCreate, 2000, (CUevent *, unsigned))                                                      \
    X(cuEventDestroy, 4000, (CUevent))                                                                 \
    X(cuEventQuery, 2000, (CUevent))                                                                   \
    X(cuEventSynchronize, 2000, (CUevent))                                                             \
    X(cuIpcGetMemHandle, 4010, (CUipcMemHandle *, CUdeviceptr))                                        \
    X(cuIpcOpenMemHandle, 11000, (CUdeviceptr *, CUipcMemHandle, unsigned))                            \
    X(cuIpcCloseMemHandle, 4010, (CUdeviceptr))

/* These have a second form in which stream 0 is the calling thread's own default stream. */
#define MOCKRT_STREAM_FUNCTIONS(X)                                                                     \
    X(cuMemcpy, 4000, (CUdeviceptr, CUdeviceptr, size_t))                                              \
    X(cuMemcpyHtoD, 3020, (CUdeviceptr, const void *, size_t))                                         \
    X(cuMemcpyDtoH, 3020, (void *, CUdeviceptr, size_t))                                               \
    X(cuMemcpyDtoD, 3020, (CUdeviceptr, CUdeviceptr, size_t))                                          \
    X(cuMemcpyAsync, 4000, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                               \
    X(cuMemcpyHtoDAsync, 3020, (CUdeviceptr, const void *, size_t, CUstream))                          \
    X(cuMemcpyDtoHAsync, 3020, (void *, CUdeviceptr, size_t, CUstream))                                \
    X(cuMemcpyDtoDAsync, 3020, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                           \
    X(cuMemsetD8, 3020, (CUdeviceptr, unsigned char, size_t))                                          \
    X(cuMemsetD8Async, 3020, (CUdeviceptr, unsigned char, size_t, CUstream))                           \
    X(cuMemAllocAsync, 11020, (CUdeviceptr *, size_t, CUstream))                                       \
    X(cuMemAllocFromPoolAsync, 11020, (CUdeviceptr *, size_t, CUmemoryPool, CUstream))                 \
    X(cuMemFreeAsync, 11020, (CUdeviceptr, CUstream))                                                  \
    X(cuStreamSynchronize, 2000, (CUstream))                                                           \
    X(cuStreamQuery, 2000, (CUstream))                                                                 \
    X(cuStreamWaitEvent, 3020, (CUstream, CUevent, unsigned))                                          \
    X(cuStreamBeginCapture, 10010, (CUstream, CUstreamCaptureMode))                                    \
    X(cuStreamEndCapture, 10000, (CUstream, CUgraph *))                                                \
    X(cuEventRecord, 2000, (CUevent, CUstream))                                                        \
    X(cuGraphLaunch, 10000, (CUgraphExec, CUstream))                                                   \
    X(cuLaunchHostFunc, 10000, (CUstream, CUhostFn, void *))

/* cuda.h makes macros of some names for programs that link the driver; a member has the plain name in any case. */
#define MOCKRT_MEMBER(name, version, parameters) CUresult(*p_##name) parameters;
struct mockrt_driver {
    MOCKRT_FUNCTIONS(MOCKRT_MEMBER)
    MOCKRT_STREAM_FUNCTIONS(MOCKRT_MEMBER)
};

/* [0]: stream 0 is the legacy default stream; [1]: the per-thread one. */
extern struct mockrt_driver mockrt_driver[2];

/* Resolves the driver on the first call. */
cudaError_t mockrt_resolve(void);
/* The same, and makes a context current if the thread has none. */
cudaError_t mockrt_context(void);
/* Keeps a failed call's code as the thread's last error and returns it. */
cudaError_t mockrt_result(int code);
/* The runtime's way to ask the driver for a function, after mockrt_resolve. */
CUresult mockrt_query(const char *name, void **out, int version, cuuint64_t flags,
                      CUdriverProcAddressQueryResult *status);

#endif
