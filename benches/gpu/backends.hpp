// The allocators that the GPU benchmarks compare, behind one pair of functions. Which ones a program has depends on how
// it was built: cudaMalloc, cudaMallocAsync, malloc and one that does nothing always; PyTorch's caching allocator with
// -DWITH_TORCH, RMM's pool with -DWITH_RMM, and without either cuMemAlloc, for which the program needs libcuda to link
// with. The library under test is no backend: it is preloaded under `runtime` or `driver`.
#pragma once

#ifdef WITH_RMM
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#endif
#ifdef WITH_TORCH
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#endif
#if !defined(WITH_TORCH) && !defined(WITH_RMM)
#define WITH_DRIVER
#include <cuda.h>
#endif
#include <cuda_runtime_api.h>

#include <malloc.h>

#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define MUST(call)                                                                                   \
    do {                                                                                             \
        int code_ = static_cast<int>(call);                                                          \
        if (code_ != 0) {                                                                            \
            std::fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, code_);           \
            std::exit(3);                                                                            \
        }                                                                                            \
    } while (0)

using Clock = std::chrono::steady_clock;

struct Backend {
    const char *name;
    void (*open)();
    void *(*alloc)(std::size_t bytes);
    void (*free)(void *block, std::size_t bytes);
    // Calls to the driver so far that take or give memory; -1 where nobody can tell.
    long (*driver_calls)();
};

inline void no_setup()
{
}
inline long unknown_calls()
{
    return -1;
}

namespace runtime_backend {
inline void *alloc(std::size_t bytes)
{
    void *block = nullptr;
    MUST(cudaMalloc(&block, bytes));
    return block;
}
inline void free(void *block, std::size_t)
{
    MUST(cudaFree(block));
}
} // namespace runtime_backend

#ifdef WITH_DRIVER
namespace driver_backend {
inline void *alloc(std::size_t bytes)
{
    CUdeviceptr block = 0;
    MUST(cuMemAlloc(&block, bytes));
    return reinterpret_cast<void *>(static_cast<std::uintptr_t>(block));
}
inline void free(void *block, std::size_t)
{
    MUST(cuMemFree(static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(block))));
}
} // namespace driver_backend
#endif

namespace async_backend {
// The pool keeps what it has, as the others do; each thread has a stream of its own.
inline void open()
{
    cudaMemPool_t pool;
    std::uint64_t all = UINT64_MAX;
    MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
    MUST(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
}
inline cudaStream_t stream()
{
    thread_local cudaStream_t own = [] {
        cudaStream_t made = nullptr;
        MUST(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
        return made;
    }();
    return own;
}
inline void *alloc(std::size_t bytes)
{
    void *block = nullptr;
    MUST(cudaMallocAsync(&block, bytes, stream()));
    return block;
}
inline void free(void *block, std::size_t)
{
    MUST(cudaFreeAsync(block, stream()));
}
} // namespace async_backend

namespace malloc_backend {
// At most 64 KiB: larger ones malloc passes to the operating system, which is another question.
inline void *alloc(std::size_t bytes)
{
    return std::malloc(bytes < 65536 ? bytes : 65536);
}
inline void free(void *block, std::size_t)
{
    std::free(block);
}
} // namespace malloc_backend

namespace whole_backend {
// malloc with no limit, which keeps what it has and asks the operating system for much at once: what a general allocator needs for
// these sizes, of host memory that nobody touches.
inline void open()
{
    if (!mallopt(M_MMAP_MAX, 0) || !mallopt(M_TRIM_THRESHOLD, INT_MAX) || !mallopt(M_TOP_PAD, 256 << 20)) {
        std::fprintf(stderr, "mallopt refuses\n");
        std::exit(3);
    }
}
inline void *alloc(std::size_t bytes)
{
    void *block = std::malloc(bytes);
    MUST(block ? 0 : 2);
    return block;
}
} // namespace whole_backend

namespace nothing_backend {
// No allocator: what the player itself takes, its clock and calls by pointers.
inline void *alloc(std::size_t)
{
    static char block;
    return &block;
}
inline void free(void *, std::size_t)
{
}
} // namespace nothing_backend

#ifdef WITH_TORCH
namespace torch_backend {
inline void open()
{
    c10::cuda::CUDACachingAllocator::init(c10::cuda::device_count());
}
inline void *alloc(std::size_t bytes)
{
    return c10::cuda::CUDACachingAllocator::raw_alloc(bytes);
}
inline void free(void *block, std::size_t)
{
    c10::cuda::CUDACachingAllocator::raw_delete(block);
}
inline long calls()
{
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
    return static_cast<long>(stats.num_device_alloc + stats.num_device_free);
}
} // namespace torch_backend
#endif

#ifdef WITH_RMM
namespace rmm_backend {
// What the pool takes from the driver passes by a counter.
inline rmm::mr::statistics_resource_adaptor *upstream = nullptr;
inline rmm::mr::pool_memory_resource *pool = nullptr;
inline void open()
{
    upstream = new rmm::mr::statistics_resource_adaptor(rmm::mr::cuda_memory_resource{});
    pool = new rmm::mr::pool_memory_resource(*upstream, std::size_t{1} << 20);
}
inline long calls()
{
    const auto counted = upstream->get_allocations_counter();
    return static_cast<long>(2 * counted.total - counted.value); // those given back, and all that were taken
}
inline void *alloc(std::size_t bytes)
{
    return pool->allocate(cuda::stream_ref{cudaStream_t{nullptr}}, bytes, 256);
}
inline void free(void *block, std::size_t bytes)
{
    pool->deallocate(cuda::stream_ref{cudaStream_t{nullptr}}, block, bytes, 256);
}
} // namespace rmm_backend
#endif

inline const Backend *find_backend(const char *name)
{
    static const Backend all[] = {
        {"runtime", no_setup, runtime_backend::alloc, runtime_backend::free, unknown_calls},
        {"async", async_backend::open, async_backend::alloc, async_backend::free, unknown_calls},
        {"malloc", no_setup, malloc_backend::alloc, malloc_backend::free, unknown_calls},
        {"whole", whole_backend::open, whole_backend::alloc, malloc_backend::free, unknown_calls},
        {"nothing", no_setup, nothing_backend::alloc, nothing_backend::free, unknown_calls},
#ifdef WITH_DRIVER
        {"driver", no_setup, driver_backend::alloc, driver_backend::free, unknown_calls},
#endif
#ifdef WITH_TORCH
        {"torch", torch_backend::open, torch_backend::alloc, torch_backend::free, torch_backend::calls},
#endif
#ifdef WITH_RMM
        {"rmm", rmm_backend::open, rmm_backend::alloc, rmm_backend::free, rmm_backend::calls},
#endif
    };
    for (const Backend &backend : all) {
        if (!std::strcmp(backend.name, name)) {
            return &backend;
        }
    }
    return nullptr;
}
