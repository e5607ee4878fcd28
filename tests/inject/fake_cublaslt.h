/* What a test tells the fake cuBLASLt and cuBLAS, and what those have seen. Found with dlsym as
 * fake_cublaslt_state, a function that gives the one there is. */
#ifndef TESTS_INJECT_FAKE_CUBLASLT_H
#define TESTS_INJECT_FAKE_CUBLASLT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fake_cublaslt {
    long fail; /* the call, from 1 on, that fails with `result`; 0: none */
    int result;
    bool no_algorithm, bad_algorithm;             /* of what is asked for */
    long calls, live, choices, products, grouped; /* grouped: calls for many products */
    /* of the last one */
    const void *w, *x, *bias, *add; /* the library's A, B, C; c: its D */
    void *c;
    float alpha, beta;
    bool transposed[2]; /* w, x */
    int32_t batch;
    size_t workspace_bytes;
    uint64_t algorithm, candidate; /* of which of the choices, which */
    int32_t epilogue;
    uint64_t rows, columns; /* of the last layout */
    int64_t stride;
    int type;
};

#endif
