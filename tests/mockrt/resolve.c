/*
 * How the runtime finds the driver and its context. This is the sequence that an interposer has to survive:
 *
 *   - nothing happens before the first runtime call, then everything at once;
 *   - dlopen of the bare name libcuda.so.1, then dlsym of the resolver: cuGetProcAddress in 11.x,
 *     cuGetProcAddress_v2 in 12.0 and later, and cuDriverGetVersion before that in 13.1 and later;
 *   - the first query is for the empty string;
 *   - the resolver is asked for itself, and the last answer is used from then on;
 *   - names carry no version suffix, the symbol status pointer is NULL, the flags are 0 or 2.
 */
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define MAX_DEVICES 16

typedef CUresult (*resolver_v1)(const char *, void **, int, cuuint64_t);
typedef CUresult (*resolver_v2)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

struct mockrt_driver mockrt_driver[2];

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static cudaError_t resolve_error;
static void *resolver;
static int device_count;
/* Raised by every reset of the device, so that each thread notices that its context is gone. */
static unsigned generation[MAX_DEVICES];
static unsigned retained_generation[MAX_DEVICES];
static CUcontext primary[MAX_DEVICES];

static __thread cudaError_t last_error;
static __thread int current_device;
/* The thread chose a device whose context is not current yet. */
static __thread int switch_pending;
static __thread unsigned seen_generation[MAX_DEVICES];

static int sticky(int code) {
    return code == 214 || (code >= 700 && code <= 719 && code != 704 && code != 705 && code != 708 && code != 709);
}

cudaError_t mockrt_result(int code) {
    if (code != 0 && !sticky(last_error)) last_error = (cudaError_t)code;
    return (cudaError_t)code;
}

CUresult mockrt_query(const char *name, void **out, int version, cuuint64_t flags,
                      CUdriverProcAddressQueryResult *status) {
#if CUDART_VERSION >= 12000
    return ((resolver_v2)resolver)(name, out, version, flags, status);
#else
    (void)status;
    return ((resolver_v1)resolver)(name, out, version, flags);
#endif
}

static void *lookup(const char *name, int version, cuuint64_t flags) {
    void *function = NULL;
    return mockrt_query(name, &function, version, flags, NULL) == CUDA_SUCCESS ? function : NULL;
}

/* A per-thread form exists from version 7000 on; asking for an older one would give the legacy form. */
static int per_thread_version(int version) { return version < 7000 ? 7000 : version; }

static void resolve(void) {
    resolve_error = cudaErrorInsufficientDriver;
    void *libcuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!libcuda) return;
#if CUDART_VERSION >= 13010
    int driver_version = 0;
    CUresult (*get_version)(int *) = (CUresult(*)(int *))dlsym(libcuda, "cuDriverGetVersion");
    if (!get_version || get_version(&driver_version) != CUDA_SUCCESS || driver_version < 12000) return;
#endif
#if CUDART_VERSION >= 12000
    resolver = dlsym(libcuda, "cuGetProcAddress_v2");
#else
    resolver = dlsym(libcuda, "cuGetProcAddress");
#endif
    if (!resolver) return;
    void *ignored = NULL;
    mockrt_query("", &ignored, CUDART_VERSION, 0, NULL);
    void *next = lookup("cuGetProcAddress", 11030, 0);
#if CUDART_VERSION >= 12000
    next = lookup("cuGetProcAddress", 12000, 0);
#endif
    if (!next) return;
    resolver = next;

#define RESOLVE_BOTH(name, version, parameters)                            \
    mockrt_driver[0].p_##name = (CUresult(*) parameters)lookup(#name, version, 0); \
    mockrt_driver[1].p_##name = mockrt_driver[0].p_##name;
#define RESOLVE_EACH(name, version, parameters)                            \
    mockrt_driver[0].p_##name = (CUresult(*) parameters)lookup(#name, version, 0); \
    mockrt_driver[1].p_##name = (CUresult(*) parameters)lookup(#name, per_thread_version(version), 2);
    MOCKRT_FUNCTIONS(RESOLVE_BOTH)
    MOCKRT_STREAM_FUNCTIONS(RESOLVE_EACH)

    struct mockrt_driver *d = &mockrt_driver[0];
    if (!d->p_cuInit) return;
    resolve_error = (cudaError_t)d->p_cuInit(0);
    if (resolve_error == cudaSuccess) resolve_error = (cudaError_t)d->p_cuDeviceGetCount(&device_count);
    if (resolve_error == cudaSuccess && device_count == 0) resolve_error = cudaErrorNoDevice;
    if (device_count > MAX_DEVICES) device_count = MAX_DEVICES;
}

cudaError_t mockrt_resolve(void) {
    pthread_once(&once, resolve);
    return resolve_error;
}

/* Retains the device's primary context once per generation and makes it current. */
static cudaError_t enter_device(int device) {
    pthread_mutex_lock(&contexts_lock);
    CUresult r = CUDA_SUCCESS;
    if (!primary[device] || retained_generation[device] != generation[device]) {
        r = mockrt_driver[0].p_cuDevicePrimaryCtxRetain(&primary[device], device);
        if (r == CUDA_SUCCESS) retained_generation[device] = generation[device];
    }
    CUcontext context = primary[device];
    unsigned now = generation[device];
    pthread_mutex_unlock(&contexts_lock);
    if (r == CUDA_SUCCESS) r = mockrt_driver[0].p_cuCtxSetCurrent(context);
    if (r == CUDA_SUCCESS) {
        seen_generation[device] = now;
        switch_pending = 0;
    }
    return (cudaError_t)r;
}

cudaError_t mockrt_context(void) {
    cudaError_t e = mockrt_resolve();
    if (e != cudaSuccess) return e;
    CUcontext context = NULL;
    CUresult r = mockrt_driver[0].p_cuCtxGetCurrent(&context);
    if (r != CUDA_SUCCESS) return (cudaError_t)r;
    unsigned now = __atomic_load_n(&generation[current_device], __ATOMIC_ACQUIRE);
    if (context && !switch_pending && seen_generation[current_device] == now) return cudaSuccess;
    /* A context that the program made current itself is used as it is. */
    if (context && !switch_pending && context != primary[current_device]) return cudaSuccess;
    return enter_device(current_device);
}

cudaError_t cudaSetDevice(int device) {
    cudaError_t e = mockrt_resolve();
    if (e != cudaSuccess) return mockrt_result(e);
    if (device < 0 || device >= device_count) return mockrt_result(cudaErrorInvalidDevice);
    current_device = device;
    switch_pending = 1;
#if CUDART_VERSION >= 12000
    /* From 12.0 on the context is made here; before, by whatever call needs it next. */
    e = enter_device(device);
#endif
    return mockrt_result(e);
}

cudaError_t cudaGetDevice(int *device) {
    cudaError_t e = mockrt_resolve();
    if (e != cudaSuccess) return mockrt_result(e);
    if (!device) return mockrt_result(cudaErrorInvalidValue);
    CUcontext context = NULL;
    CUdevice of_context = 0;
    *device = current_device;
    if (!switch_pending && mockrt_driver[0].p_cuCtxGetCurrent(&context) == CUDA_SUCCESS && context &&
        mockrt_driver[0].p_cuCtxGetDevice(&of_context) == CUDA_SUCCESS)
        *device = of_context;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    cudaError_t e = mockrt_resolve();
    if (e != cudaSuccess) return mockrt_result(e);
    if (!count) return mockrt_result(cudaErrorInvalidValue);
    *count = device_count;
    return cudaSuccess;
}

cudaError_t cudaDeviceReset(void) {
    cudaError_t e = mockrt_resolve();
    if (e != cudaSuccess) return mockrt_result(e);
    pthread_mutex_lock(&contexts_lock);
    CUresult r = mockrt_driver[0].p_cuDevicePrimaryCtxReset(current_device);
    __atomic_add_fetch(&generation[current_device], 1, __ATOMIC_ACQ_REL);
    pthread_mutex_unlock(&contexts_lock);
    last_error = cudaSuccess;
    return mockrt_result(r);
}

cudaError_t cudaGetLastError(void) {
    cudaError_t e = last_error;
    if (!sticky(e)) last_error = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void) { return last_error; }

cudaError_t cudaRuntimeGetVersion(int *version) {
    if (!version) return mockrt_result(cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    cudaError_t e = mockrt_resolve();
    if (e != cudaSuccess) return mockrt_result(e);
    return mockrt_result(mockrt_driver[0].p_cuDriverGetVersion(version));
}

static const struct {
    int code;
    const char *name, *text;
} messages[] = {
    {0, "cudaSuccess", "no error"},
    {1, "cudaErrorInvalidValue", "invalid argument"},
    {2, "cudaErrorMemoryAllocation", "out of memory"},
    {3, "cudaErrorInitializationError", "initialization error"},
    {35, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"},
    {36, "cudaErrorCallRequiresNewerDriver", "API call is not supported in the installed CUDA driver"},
    {100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {201, "cudaErrorDeviceUninitialized", "invalid device context"},
    {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {500, "cudaErrorSymbolNotFound", "named symbol not found"},
    {600, "cudaErrorNotReady", "device not ready"},
    {700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {719, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {801, "cudaErrorNotSupported", "operation not supported"},
    {900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {901, "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
    {999, "cudaErrorUnknown", "unknown error"},
};

const char *cudaGetErrorString(cudaError_t error) {
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++)
        if (messages[i].code == (int)error) return messages[i].text;
    return "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t error) {
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++)
        if (messages[i].code == (int)error) return messages[i].name;
    return "unrecognized error code";
}
