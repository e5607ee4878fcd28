/* libcupti, found and loaded at run time. */
#ifndef INJECT_CUPTI_H
#define INJECT_CUPTI_H

#include <stdbool.h>

#include "inject/cupti_abi.h"

#define CUPTI_MEMBER(field, symbol, parameters) int(*field) parameters;
struct cupti {
    CUPTI_FUNCTIONS(CUPTI_MEMBER)
    CUPTI_OPTIONAL_FUNCTIONS(CUPTI_MEMBER)
    void *handle;
};
#undef CUPTI_MEMBER

/* The library that the process already holds (PyTorch brings one; two in one process do not work),
 * else `preferred` unless that is NULL or empty, else the usual places. False with one line in
 * `why`. */
bool cupti_load(struct cupti *cupti, const char *preferred, char *why, size_t why_size);

const char *cupti_error(const struct cupti *cupti, int result); /* "CUPTI_ERROR_..." */

#endif
