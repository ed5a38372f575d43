// Where the ways of looking up a driver function lead. Prints, for each function and way, `NAME WAY MODULE+OFFSET`:
// comparable between a run without and a run with the library although addresses change from run to run.
// Driver API only; nothing is linked.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

struct Function {
    const char *symbol; // for dlsym
    const char *query;  // for cuGetProcAddress
    bool hooked;
};

// `hooked`: memory calls and what must agree with them; the rest must come through untouched.
static const Function FUNCTIONS[] = {
    {"cuInit", "cuInit", true},
    {"cuGetProcAddress_v2", "cuGetProcAddress", true},
    {"cuMemAlloc_v2", "cuMemAlloc", true},
    {"cuMemFree_v2", "cuMemFree", true},
    {"cuMemAllocPitch_v2", "cuMemAllocPitch", true},
    {"cuMemAllocManaged", "cuMemAllocManaged", true},
    {"cuMemAllocAsync", "cuMemAllocAsync", true},
    {"cuMemAllocAsync_ptsz", "cuMemAllocAsync", true},
    {"cuMemFreeAsync", "cuMemFreeAsync", true},
    {"cuMemCreate", "cuMemCreate", true},
    {"cuMemRelease", "cuMemRelease", true},
    {"cuMemMap", "cuMemMap", true},
    {"cuMemGetInfo_v2", "cuMemGetInfo", true},
    {"cuDeviceTotalMem_v2", "cuDeviceTotalMem", true},
    {"cuMemGetAddressRange_v2", "cuMemGetAddressRange", true},
    {"cuPointerGetAttribute", "cuPointerGetAttribute", true},
    {"cuIpcGetMemHandle", "cuIpcGetMemHandle", true},
    {"cuIpcOpenMemHandle_v2", "cuIpcOpenMemHandle", true},
    {"cuIpcCloseMemHandle", "cuIpcCloseMemHandle", true},
    {"cuStreamBeginCapture_v2", "cuStreamBeginCapture", true},
    {"cuStreamEndCapture", "cuStreamEndCapture", true},
    {"cuCtxSynchronize", "cuCtxSynchronize", true},
    {"cuCtxDestroy_v2", "cuCtxDestroy", true},
    {"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", true},
    {"cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxReset", true},
    {"cuMemAlloc", nullptr, false}, // the 32-bit interface
    {"cuMemFree", nullptr, false},
    {"cuDriverGetVersion", "cuDriverGetVersion", false},
    {"cuDeviceGet", "cuDeviceGet", false},
    {"cuCtxGetCurrent", "cuCtxGetCurrent", false},
    {"cuStreamCreate", "cuStreamCreate", false},
    {"cuEventRecord", "cuEventRecord", false},
    {"cuEventQuery", "cuEventQuery", false},
    {"cuLaunchKernel", "cuLaunchKernel", false},
    {"cuMemcpyHtoD_v2", "cuMemcpyHtoD", false},
    {"cuMemsetD8_v2", "cuMemsetD8", false},
    {"cuMemHostAlloc", "cuMemHostAlloc", false},
    {"cuMemAddressReserve", "cuMemAddressReserve", false},
    {"cuGetExportTable", "cuGetExportTable", false},
    {"cuGetErrorString", "cuGetErrorString", false},
};

static const int VERSIONS[] = {11030, 12000, 12050, 13000};

static void print_place(const Function &function, const char *way, void *address)
{
    Dl_info info{};
    std::printf("%s %s %s ", function.symbol, way, function.hooked ? "hooked" : "untouched");
    if (!address || !dladdr(address, &info)) {
        std::printf("%s\n", address ? "unknown" : "absent");
        return;
    }
    const char *slash = std::strrchr(info.dli_fname, '/');
    std::printf("%s+%zx\n", slash ? slash + 1 : info.dli_fname,
                static_cast<size_t>(static_cast<char *>(address) - static_cast<char *>(info.dli_fbase)));
}

int main()
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        std::fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    using GetProcAddress = int (*)(const char *, void **, int, unsigned long long, int *);
    auto get = reinterpret_cast<GetProcAddress>(dlsym(driver, "cuGetProcAddress_v2"));
    if (!get) {
        std::fprintf(stderr, "the driver has no cuGetProcAddress_v2\n");
        return 3;
    }
    for (const auto &function : FUNCTIONS) {
        print_place(function, "dlsym", dlsym(driver, function.symbol));
        for (int version : VERSIONS) {
            for (unsigned long long flags = 0; function.query && flags < 3; flags++) {
                char way[64];
                void *address = nullptr;
                int status = -1;
                // Every other query without a place for the status, as the runtimes ask.
                const int code = get(function.query, &address, version, flags, flags % 2 ? &status : nullptr);
                std::snprintf(way, sizeof way, "query@%d/%llu/%d", version, flags, code);
                print_place(function, way, code ? nullptr : address);
            }
        }
    }
    return 0;
}
