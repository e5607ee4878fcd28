/* Turns CUPTI's activity records into records of the trace file. */
#ifndef INJECT_RECORDS_H
#define INJECT_RECORDS_H

#include <stddef.h>
#include <stdint.h>

struct cupti;

/* All records in the first `valid` bytes of a completed buffer. Needs the writer's lock; names are
 * copied before it returns, because CUPTI may free them with the module. */
void records_write(const struct cupti *cupti, uint8_t *buffer, size_t valid);

#endif
