/* Clocks, power, temperature and throttle reasons of all NVIDIA devices while a command runs, read
 * with NVML from sol's own process: CUPTI's environment records are refused on some machines (an
 * H100 under Firecracker with CUPTI 13.0: CUPTI_ERROR_NOT_COMPATIBLE), and the traced program stays
 * undisturbed. */
#ifndef TRACE_SAMPLER_H
#define TRACE_SAMPLER_H

struct trace_sampler;

/* A thread that adds samples.soltrace to `folder`. NULL where there is no NVML, no device or no
 * thread: a trace without samples is no fault. */
struct trace_sampler *trace_sampler_start(const char *folder);
void trace_sampler_stop(struct trace_sampler *sampler); /* takes NULL */

#endif
