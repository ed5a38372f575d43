/*
 * The allocations of a real job, replayed: `replay TRACE ALLOCATOR [times|half]`. A line of the trace is `a ID BYTES`
 * or `f ID`. It is played twice as two phases of one program; what lives at the end of the first is freed. The second is the
 * one that counts: one call of `measured`, or with `times` each call by the clock.
 *
 * ALLOCATOR is gpu (the interface that the program was built for), malloc, or one of simple.h: exact, powers, buddy.
 * malloc gets sizes of at most 64 KiB.
 *
 * `half` halves what is larger than 1 MiB, for where the simulated device is small.
 *
 * Prints `pairs`, `live` (peak of requested bytes), `reserved` (peak, of the allocators of simple.h), `ns` (mean of a
 * pair), and with `times` `alloc` and `free`, each with mean, p50, p99 and p99.9, the clock's own cost taken off.
 */
#include "simple.h"

struct op {
    uint64_t bytes; /* 0: a free */
    uint32_t id;
};

static struct op *ops;
static size_t op_count, pair_count;
static uint64_t *held, *bytes_of;
static uint64_t live, live_peak;
static uint32_t ids;

static void read_trace(const char *path, int half) {
    FILE *file = fopen(path, "r");
    char kind;
    unsigned id;
    size_t room = 0;
    if (!file) {
        perror(path);
        exit(2);
    }
    while (fscanf(file, " %c %u", &kind, &id) == 2) {
        unsigned long long bytes = 0;
        if (kind == 'a' && fscanf(file, "%llu", &bytes) != 1) MUST(1);
        if (half && bytes > 1 << 20) bytes /= 2;
        if (op_count == room) {
            room = room ? 2 * room : 65536;
            ops = realloc(ops, room * sizeof *ops);
        }
        ops[op_count++] = (struct op){bytes, id};
        pair_count += kind == 'a';
        if (id >= ids) ids = id + 1;
    }
    fclose(file);
    if (!op_count) {
        fprintf(stderr, "%s: no allocations\n", path);
        exit(2);
    }
    held = calloc(ids, sizeof *held);
    bytes_of = calloc(ids, sizeof *bytes_of);
}

struct allocator {
    const char *name;
    uint64_t (*take)(uint64_t);
    void (*give)(uint64_t);
};

static const struct allocator allocators[] = {
    {"gpu", gpu_alloc, gpu_free},          {"malloc", host_alloc_some, host_free}, {"exact", exact_alloc, rounded_free},
    {"powers", powers_alloc, rounded_free}, {"buddy", buddy_alloc, buddy_free},
};

static void note_alloc(uint32_t id, uint64_t bytes) {
    bytes_of[id] = bytes;
    live += bytes;
    if (live > live_peak) live_peak = live;
}

static void end_phase(const struct allocator *a) {
    for (uint32_t id = 0; id < ids; id++) {
        if (!held[id]) continue;
        a->give(held[id]);
        held[id] = 0;
    }
    live = 0;
}

/* The loop itself takes few instructions: a trace has been read before, and nothing is counted here. */
MEASURED void measured(const struct allocator *a) {
    for (size_t i = 0; i < op_count; i++) {
        const struct op *op = &ops[i];
        if (op->bytes) {
            held[op->id] = a->take(op->bytes);
        } else {
            a->give(held[op->id]);
            held[op->id] = 0;
        }
    }
}

static void first_phase(const struct allocator *a) {
    for (size_t i = 0; i < op_count; i++) {
        const struct op *op = &ops[i];
        if (op->bytes) {
            held[op->id] = a->take(op->bytes);
            note_alloc(op->id, op->bytes);
        } else {
            live -= bytes_of[op->id];
            a->give(held[op->id]);
            held[op->id] = 0;
        }
    }
}

static void by_the_clock(const struct allocator *a) {
    uint32_t *takes = malloc(op_count * sizeof *takes), *gives = malloc(op_count * sizeof *gives);
    size_t taken = 0, given = 0;
    for (size_t i = 0; i < op_count; i++) {
        const struct op *op = &ops[i];
        uint64_t start = now_ns();
        if (op->bytes) held[op->id] = a->take(op->bytes);
        else a->give(held[op->id]);
        uint32_t took = (uint32_t)(now_ns() - start);
        if (op->bytes) takes[taken++] = took;
        else gives[given++] = took, held[op->id] = 0;
    }
    print_times("alloc", takes, taken);
    print_times("free", gives, given);
}

int main(int argc, char **argv) {
    const struct allocator *a = NULL;
    for (size_t i = 0; argc > 2 && i < sizeof allocators / sizeof *allocators; i++)
        if (!strcmp(argv[2], allocators[i].name)) a = &allocators[i];
    if (!a) {
        fprintf(stderr, "usage: replay TRACE gpu|malloc|exact|powers|buddy [times|half]\n");
        return 2;
    }
    const char *mode = argc > 3 ? argv[3] : "";
    read_trace(argv[1], !strcmp(mode, "half"));
    gpu_open();
    first_phase(a);
    end_phase(a);
    uint64_t start = now_ns();
    if (!strcmp(mode, "times")) by_the_clock(a);
    else measured(a);
    double ns = (double)(now_ns() - start) / (double)pair_count;
    end_phase(a);
    printf("pairs %zu\nlive %llu\nreserved %llu\nns %.1f\n", pair_count, (unsigned long long)live_peak,
           (unsigned long long)simple_reserved, ns);
    return 0;
}
