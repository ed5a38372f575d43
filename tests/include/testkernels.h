/*
 * Kernels for programs in plain C. A simulated driver has them built in and takes any module image for them; a real one
 * compiles the image that it is given.
 *
 *   fill(p, n, v, ns)        p[i] = v + i
 *   check(p, n, v, bad, ns)  *bad += number of i with p[i] != v + i
 *   copy(dst, src, n, ns)    dst[i] = src[i]
 *   add1(p, n, ns)           p[i] += 1
 *   spin(ns)                 nothing, for that long
 *
 * Each runs late, on the given stream, and takes `ns` of the device's time. Call one of the tk_init functions in the
 * context that the kernels are to run in, and again after a reset.
 */
#ifndef TEST_KERNELS_H
#define TEST_KERNELS_H

#include "check.h"
#include "testkernels_ptx.h"

#include <stdint.h>

struct testkernels {
    int (*load)(void **module, const void *image);
    int (*function)(void **function, void *module, const char *name);
    int (*launch)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *stream,
                  void **parameters, void **extra);
    void *fill, *check, *copy, *add1, *spin;
};

static struct testkernels tk;

static inline void tk_load(void) {
    void *module = NULL;
    OK(tk.load(&module, TK_PTX));
    OK(tk.function(&tk.fill, module, "fill"));
    OK(tk.function(&tk.check, module, "check"));
    OK(tk.function(&tk.copy, module, "copy"));
    OK(tk.function(&tk.add1, module, "add1"));
    OK(tk.function(&tk.spin, module, "spin"));
}

/* For programs that find the driver's functions themselves. */
static inline void tk_init_from(void *(*find)(const char *name)) {
    *(void **)&tk.load = find("cuModuleLoadData");
    *(void **)&tk.function = find("cuModuleGetFunction");
    *(void **)&tk.launch = find("cuLaunchKernel");
    ASSERT(tk.load && tk.function && tk.launch);
    tk_load();
}

#ifdef CUDA_RUNTIME_API_H_FOR_TESTS
#define TK_RUNTIME
#elif defined(__CUDA_RUNTIME_API_H__)
#define TK_RUNTIME
#endif

#ifdef TK_RUNTIME
static inline void *tk_find_by_runtime(const char *name) {
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult status;
    OK(cudaGetDriverEntryPointByVersion(name, &function, 11000, cudaEnableDefault, &status));
    return function;
}

/* For programs on the runtime: makes the context, then asks the runtime for the driver's functions. */
static inline void tk_init_runtime(void) {
    OK(cudaFree(0));
    tk_init_from(tk_find_by_runtime);
}
#elif !defined(TK_NO_DRIVER_LINK)
/* For programs linked with the driver. */
static inline void tk_init_driver(void) {
    tk.load = (int (*)(void **, const void *))cuModuleLoadData;
    tk.function = (int (*)(void **, void *, const char *))cuModuleGetFunction;
    *(void **)&tk.launch = (void *)cuLaunchKernel;
    tk_load();
}
#endif

static inline int tk_launch(void *function, void *stream, void **parameters) {
    return tk.launch(function, 64, 1, 1, 128, 1, 1, 0, stream, parameters, NULL);
}

static inline int launch_fill(void *stream, void *p, uint64_t words, uint32_t v, uint64_t ns) {
    void *parameters[] = {&p, &words, &v, &ns};
    return tk_launch(tk.fill, stream, parameters);
}

static inline int launch_check(void *stream, const void *p, uint64_t words, uint32_t v, uint64_t *bad, uint64_t ns) {
    void *parameters[] = {&p, &words, &v, &bad, &ns};
    return tk_launch(tk.check, stream, parameters);
}

static inline int launch_copy(void *stream, void *dst, const void *src, uint64_t words, uint64_t ns) {
    void *parameters[] = {&dst, &src, &words, &ns};
    return tk_launch(tk.copy, stream, parameters);
}

static inline int launch_add1(void *stream, void *p, uint64_t words, uint64_t ns) {
    void *parameters[] = {&p, &words, &ns};
    return tk_launch(tk.add1, stream, parameters);
}

static inline int launch_spin(void *stream, uint64_t ns) {
    void *parameters[] = {&ns};
    return tk_launch(tk.spin, stream, parameters);
}

#endif
