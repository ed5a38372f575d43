// How a program notices that memory was handed out while somebody still used it: every word is written with a known
// value, and looked at late, on the same stream.
#pragma once
#include "check.cuh"

#include <atomic>
#include <cstdint>
#include <vector>

static __global__ void fill(unsigned *words, int count, unsigned seed)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        words[i] = seed + i;
    }
}

// Waits first, so that whoever else was given the memory has time to write to it.
static __global__ void check_late(const unsigned *words, int count, unsigned seed, long long cycles,
                                  unsigned long long *wrong)
{
    busy(cycles);
    unsigned long long found = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        found += words[i] != seed + i;
    }
    if (found) {
        atomicAdd(wrong, found);
    }
}

struct Random {
    unsigned state;
    unsigned below(unsigned bound)
    {
        state = state * 1664525u + 1013904223u;
        return static_cast<unsigned>((static_cast<unsigned long long>(state) * bound) >> 32);
    }
};

// The addresses that were handed out so far, by any thread.
class Seen {
public:
    Seen() : slots(std::size_t{1} << BITS)
    {
    }
    // Whether `block` was handed out before. May miss that once very many addresses are known, never invents it.
    bool before(const void *block)
    {
        const auto address = reinterpret_cast<std::uintptr_t>(block);
        std::size_t at = ((address >> 9) * 0x9E3779B97F4A7C15ull) >> (64 - BITS);
        for (int probe = 0; probe < 64; probe++, at = (at + 1) % slots.size()) {
            std::uintptr_t was = slots[at].load(std::memory_order_relaxed);
            if (was == address) {
                return true;
            }
            if (was == 0 && slots[at].compare_exchange_strong(was, address)) {
                return false;
            }
            if (was == address) {
                return true;
            }
        }
        return false;
    }

private:
    static const int BITS = 21;
    std::vector<std::atomic<std::uintptr_t>> slots;
};
