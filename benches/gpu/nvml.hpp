// How much memory of the device is in use, whoever asks: from NVML, because a process with the library preloaded sees
// its own pool in cudaMemGetInfo. NVML counts the whole device, so nobody else may use it meanwhile.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string>

class DeviceMemory {
public:
    // `bus` is the device's PCI bus id; empty: the first device.
    explicit DeviceMemory(const std::string &bus)
    {
        void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
        if (!library) {
            return;
        }
        using Init = int (*)();
        using ByBus = int (*)(const char *, void **);
        using ByIndex = int (*)(unsigned, void **);
        auto init = reinterpret_cast<Init>(dlsym(library, "nvmlInit_v2"));
        auto by_bus = reinterpret_cast<ByBus>(dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
        auto by_index = reinterpret_cast<ByIndex>(dlsym(library, "nvmlDeviceGetHandleByIndex_v2"));
        info = reinterpret_cast<Info>(dlsym(library, "nvmlDeviceGetMemoryInfo"));
        if (!init || !by_bus || !by_index || !info || init() != 0 ||
            (bus.empty() ? by_index(0, &device) : by_bus(bus.c_str(), &device)) != 0) {
            info = nullptr;
        }
    }
    bool works() const
    {
        return info != nullptr;
    }
    // Bytes in use; 0 if it cannot be told.
    std::uint64_t used() const
    {
        struct {
            unsigned long long total, free, used;
        } memory{};
        return info && info(device, &memory) == 0 ? memory.used : 0;
    }

private:
    using Info = int (*)(void *, void *);
    Info info = nullptr;
    void *device = nullptr;
};
