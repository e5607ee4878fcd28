/* Appends records to this process's trace file. Names and launch shapes are interned: each is
 * written once. Records are gathered in a buffer, which becomes a block with one write() when it is
 * full or flushed; what was flushed survives the process however it ends.
 *
 * One writer per process. Every function but writer_lock needs the lock. Nothing here prints, and
 * no fault reaches the program: when the disk is full or memory runs out, records are dropped and,
 * where that is still possible, counted. */
#ifndef INJECT_WRITER_H
#define INJECT_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "trace/trace_file.h"

/* The folder must exist. The file is created with the first record. level: enum trace_level. */
bool writer_open(const char *folder, uint32_t level);
void writer_lock(void);
void writer_unlock(void);

/* In the child of a fork, before anything else: a new file, which is created with the first record;
 * what the parent had not written yet stays the parent's. Makes a new lock. */
void writer_forked(void);

uint32_t writer_string(const char *text); /* 0 for NULL or without memory */
/* `shape->record` and padding are ignored. 0 without memory. */
uint32_t writer_shape(const struct trace_shape_record *shape);

/* Sets type and size of the record at `record` and appends it. */
void writer_put(enum trace_record_type type, void *record, uint16_t size);
#define WRITER_PUT(type, record) writer_put((type), &(record), sizeof(record))

void writer_note(const char *text);
void writer_lost(uint64_t records, uint64_t timestamps, uint64_t unknown); /* adds */
void writer_flush(void);       /* creates the file if it is not there yet */
void writer_end(int64_t time); /* a last record, then closes the file */

#endif
