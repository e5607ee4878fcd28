/* What the machine says about itself: energy, clocks, temperature, throttling. Each is read from
 * where Linux publishes it and is NaN, or -1, where it does not. */
#ifndef BENCH_WATCH_SENSORS_H
#define BENCH_WATCH_SENSORS_H

#include <stdbool.h>
#include <stddef.h>

/* Joules since some start, all processor packages together (RAPL); wraps around at
 * *range joules. NaN where unreadable; `reason` (may be NULL) then says why. */
double sensors_energy(double *range, const char **reason);
/* Joules between two readings. */
double sensors_energy_between(double before, double after, double range);

/* Mean present clock over the processors, MHz. */
double sensors_clock_mhz(void);

/* Times that the processor was held back because of heat, since boot, over all of them; -1 unknown.
 */
long long sensors_throttle_count(void);

/* The hottest processor sensor, degrees Celsius, with its name; NaN where there is none. */
double sensors_temperature(char *name, size_t size);

#endif
