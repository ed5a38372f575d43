/* Route: a host without CUDA that opens a plugin linked with the shared runtime, with local scope. */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>

int main(int argc, char **argv) {
    void *plugin = dlopen(argc > 1 ? argv[1] : "libplugin.so", RTLD_NOW | RTLD_LOCAL);
    if (!plugin) FAIL("%s", dlerror());
    int (*run)(void);
    *(void **)&run = dlsym(plugin, "plugin_run");
    ASSERT(run != NULL);
    printf("ok allocs=%d\n", run());
    return 0;
}
