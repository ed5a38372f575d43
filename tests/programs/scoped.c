/* A library that asks by scope. With INNER: the one that it brings along, which is linked with nothing itself. */
#define _GNU_SOURCE
#include <dlfcn.h>

/* The lookup must return to this library, so its answer passes through a variable. */
#ifdef INNER
void *inner_default(const char *name) {
    void *volatile found = dlsym(RTLD_DEFAULT, name);
    return found;
}
#else
void *inner_default(const char *name);

void *scoped_default(const char *name) {
    void *volatile found = dlsym(RTLD_DEFAULT, name);
    return found;
}

void *scoped_next(const char *name) {
    void *volatile found = dlsym(RTLD_NEXT, name);
    inner_default("x");
    return found;
}
#endif
