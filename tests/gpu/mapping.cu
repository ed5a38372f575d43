// What expandable segments take for granted of the driver, asked of the driver itself: run without the library. Each line is
// `fact NAME VALUE`; what must hold is checked and ends the program if it does not.
#include "check.cuh"

#include <cstring>
#include <vector>

constexpr size_t kPage = size_t(2) << 20;

static CUmemAllocationProp prop_of(int device)
{
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    int rdma = 0;
    MUST(cuDeviceGetAttribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device));
    prop.allocFlags.gpuDirectRDMACapable = rdma != 0;
    return prop;
}

static int set_access(CUdeviceptr at, size_t bytes, int device)
{
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return cuMemSetAccess(at, bytes, &access, 1);
}

static void fact(const char *name, long long value) { std::printf("fact %s %lld\n", name, value); }

int main()
{
    MUST(cudaSetDevice(0));
    MUST(cudaFree(nullptr));
    CUmemAllocationProp prop = prop_of(0);
    fact("rdma", prop.allocFlags.gpuDirectRDMACapable);
    size_t unit = 0;
    MUST(cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    fact("granularity", unit);
    MUST(kPage % unit != 0);

    // Sixteen times the device's memory can be reserved.
    size_t free_bytes = 0, total = 0;
    MUST(cudaMemGetInfo(&free_bytes, &total));
    size_t reserved = (total + kPage - 1) / kPage * kPage * 16;
    CUdeviceptr base = 0;
    MUST(cuMemAddressReserve(&base, reserved, kPage, 0, 0));

    // Two handles side by side are one stretch to everything that asks.
    CUmemGenericAllocationHandle handle[3];
    for (auto &one : handle) MUST(cuMemCreate(&one, kPage, &prop, 0));
    for (int i = 0; i < 2; i++) MUST(cuMemMap(base + i * kPage, kPage, 0, handle[i], 0));
    MUST(set_access(base, 2 * kPage, 0));
    CUdeviceptr start = 0, context = 1;
    size_t size = 0;
    MUST(cuMemGetAddressRange(&start, &size, base + kPage + 512));
    fact("address_range_offset", (long long)(start - base));
    fact("address_range_size", (long long)size);
    fact("context_attribute_code", cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, base));
    fact("context_attribute", (long long)context);
    CUipcMemHandle ipc;
    fact("ipc_code", cuIpcGetMemHandle(&ipc, base));
    int fd = -1;
    fact("dma_buf_over_two_handles_code",
         cuMemGetHandleForAddressRange(&fd, base, 2 * kPage, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    MUST(cuMemsetD8(base, 1, 2 * kPage));
    MUST(cudaDeviceSynchronize());

    // Moving: the bytes of a handle are the same elsewhere.
    MUST(cuMemsetD8(base + kPage, 0x5a, kPage));
    MUST(cudaDeviceSynchronize());
    MUST(cuMemUnmap(base + kPage, kPage));
    MUST(cuMemMap(base + 8 * kPage, kPage, 0, handle[1], 0));
    MUST(set_access(base + 8 * kPage, kPage, 0));
    unsigned char byte = 0;
    MUST(cuMemcpyDtoH(&byte, base + 9 * kPage - 1, 1));
    MUST(byte != 0x5a);
    fact("map_at_an_offset_code", cuMemMap(base + 16 * kPage, kPage / 2, kPage / 2, handle[2], 0));

    // All of it while a stream captures in the strictest mode, with this thread's mode relaxed: the capture survives.
    for (int relax = 0; relax < 2; relax++) {
        cudaStream_t stream;
        cudaGraph_t graph = nullptr;
        MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        cudaStreamCaptureMode mode = relax ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeGlobal;
        MUST(cudaThreadExchangeStreamCaptureMode(&mode));
        CUmemGenericAllocationHandle inside = 0;
        int made = cuMemCreate(&inside, kPage, &prop, 0);
        int mapped = made ? -1 : cuMemMap(base + 20 * kPage, kPage, 0, inside, 0);
        int set = mapped ? -1 : set_access(base + 20 * kPage, kPage, 0);
        int unmapped = mapped ? -1 : cuMemUnmap(base + 20 * kPage, kPage);
        int released = made ? -1 : cuMemRelease(inside);
        MUST(cudaThreadExchangeStreamCaptureMode(&mode));
        int end = cudaStreamEndCapture(stream, &graph);
        std::printf("fact capture_%s create %d map %d set_access %d unmap %d release %d end %d\n",
                    relax ? "relaxed" : "global", made, mapped, set, unmapped, released, end);
        MUST(relax && (made || mapped || set || unmapped || released || end));
        cudaGetLastError();
        MUST(cudaStreamDestroy(stream));
    }

    // A copy by address alone between two devices, without peer access, with and without access to the mapping.
    int devices = 0;
    MUST(cudaGetDeviceCount(&devices));
    if (devices > 1) {
        void *there = nullptr;
        MUST(cudaSetDevice(1));
        MUST(cudaMalloc(&there, kPage));
        fact("copy_without_access_code", cudaMemcpy(there, (void *)base, kPage, cudaMemcpyDefault));
        cudaGetLastError();
        int can = 0;
        MUST(cudaDeviceCanAccessPeer(&can, 1, 0));
        if (can) {
            MUST(set_access(base, kPage, 1));
            MUST(cudaMemcpy(there, (void *)base, kPage, cudaMemcpyDefault));
            MUST(cudaMemcpy(&byte, there, 1, cudaMemcpyDefault));
            MUST(byte != 1);
        }
        MUST(cudaSetDevice(0));
    }

    // Physical memory and addresses outlast the context, or are gone with its reset: either way these must be safe to call.
    MUST(cudaDeviceReset());
    fact("after_reset_unmap_code", cuMemUnmap(base, kPage));
    fact("after_reset_release_code", cuMemRelease(handle[0]));
    fact("after_reset_unmap_other_code", cuMemUnmap(base + 8 * kPage, kPage));
    fact("after_reset_release_other_code", cuMemRelease(handle[1]));
    fact("after_reset_release_unmapped_code", cuMemRelease(handle[2]));
    fact("after_reset_free_addresses_code", cuMemAddressFree(base, reserved));
    MUST(cudaFree(nullptr));
    size_t after = 0;
    MUST(cudaMemGetInfo(&after, &total));
    fact("free_bytes_before_and_after_differ_by", (long long)free_bytes - (long long)after);
    std::printf("done\n");
    return 0;
}
