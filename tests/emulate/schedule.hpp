/* Between who runs a block's threads (emulate.cpp) and who does what they start
 * (emulate_async.cpp).
 */
#ifndef TESTS_EMULATE_SCHEDULE_HPP
#define TESTS_EMULATE_SCHEDULE_HPP

#include <stdint.h>

enum {
    EMULATED_WARP = 32,
    EMULATED_SHARED = 228 << 10,
    EMULATED_BLOCKS = 8, /* that run at once: of a cluster, or of a grid */
};

/* The others' turn; comes back when this thread has its own again. */
void emulated_yield(void);
/* The same, until others wake all who sleep there; one may be woken though what he waits for is not
 * so. */
void emulated_sleep(int *sleepers);
void emulated_wake(int *sleepers);
/* Something has happened that others may wait for. */
void emulated_progress(void);
[[noreturn]] void emulated_give_up(const char *why);
/* The block of its cluster that the present thread is of, and a block's shared memory. */
int emulated_rank(void);
bool emulated_runs(int rank);
char *emulated_memory(int rank);
int emulated_cluster_rank(void); /* emulated_rank, of a launch of clusters */
void emulated_cluster_barrier(void);

/* A random number of this block's; the schedule of a block follows from the seed. */
uint32_t emulated_random(void);
void emulated_seed(uint64_t seed);

/* One of the pieces of work that threads have started, at random; false: there is none. Some are
 * left until all threads wait. */
bool async_step(bool all_wait);
void async_begin(void); /* of a block */
void async_end(void);
extern EMULATED_NEAR bool async_used; /* by this block: its threads take random turns */

#endif
