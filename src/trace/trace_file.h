/* The trace file: what the injected library appends while a program runs and sol reads afterwards.
 *
 *   file   = header, block...
 *   block  = struct trace_block, then `size` bytes of whole records; written with one write()
 *   record = struct trace_record (type, size, name), then the rest of its struct
 *
 * Little-endian, everything aligned to 8 bytes. A file may end anywhere: blocks whose checksum
 * holds are used, the rest is reported. Names are numbers given out by STRING records, launch
 * shapes by SHAPE records, each before its first use. A reader skips record types that it does not
 * know, and reads a longer record's known part, so that both may be added within a version.
 *
 * One file per process, <folder>/<pid>-<start ns>.soltrace, one of samples of the devices, and of
 * programs that say what their steps are (ranges.h) one more.
 * Times are ns of the tracer's clock, which all processes of a machine share. This header is all
 * that writer and reader have in common; it depends on nothing of sol that is not itself only a
 * header. */
#ifndef TRACE_TRACE_FILE_H
#define TRACE_TRACE_FILE_H

#include <stdint.h>

#include "base/bytes_hash.h"

#define TRACE_FILE_SUFFIX ".soltrace"
#define TRACE_FILE_MAGIC  UINT64_C(0x45434152544c4f53) /* "SOLTRACE" */
#define TRACE_BLOCK_MAGIC UINT32_C(0x6b6c4273)         /* "sBlk" */

enum {
    TRACE_FILE_VERSION = 1,
    TRACE_BLOCK_MAX = 1 << 20, /* bytes of records in a block, at most */
    TRACE_RECORD_MAX = 65528,  /* bytes of a record, at most; longer names are cut */
};

/* Names of the environment variables by which sol tells the library what to do. */
#define TRACE_ENV_FOLDER "SOL_TRACE_DIR"
#define TRACE_ENV_LEVEL  "SOL_TRACE_LEVEL" /* off, launch, graph, node, counters */
/* Level counters: metrics with commas between them, at most so many launches, and which kernels
 * (an extended regular expression on the symbol; empty: all). */
#define TRACE_ENV_COUNT_METRICS  "SOL_COUNT_METRICS"
#define TRACE_ENV_COUNT_LAUNCHES "SOL_COUNT_LAUNCHES"
#define TRACE_ENV_COUNT_KERNELS  "SOL_COUNT_KERNELS"
#define TRACE_ENV_CUPTI          "SOL_CUPTI" /* the libcupti to use; empty: search */

struct trace_file_header {
    uint64_t magic;
    uint32_t version;
    uint32_t size; /* of this struct; records start there */
};

struct trace_block {
    uint32_t magic;
    uint32_t size; /* bytes of records that follow */
    uint64_t checksum;
};

enum trace_record_type {
    TRACE_STRING = 1, /* trace_record, then the text, padded with NUL; name: its number */
    TRACE_SHAPE,      /* trace_shape_record; name: its number */
    TRACE_KERNEL,     /* trace_work_record, like the next three */
    TRACE_COPY,
    TRACE_SET,
    TRACE_GRAPH_RUN,
    TRACE_API, /* trace_host_record, like the next three */
    TRACE_SYNC,
    TRACE_OVERHEAD,
    TRACE_LOAD,
    TRACE_MARKER,   /* trace_marker_record */
    TRACE_ALLOC,    /* trace_alloc_record */
    TRACE_SAMPLE,   /* trace_sample_record */
    TRACE_DEVICE,   /* trace_device_record */
    TRACE_PROCESS,  /* trace_process_record; first in a process's file */
    TRACE_LOST,     /* trace_lost_record: lost since the last one */
    TRACE_NOTE,     /* trace_record alone: name is the text */
    TRACE_END,      /* trace_end_record: the process ended in order, nothing follows */
    TRACE_COUNT,    /* trace_count_record: launches of a kernel since its last one */
    TRACE_EXPECTED, /* trace_expected_record */
};

struct trace_record {
    uint16_t type, size; /* size: of the whole record, a multiple of 8 */
    uint32_t name;
};

/* A kernel, a copy, a set, a run of a graph. */
struct trace_work_record {
    struct trace_record record;
    int64_t start, end;
    uint32_t correlation, device; /* device: CUDA ordinal in the process, as in device records */
    uint32_t context, stream;
    uint32_t graph;
    uint32_t shape; /* kernels: number of the shape */
    uint64_t node;
    uint64_t bytes;
    uint8_t from, to; /* enum memory_kind; here and below the numbers of trace/timeline.h */
    uint16_t flags;   /* enum transfer_flag */
    uint32_t zero;
};

struct trace_shape_record {
    struct trace_record record;
    uint32_t grid[3], block[3], cluster[3];
    uint32_t registers, shared_static, shared_dynamic, local, zero;
};

struct trace_host_record {
    struct trace_record record;
    int64_t start, end;
    uint32_t correlation, thread, context, stream;
};

enum trace_marker_flag { TRACE_MARKER_MARK = 1, TRACE_MARKER_START = 2, TRACE_MARKER_END = 4 };
struct trace_marker_record {
    struct trace_record record; /* the name is that of the start */
    int64_t time;
    uint32_t id, flags, thread;
    uint32_t domain; /* string */
};

struct trace_alloc_record {
    struct trace_record record;
    int64_t time;
    uint64_t bytes;
    uint32_t correlation, device, context, stream;
    uint16_t kind; /* enum memory_kind */
    uint16_t flags;
    uint32_t zero;
};

/* Unknown fields are 0, temperature INT32_MIN. */
struct trace_sample_record {
    struct trace_record record;
    int64_t time;
    uint32_t device, sm_mhz, memory_mhz, power_mw, power_limit_mw;
    int32_t temperature_c;
    uint32_t throttle, zero;
};

struct trace_device_record {
    struct trace_record record;
    uint8_t uuid[16];
    uint64_t memory_bytes, memory_kbytes_per_s;
    uint32_t device, clock_khz, sm_count, compute_major, compute_minor;
    uint32_t threads_per_sm, blocks_per_sm, warp_size, registers_per_sm, registers_per_block;
    uint32_t shared_per_sm, shared_per_block;
};

/* MORE: what the program says itself of the process whose file says the rest. */
enum trace_process_flag { TRACE_PROCESS_MORE = 1 };
struct trace_process_record {
    struct trace_record record; /* the command line */
    int64_t pid, parent, start;
    uint32_t level, flags;
};

struct trace_lost_record {
    struct trace_record record;
    uint64_t records, timestamps, unknown;
};

struct trace_count_record {
    struct trace_record record;   /* the kernel */
    uint64_t launched, in_graphs; /* by calls; as nodes of graphs that ran */
};

struct trace_expected_record {
    struct trace_record record; /* name of ranges */
    uint64_t kernels;           /* that each of them launches, by its plan */
};

struct trace_end_record {
    struct trace_record record;
    int64_t time;
};

_Static_assert(
    sizeof(struct trace_work_record) == 72 && sizeof(struct trace_shape_record) == 64 &&
        sizeof(struct trace_host_record) == 40 && sizeof(struct trace_marker_record) == 32 &&
        sizeof(struct trace_alloc_record) == 48 && sizeof(struct trace_sample_record) == 48 &&
        sizeof(struct trace_device_record) == 88 && sizeof(struct trace_process_record) == 40 &&
        sizeof(struct trace_lost_record) == 32 && sizeof(struct trace_count_record) == 24 &&
        sizeof(struct trace_expected_record) == 16 && sizeof(struct trace_end_record) == 16,
    "a file format");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "records are written as they lie");

/* Over the records of a block. Each step is a bijection of the state, so that any change of one
 * 8-byte word is seen. */
static inline uint64_t trace_checksum(const void *records, uint32_t size)
{
    return bytes_hash(records, size) ^ TRACE_FILE_MAGIC;
}

#endif
