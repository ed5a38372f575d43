// The allocations of a real job through one allocator: `replay TRACE BACKEND`. A line of the trace is `a ID BYTES` or
// `f ID`. It is played twice as two phases of one program; what lives at the end of the first is freed. Times are of the
// second, each call by the clock, whose own cost is in them. The GPU does nothing else.
//
// Under the library it is played a third time, in which each call is followed by the question whether what the pool holds has
// changed: then it has taken memory from the driver or given some back. So calls and pairs of which neither did are told apart. Of
// what else the library asks of the driver, the waits for reuse are counted by its report, though not which call made them; events that
// it records and asks about (each well below a microsecond) cannot be seen from outside, and stay in; so does, with expandable
// segments, memory that is moved.
//
// Prints
//   alloc|free MEAN P50 P99 P99.9    ns
//   still_alloc|still_free|still_pair MEAN P50 P99 P99.9   ns of the third time, of those without memory from or to the driver
//   apart N WAITS                    calls of the third time that did take or give, and waits in all of it
//   clock NS                         what reading the clock twice costs
//   live BYTES                       peak of requested bytes
//   driver BYTES nvml|cuda           peak of what the driver handed out since before the first allocation, by whose word
//   calls N                          calls to the driver that took or gave memory, first two times; -1: cannot be told
#include "backends.hpp"
#include "nvml.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <vector>

struct Op {
    std::size_t bytes; // 0: a free
    unsigned id;
};

static std::vector<Op> read_trace(const char *path)
{
    std::vector<Op> ops;
    std::FILE *file = std::fopen(path, "r");
    if (!file) {
        std::perror(path);
        std::exit(2);
    }
    char kind;
    unsigned id;
    while (std::fscanf(file, " %c %u", &kind, &id) == 2) {
        std::size_t bytes = 0;
        if (kind == 'a' && std::fscanf(file, "%zu", &bytes) != 1) {
            std::fprintf(stderr, "%s: not a trace\n", path);
            std::exit(2);
        }
        ops.push_back({bytes, id});
    }
    std::fclose(file);
    if (ops.empty()) {
        std::fprintf(stderr, "%s: no allocations\n", path);
        std::exit(2);
    }
    return ops;
}

static std::uint32_t ns_since(Clock::time_point start)
{
    return static_cast<std::uint32_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

static void print_times(const char *name, std::vector<std::uint32_t> &times)
{
    if (times.empty()) {
        return;
    }
    double sum = 0;
    for (auto time : times) {
        sum += time;
    }
    std::sort(times.begin(), times.end());
    auto at = [&](std::size_t thousandth) { return times[times.size() * thousandth / 1000]; };
    std::printf("%s %.1f %u %u %u\n", name, sum / static_cast<double>(times.size()), at(500), at(990), at(999));
}

// The library's functions for programs, if it is there.
struct Library {
    std::uint64_t (*held)(int) = reinterpret_cast<std::uint64_t (*)(int)>(dlsym(RTLD_DEFAULT, "gpucache_memory_reserved"));
    std::int64_t (*stats)(char *, std::size_t) =
        reinterpret_cast<std::int64_t (*)(char *, std::size_t)>(dlsym(RTLD_DEFAULT, "gpucache_stats_json"));

    bool is_there() const
    {
        return held && stats;
    }
    // One of the report's counts of the first device, as of now.
    long count(const char *name) const
    {
        std::string text(static_cast<std::size_t>(stats(nullptr, 0)) + 4096, '\0');
        stats(&text[0], text.size());
        const std::string key = std::string("\"") + name + "\":";
        const std::size_t at = text.find(key);
        return at == std::string::npos ? -1 : std::atol(text.c_str() + at + key.size());
    }
};

class Replay {
public:
    Replay(const std::vector<Op> &trace, const Backend &to) : ops(trace), backend(to), memory(bus_id())
    {
        unsigned ids = 0;
        for (const Op &op : ops) {
            ids = std::max(ids, op.id + 1);
        }
        held.resize(ids);
        bytes_of.resize(ids);
        first_half.resize(ids);
        before = in_use();
    }

    void phase()
    {
        allocs.clear();
        frees.clear();
        std::size_t number = 0;
        for (const Op &op : ops) {
            const bool rises = op.bytes ? alloc(op) : free(op);
            if (rises || number++ % 256 == 0) {
                sample();
            }
        }
        clear();
    }

    // The third time: see above.
    void tell_apart()
    {
        const long waits = library.count("barrier");
        std::uint64_t holds = library.held(0);
        for (const Op &op : ops) {
            op.bytes ? alloc(op) : free(op);
            const std::uint32_t time = op.bytes ? allocs.back() : frees.back();
            const std::uint64_t now = library.held(0);
            const bool still = now == holds;
            holds = now;
            apart += !still;
            if (still) {
                (op.bytes ? still_allocs : still_frees).push_back(time);
            }
            if (op.bytes) {
                first_half[op.id] = still ? time : 0;
            } else if (still && first_half[op.id]) {
                still_pairs.push_back(first_half[op.id] + time);
            }
        }
        waited = library.count("barrier") - waits;
        clear();
    }

    void clear()
    {
        for (unsigned id = 0; id < held.size(); id++) {
            if (held[id]) {
                backend.free(held[id], bytes_of[id]);
                held[id] = nullptr;
            }
        }
        live = 0;
    }

    void print()
    {
        print_times("alloc", allocs);
        print_times("free", frees);
        long calls = backend.driver_calls();
        if (library.is_there()) {
            calls = library.count("driver_alloc") + library.count("driver_free");
            tell_apart();
            print_times("still_alloc", still_allocs);
            print_times("still_free", still_frees);
            print_times("still_pair", still_pairs);
            std::printf("apart %ld %ld\n", apart, waited);
        }
        std::vector<std::uint32_t> empty(10001);
        for (auto &time : empty) {
            time = ns_since(Clock::now());
        }
        std::sort(empty.begin(), empty.end());
        std::printf("clock %u\nlive %zu\ndriver %llu %s\ncalls %ld\n", empty[empty.size() / 2], live_peak,
                    static_cast<unsigned long long>(driver_peak), memory.works() ? "nvml" : "cuda", calls);
    }

private:
    const std::vector<Op> &ops;
    const Backend &backend;
    DeviceMemory memory;
    std::vector<void *> held;
    std::vector<std::size_t> bytes_of;
    std::vector<std::uint32_t> allocs, frees;
    const Library library;
    std::vector<std::uint32_t> still_allocs, still_frees, still_pairs;
    std::vector<std::uint32_t> first_half; // of a pair, by id; 0: it counts for none
    long apart = 0, waited = 0;
    std::size_t live = 0, live_peak = 0;
    std::uint64_t before = 0, driver_peak = 0;

    static std::string bus_id()
    {
        char text[64] = "";
        MUST(cudaDeviceGetPCIBusId(text, sizeof text, 0));
        return text;
    }
    std::uint64_t in_use() const
    {
        if (memory.works()) {
            return memory.used();
        }
        std::size_t free = 0, total = 0;
        MUST(cudaMemGetInfo(&free, &total));
        return total - free;
    }
    void sample()
    {
        const std::uint64_t now = in_use();
        if (now > before) {
            driver_peak = std::max(driver_peak, now - before);
        }
    }
    // Whether the live bytes are at a new peak.
    bool alloc(const Op &op)
    {
        const auto start = Clock::now();
        void *block = backend.alloc(op.bytes);
        allocs.push_back(ns_since(start));
        held[op.id] = block;
        bytes_of[op.id] = op.bytes;
        live += op.bytes;
        const bool rises = live > live_peak;
        live_peak = std::max(live, live_peak);
        return rises;
    }
    bool free(const Op &op)
    {
        const auto start = Clock::now();
        backend.free(held[op.id], bytes_of[op.id]);
        frees.push_back(ns_since(start));
        held[op.id] = nullptr;
        live -= bytes_of[op.id];
        return false;
    }
};

int main(int argc, char **argv)
{
    const Backend *backend = argc > 2 ? find_backend(argv[2]) : nullptr;
    if (!backend) {
        std::fprintf(stderr, "usage: replay TRACE BACKEND (one that this program was built with)\n");
        return 2;
    }
    const std::vector<Op> ops = read_trace(argv[1]);
    MUST(cudaFree(nullptr));
    backend->open();
    Replay replay(ops, *backend);
    replay.phase();
    replay.phase();
    replay.print();
    // Not by way of the destructors of PyTorch or RMM; the library's report is written here too.
    std::fflush(nullptr);
    std::_Exit(0);
}
