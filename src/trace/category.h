/* What a kernel does, told from its name. */
#ifndef TRACE_CATEGORY_H
#define TRACE_CATEGORY_H

#include <stdbool.h>

enum kernel_category {
    CATEGORY_GEMM,
    CATEGORY_ATTENTION,
    CATEGORY_NORM,
    CATEGORY_ROPE,
    CATEGORY_MOE,
    CATEGORY_QUANTIZE,
    CATEGORY_TRANSPOSE,
    CATEGORY_SOFTMAX,
    CATEGORY_SAMPLING,
    CATEGORY_COMMUNICATION, /* collectives: what ranks pass to each other */
    CATEGORY_COPY,
    CATEGORY_REDUCE,
    CATEGORY_ELEMENTWISE,
    CATEGORY_GRAPH, /* a whole graph, whose kernels were not traced */
    CATEGORY_OTHER,
    CATEGORY_COUNT
};

const char *category_name(enum kernel_category category); /* "moe routing"; "?" out of range */

/* Of a kernel's name, mangled or not: the function's own name decides before its template arguments
 * do. */
enum kernel_category category_of(const char *name);

/* Only makes what products read, in other numbers or another order; not casts. */
static inline bool category_prepares(enum kernel_category category)
{
    return category == CATEGORY_QUANTIZE || category == CATEGORY_TRANSPOSE;
}

#endif
