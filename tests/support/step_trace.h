/* A trace file of a program that repeats a step: launches, kernels on two streams, copies, waits.
 */
#ifndef TESTS_SUPPORT_STEP_TRACE_H
#define TESTS_SUPPORT_STEP_TRACE_H

#include <stddef.h>

enum { STEP_TRACE_STEPS = 8, STEP_TRACE_LAYERS = 24 };

/* `odd` replaces the name of one kernel a layer; NULL: none. The same bytes on every machine; freed
 * by the caller, NULL without memory. */
unsigned char *step_trace_make(const char *odd, size_t *size);

#endif
