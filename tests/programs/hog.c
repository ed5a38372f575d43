/*
 * Takes memory in blocks of one kind until it gets no more, and says how much it got, with which error, what the last
 * error was, and that the outputs of the failed call were left alone. Then it gives everything back and takes the same
 * amount again: a refusal must cost nothing. With `after-cache`, plain memory has been taken and freed before.
 *
 *   hog KIND MIB [after-cache]
 *   hog KIND BYTESb
 */
#include <cuda.h>
#include <cuda_runtime.h>

#include "check.h"

#include <string.h>

enum { MAX = 100000 };
static struct block {
    void *p;
    unsigned long long handle;
} block[MAX];
static const char *kind;
static size_t bytes;
/* Of what has two extents: a row in bytes, and how many. Rows of odd sizes are not what an aligned row is. */
static size_t row = 1 << 20, rows;
static void *const untouched = (void *)0x5a5a5a5a;

/* The driver's functions, found through the runtime: this program is linked with the runtime only. */
static void *driver(const char *name, int version) {
    void *f = NULL;
    enum cudaDriverEntryPointQueryResult status;
    OK(cudaGetDriverEntryPointByVersion(name, &f, version, cudaEnableDefault, &status));
    if (!f) FAIL("the driver has no %s", name);
    return f;
}

static int is(const char *name) { return strcmp(kind, name) == 0; }

static int take(struct block *b) {
    void *p = untouched;
    unsigned long long handle = (unsigned long long)untouched;
    size_t pitch = 0x5a5a;
    int e;
    if (is("malloc")) e = cudaMalloc(&p, bytes);
    else if (is("pitch")) e = cudaMallocPitch(&p, &pitch, row, rows);
    else if (is("3d")) {
        struct cudaPitchedPtr pp = {p, 0, 0, 0};
        e = cudaMalloc3D(&pp, (struct cudaExtent){row, rows, 1});
        p = pp.ptr;
    } else if (is("managed")) e = cudaMallocManaged(&p, bytes, cudaMemAttachGlobal);
    else if (is("async")) e = cudaMallocAsync(&p, bytes, 0);
    else if (is("pool")) {
        cudaMemPool_t pool;
        OK(cudaDeviceGetDefaultMemPool(&pool, 0));
        e = cudaMallocFromPoolAsync(&p, bytes, pool, 0);
    } else if (is("array")) {
        struct cudaChannelFormatDesc d = {32, 0, 0, 0, cudaChannelFormatKindFloat};
        e = cudaMallocArray((cudaArray_t *)&p, &d, row / 4, rows, 0);
    } else if (is("mipmap")) {
        CUresult (*create)(CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned);
        *(void **)&create = driver("cuMipmappedArrayCreate", 5000);
        CUDA_ARRAY3D_DESCRIPTOR d = {row / 4, rows, 0, CU_AD_FORMAT_FLOAT, 1, 0};
        e = create((CUmipmappedArray *)&p, &d, 1);
    } else if (is("array3d")) {
        CUresult (*create)(CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *);
        *(void **)&create = driver("cuArray3DCreate", 3020);
        CUDA_ARRAY3D_DESCRIPTOR d = {row / 64, 1 << 4, rows, CU_AD_FORMAT_FLOAT, 1, 0};
        e = create((CUarray *)&p, &d);
    } else if (is("vmm")) {
        CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
        *(void **)&create = driver("cuMemCreate", 10020);
        CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
        e = create(&handle, bytes, &prop, 0);
    } else FAIL("unknown kind %s", kind);
    if (e) ASSERT(p == untouched && handle == (unsigned long long)untouched && pitch == 0x5a5a);
    b->p = p;
    b->handle = handle;
    return e;
}

static void give(struct block *b) {
    if (is("async") || is("pool")) OK(cudaFreeAsync(b->p, 0));
    else if (is("array")) OK(cudaFreeArray((cudaArray_t)b->p));
    else if (is("mipmap") || is("array3d")) {
        CUresult (*destroy)(void *);
        *(void **)&destroy = driver(is("mipmap") ? "cuMipmappedArrayDestroy" : "cuArrayDestroy", 5000);
        OK(destroy(b->p));
    } else if (is("vmm")) {
        CUresult (*release)(CUmemGenericAllocationHandle);
        *(void **)&release = driver("cuMemRelease", 10020);
        OK(release(b->handle));
    } else OK(cudaFree(b->p));
}

static int from_driver(void) { return is("mipmap") || is("array3d") || is("vmm"); }

/* Takes all plain memory there is and frees it, which leaves a caching allocator full. */
static void fill_cache(void) {
    int n = 0;
    while (n < MAX && cudaMalloc(&block[n].p, 8 << 20) == cudaSuccess) n++;
    EXPECT(cudaGetLastError(), cudaErrorMemoryAllocation);
    for (int i = 0; i < n; i++) OK(cudaFree(block[i].p));
}

int main(int argc, char **argv) {
    if (argc < 3) FAIL("hog KIND MIB");
    kind = argv[1];
    char *unit;
    bytes = strtoull(argv[2], &unit, 10);
    if (*unit != 'b') bytes <<= 20;
    if (is("array") || is("mipmap") || is("array3d")) row = 1 << 16;
    if (*unit == 'b') row = is("array3d") ? 6400 : 3000;
    rows = bytes / row ? bytes / row : 1;
    OK(cudaFree(0));
    if (argc > 3 && !strcmp(argv[3], "after-cache")) fill_cache();
    int count[2] = {0, 0};
    for (int round = 0; round < 2; round++) {
        int e = 0, n = 0;
        while (n < MAX && (e = take(&block[n])) == 0) n++;
        int last = cudaGetLastError();
        EXPECT(e, cudaErrorMemoryAllocation);
        EXPECT(last, from_driver() ? cudaSuccess : cudaErrorMemoryAllocation);
        EXPECT(cudaGetLastError(), cudaSuccess);
        count[round] = n;
        if (round == 0)
            printf("%s: got %zu MiB in %d blocks, then error %d (%s); outputs untouched\n", kind, n * bytes >> 20, n, e,
                   cudaGetErrorString(cudaErrorMemoryAllocation));
        for (int i = 0; i < n; i++) give(&block[i]);
        OK(cudaDeviceSynchronize());
    }
    /* A pool may have given back more of what was cut for another size. */
    if (argc > 3 && count[1] > count[0]) count[1] = count[0];
    EXPECT(count[1], count[0]);
    return 0;
}
