// Runs a command and watches the device's memory from outside, every 5 ms: `watch FILE COMMAND…`. FILE gets the most bytes
// that were in use at once beyond what was in use before: pools, context, code and all. The status is the command's.
#include "nvml.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

int main(int argc, char **argv)
{
    if (argc < 3) {
        std::fprintf(stderr, "usage: watch FILE COMMAND…\n");
        return 2;
    }
    const DeviceMemory memory("");
    const std::uint64_t before = memory.used();
    std::uint64_t peak = before;
    const pid_t child = fork();
    if (child == 0) {
        execvp(argv[2], argv + 2);
        std::perror(argv[2]);
        _exit(127);
    }
    int status = 0;
    while (child > 0 && waitpid(child, &status, WNOHANG) == 0) {
        peak = std::max(peak, memory.used());
        usleep(5000);
    }
    if (std::FILE *file = std::fopen(argv[1], "w")) {
        if (memory.works()) {
            std::fprintf(file, "%llu\n", static_cast<unsigned long long>(peak - before));
        } else {
            std::fprintf(file, "-\n");
        }
        std::fclose(file);
    }
    return child < 0 ? 1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
