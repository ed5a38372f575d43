/*
 * The allocators that people write themselves, to hold the pool against: behind one lock, with the device's memory taken
 * from a counter that stands for the driver. None of them knows when the GPU is done with a freed block, none splits or
 * joins but the buddy system, and none gives anything back. So they do less, and set what less costs.
 *
 *   exact      a list of free blocks for each size, rounded to 512 B
 *   powers     the same, with sizes rounded up to powers of two
 *   buddy      halves and joins powers of two within 2 GiB
 */
#ifndef BENCH_SIMPLE_H
#define BENCH_SIMPLE_H

#include "calls.h"

#include <pthread.h>

static pthread_mutex_t simple_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t simple_reserved, simple_next = 1ull << 40;

static uint64_t simple_driver(uint64_t bytes) {
    uint64_t block = simple_next;
    simple_next += bytes;
    simple_reserved += bytes;
    return block;
}

static inline uint64_t round_up(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }
static inline int log2_up(uint64_t bytes) { return bytes <= 1 ? 0 : 64 - __builtin_clzll(bytes - 1); }

/* A map from one number, never 0, to another; open addressing, removal by moving back. */
struct map {
    uint64_t (*cell)[2];
    uint64_t size, used;
};

static uint64_t map_home(const struct map *m, uint64_t key) {
    return (key * 0x9E3779B97F4A7C15ull >> 20) & (m->size - 1);
}
static uint64_t *map_find(struct map *m, uint64_t key) {
    if (!m->size) return NULL;
    for (uint64_t at = map_home(m, key);; at = (at + 1) & (m->size - 1)) {
        if (m->cell[at][0] == key) return &m->cell[at][1];
        if (!m->cell[at][0]) return NULL;
    }
}
static void map_put(struct map *m, uint64_t key, uint64_t value) {
    if (2 * (m->used + 1) > m->size) {
        struct map larger = {NULL, m->size ? 2 * m->size : 1024, 0};
        larger.cell = calloc(larger.size, sizeof *larger.cell);
        for (uint64_t i = 0; i < m->size; i++)
            if (m->cell[i][0]) map_put(&larger, m->cell[i][0], m->cell[i][1]);
        free(m->cell);
        *m = larger;
    }
    uint64_t at = map_home(m, key);
    while (m->cell[at][0]) at = (at + 1) & (m->size - 1);
    m->cell[at][0] = key;
    m->cell[at][1] = value;
    m->used++;
}
static uint64_t map_take(struct map *m, uint64_t key) {
    uint64_t *found = map_find(m, key);
    if (!found) MUST(1);
    uint64_t value = *found, hole = (uint64_t)((uint64_t(*)[2])(found - 1) - m->cell);
    for (uint64_t at = hole;;) {
        at = (at + 1) & (m->size - 1);
        if (!m->cell[at][0]) break;
        uint64_t home = map_home(m, m->cell[at][0]);
        if (((at - home) & (m->size - 1)) >= ((at - hole) & (m->size - 1))) {
            m->cell[hole][0] = m->cell[at][0];
            m->cell[hole][1] = m->cell[at][1];
            hole = at;
        }
    }
    m->cell[hole][0] = 0;
    m->used--;
    return value;
}

/* Free blocks of one size, linked by the map `next` of their addresses: device memory cannot hold the links itself. */
static struct map size_of, next_free, first_free;

static uint64_t list_pop(uint64_t size) {
    uint64_t *first = map_find(&first_free, size);
    if (!first || !*first) return 0;
    uint64_t block = *first;
    *first = map_take(&next_free, block);
    return block;
}
static void list_push(uint64_t size, uint64_t block) {
    uint64_t *first = map_find(&first_free, size);
    if (!first) {
        map_put(&first_free, size, 0);
        first = map_find(&first_free, size);
    }
    map_put(&next_free, block, *first);
    *first = block;
}

static uint64_t rounded_alloc(uint64_t size) {
    pthread_mutex_lock(&simple_lock);
    uint64_t block = list_pop(size);
    if (!block) block = simple_driver(size);
    map_put(&size_of, block, size);
    pthread_mutex_unlock(&simple_lock);
    return block;
}
static uint64_t exact_alloc(uint64_t bytes) { return rounded_alloc(round_up(bytes, 512)); }
static uint64_t powers_alloc(uint64_t bytes) { return rounded_alloc(1ull << log2_up(bytes < 512 ? 512 : bytes)); }
static void rounded_free(uint64_t block) {
    pthread_mutex_lock(&simple_lock);
    list_push(map_take(&size_of, block), block);
    pthread_mutex_unlock(&simple_lock);
}

/* Free blocks of each order in doubly linked lists of nodes, which a map finds by their address. */
enum { BUDDY_MIN = 9, BUDDY_MAX = 31 };
struct node {
    uint64_t block;
    struct node *next, *prev;
    int order, is_free;
};
static struct node *buddy_free_list[BUDDY_MAX + 1];
static struct map buddy_node;

static void buddy_link(struct node *n) {
    n->is_free = 1;
    n->prev = NULL;
    n->next = buddy_free_list[n->order];
    if (n->next) n->next->prev = n;
    buddy_free_list[n->order] = n;
}
static void buddy_unlink(struct node *n) {
    n->is_free = 0;
    if (n->prev) n->prev->next = n->next;
    else buddy_free_list[n->order] = n->next;
    if (n->next) n->next->prev = n->prev;
}
static struct node *buddy_new(uint64_t block, int order) {
    struct node *n = malloc(sizeof *n);
    *n = (struct node){block, NULL, NULL, order, 0};
    map_put(&buddy_node, block, (uint64_t)(uintptr_t)n);
    return n;
}
static uint64_t buddy_alloc(uint64_t bytes) {
    int want = log2_up(bytes), order;
    if (want < BUDDY_MIN) want = BUDDY_MIN;
    if (want > BUDDY_MAX) MUST(1);
    pthread_mutex_lock(&simple_lock);
    for (order = want; order <= BUDDY_MAX && !buddy_free_list[order]; order++) {}
    struct node *n;
    if (order > BUDDY_MAX) {
        /* A whole root would make the reserve a multiple of it; what is taken is what the first fit inside it needs. */
        order = want < 25 ? 25 : want;
        simple_next = round_up(simple_next, 1ull << BUDDY_MAX);
        n = buddy_new(simple_driver(1ull << order), order);
    } else {
        n = buddy_free_list[order];
        buddy_unlink(n);
    }
    while (n->order > want) {
        n->order--;
        buddy_link(buddy_new(n->block + (1ull << n->order), n->order));
    }
    pthread_mutex_unlock(&simple_lock);
    return n->block;
}
static void buddy_free(uint64_t block) {
    pthread_mutex_lock(&simple_lock);
    uint64_t *found = map_find(&buddy_node, block);
    if (!found) MUST(1);
    struct node *n = (struct node *)(uintptr_t)*found;
    while (n->order < BUDDY_MAX) {
        uint64_t *other = map_find(&buddy_node, n->block ^ (1ull << n->order));
        struct node *b = other ? (struct node *)(uintptr_t)*other : NULL;
        if (!b || !b->is_free || b->order != n->order) break;
        buddy_unlink(b);
        struct node *gone = b->block < n->block ? n : b;
        n = gone == n ? b : n;
        map_take(&buddy_node, gone->block);
        free(gone);
        n->order++;
    }
    buddy_link(n);
    pthread_mutex_unlock(&simple_lock);
}

#endif
