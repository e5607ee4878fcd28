/* What a test tells the fake cuDNN, and what that has seen. Found with dlsym as fake_cudnn_state, a
 * function that gives the one there is. */
#ifndef TESTS_INJECT_FAKE_CUDNN_H
#define TESTS_INJECT_FAKE_CUDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As the driver has them. */
typedef int fake_copy_out_fn(void *to, uint64_t from, size_t bytes, void *stream);
typedef int fake_copy_in_fn(uint64_t to, const void *from, size_t bytes, void *stream);

struct fake_cudnn {
    long fail; /* the call, from 1 on, that fails with `result`; 0: none */
    int result;
    int kernels;                /* that it has for a graph, 0: 2; -1: none */
    int bad;                    /* so many of them, the first ones, cannot be had */
    int64_t workspace;          /* that a plan asks for; 0: 256 */
    fake_copy_out_fn *copy_out; /* NULL: the driver's that the process has */
    fake_copy_in_fn *copy_in;
    long calls, live; /* live: what was made and not given back */
    long plans, runs; /* plans: finished ones */
    /* of the last run */
    int64_t ids[16], n_ids;
    void *pointers[16];
    void *stream;
    int operations; /* of its graph */
};

#endif
