/* Hardware counters of a program's kernels by CUPTI's range profiler: each kernel that is asked for
 * runs as often as its counters need passes (the driver restores memory in between). Written as
 * Nsight Compute writes its raw page as CSV, so that one reader serves both. Kernels within CUDA
 * graphs are not counted. */
#ifndef INJECT_COUNTERS_H
#define INJECT_COUNTERS_H

struct cupti;

/* What to count comes from the environment (trace_file.h: TRACE_ENV_COUNT_*). Subscribes, then
 * waits for launches. Faults go to the file as lines that begin with "==ERROR== ". */
void counters_start(const struct cupti *cupti);

/* Leaves only the reason. */
void counters_refuse(const char *why);

#endif
