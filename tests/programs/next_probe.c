/*
 * A library that defines a name, and looks for the next definition of the same name: the lookup depends on the address
 * that dlsym is called from. Two of these, of different PROBE_ID, stand in a chain.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

int probe_id(void) { return PROBE_ID; }

/* The identity of the definition after this library's, or 0. */
int
#if PROBE_ID == 1
first_next(void)
#else
second_next(void)
#endif
{
    int (*next)(void);
    *(void **)&next = dlsym(RTLD_NEXT, "probe_id");
    return next ? next() : 0;
}
