/*
 * What a program may ask of libgpucache.so, if that is preloaded into it.
 *
 * Nothing needs to be linked. The functions are declared weak, so that a program built with this header runs without the
 * library, too; GPUCACHE_AVAILABLE() tells. They can be looked up by dlsym(RTLD_DEFAULT, "gpucache_…") as well.
 *
 * Every function may be called from any thread, and at any time: before the first CUDA call, in a forked child, and after
 * the library has given up. Where it serves nothing, figures are 0 and actions return GPUCACHE_INACTIVE. None of them
 * makes a CUDA call but those that give memory back or need the current device (GPUCACHE_CURRENT_DEVICE).
 */
#ifndef GPUCACHE_H
#define GPUCACHE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) && !defined(GPUCACHE_STRONG)
#define GPUCACHE_WEAK __attribute__((weak))
#else
#define GPUCACHE_WEAK
#endif

#define GPUCACHE_OK 0
/* The library serves nothing: no CUDA call yet, GPUCACHE_DISABLE, a forked child, an internal fault. */
#define GPUCACHE_INACTIVE (-1)
/* An argument cannot be. */
#define GPUCACHE_INVALID (-2)
/* The file cannot be written; stderr says why. */
#define GPUCACHE_FAILED (-3)

/* The device that is current in the calling thread. */
#define GPUCACHE_CURRENT_DEVICE (-1)
/* For gpucache_set_limit: the cap that was configured. */
#define GPUCACHE_CONFIGURED UINT64_MAX

/* The library's version, such as "0.1.0". */
GPUCACHE_WEAK const char *gpucache_version(void);

/* Gives all memory that is in no block in use back to the driver, which waits for the device. Returns the bytes. */
GPUCACHE_WEAK uint64_t gpucache_empty_cache(void);

/* Bytes of the blocks in use; the most since gpucache_reset_peak, or ever. */
GPUCACHE_WEAK uint64_t gpucache_memory_allocated(int device);
GPUCACHE_WEAK uint64_t gpucache_max_memory_allocated(int device);
/* Bytes that the pool holds from the driver; the most since gpucache_reset_peak, or ever. */
GPUCACHE_WEAK uint64_t gpucache_memory_reserved(int device);
GPUCACHE_WEAK uint64_t gpucache_max_memory_reserved(int device);
/* Bytes that the program has asked for; the most since gpucache_reset_peak, or ever. */
GPUCACHE_WEAK uint64_t gpucache_memory_requested(int device);
GPUCACHE_WEAK uint64_t gpucache_max_memory_requested(int device);

/* Starts the peaks of the functions above anew. Those of the report stay: they are the whole process's. */
GPUCACHE_WEAK int gpucache_reset_peak(int device);

/* The cap of a device, and its change. A cap that was configured is the highest that can be set. Below what is held, idle
   memory goes back at once, and nothing more is admitted until it fits. Before the device's first memory it is kept
   until then. */
GPUCACHE_WEAK uint64_t gpucache_limit(int device);
GPUCACHE_WEAK int gpucache_set_limit(int device, uint64_t bytes);

/* The report as of now, as JSON. Writes at most `size` bytes, the terminating zero among them, and returns the length
   that the whole text has without that zero, as snprintf does. With size 0, buffer may be NULL. */
GPUCACHE_WEAK int64_t gpucache_stats_json(char *buffer, size_t size);

/* Writes the report as of now: as JSON to a file, or to where GPUCACHE_REPORT says if path is NULL. */
GPUCACHE_WEAK int gpucache_write_report(const char *path);

/* Begins a phase of the program, which ends with the next. The report tells each one's peaks, allocations, growth and
   time; phases of the same name add up. 64 names are kept, of 128 bytes each. */
GPUCACHE_WEAK int gpucache_mark(const char *name);

/* Whether the library is there. */
#define GPUCACHE_AVAILABLE() (gpucache_version != NULL)

#ifdef __cplusplus
}
#endif

#endif
