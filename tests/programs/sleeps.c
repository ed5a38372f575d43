/* A library whose constructor takes long; the loader's lock is held meanwhile. */
#include <semaphore.h>
#include <unistd.h>

extern sem_t loading;

__attribute__((constructor)) static void constructor(void) {
    sem_post(&loading);
    sleep(20);
}
