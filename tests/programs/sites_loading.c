/* A library whose constructor says that it has begun, and goes on when it is told to; the loader's lock is held meanwhile. */
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void constructor(void) {
    char byte = 0;
    if (write(100, &byte, 1) != 1 || read(101, &byte, 1) != 1) abort();
}
