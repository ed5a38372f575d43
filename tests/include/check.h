/* How a test program fails: one line on stderr that says where and what, and exit status 1. Success is silent. */
#ifndef TEST_CHECK_H
#define TEST_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define FAIL(...)                                        \
    do {                                                 \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);  \
        fprintf(stderr, __VA_ARGS__);                    \
        fputc('\n', stderr);                             \
        exit(1);                                         \
    } while (0)

/* A CUDA call, of either interface, that must succeed. */
#define OK(call) EXPECT(call, 0)

/* A CUDA call, or any integer, that must have this value. */
#define EXPECT(actual, expected)                                                      \
    do {                                                                              \
        long long got_ = (long long)(actual), want_ = (long long)(expected);          \
        if (got_ != want_) FAIL("%s gave %lld, not %lld", #actual, got_, want_);      \
    } while (0)

#define ASSERT(condition)                                  \
    do {                                                   \
        if (!(condition)) FAIL("not true: %s", #condition); \
    } while (0)

/* A small deterministic generator, so that runs with and without the library do the same. */
static inline unsigned next_random(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

#endif
