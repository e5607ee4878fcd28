#include "support/step_trace.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "trace/timeline.h"
#include "trace/trace_file.h"

enum { ROOM = 4 << 20, NAME_BYTES = 4096 };

struct writer {
    unsigned char *data;
    size_t size, block; /* block: where the open one starts; 0: none */
    int64_t host, device;
    uint32_t correlation;
};

static void end_block(struct writer *w)
{
    if (w->block == 0) return;
    uint32_t size = (uint32_t)(w->size - w->block - sizeof(struct trace_block));
    struct trace_block block = {TRACE_BLOCK_MAGIC, size,
                                trace_checksum(w->data + w->block + sizeof block, size)};
    memcpy(w->data + w->block, &block, sizeof block);
    w->block = 0;
}

static void put(struct writer *w, uint16_t type, const void *record, size_t size)
{
    if (w->block && w->size - w->block > TRACE_BLOCK_MAX - 8192) end_block(w);
    if (w->size + size + sizeof(struct trace_block) > ROOM) abort();
    if (w->block == 0) {
        w->block = w->size;
        w->size += sizeof(struct trace_block);
    }
    memcpy(w->data + w->size, record, size);
    struct trace_record *head = (void *)(w->data + w->size);
    head->type = type;
    head->size = (uint16_t)size;
    w->size += size;
}
#define PUT(w, type, ...) put(w, type, &(__VA_ARGS__), sizeof(__VA_ARGS__))

static void put_text(struct writer *w, uint32_t number, const char *text)
{
    _Alignas(8) char bytes[NAME_BYTES] = "";
    size_t length = strlen(text);
    if (length > sizeof bytes - 32) length = sizeof bytes - 32;
    memcpy(bytes, &(struct trace_record){.name = number}, sizeof(struct trace_record));
    memcpy(bytes + sizeof(struct trace_record), text, length);
    put(w, TRACE_STRING, bytes, sizeof(struct trace_record) + (length + 8) / 8 * 8);
}

/* Names of the strings. */
enum {
    COMMAND = 1,
    DEVICE,
    LAUNCH,
    COPY_CALL,
    WAIT_CALL,
    COPY,
    NORM,
    QKV,
    ATTENTION,
    EXPERTS,
    ODD,
    SIDE
};

static void begin(struct writer *w, const char *odd)
{
    static const char *const names[] = {
        [COMMAND] = "python run.py",
        [DEVICE] = "NVIDIA H100 80GB HBM3",
        [LAUNCH] = "cudaLaunchKernel",
        [COPY_CALL] = "cudaMemcpyAsync",
        [WAIT_CALL] = "cudaStreamSynchronize",
        [COPY] = "copy DtoH",
        [NORM] = "rmsnorm_bf16_sm90",
        [QKV] = "nvjet_tst_128x64_64x8_1x2_h_bz_TNN",
        [ATTENTION] = "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false>>()",
        [EXPERTS] = "moe_gemm_bf16_mxfp4_128x64_sm90",
        [ODD] = "void at::native::elementwise_kernel<128, 4, lambda(int)>(int, lambda(int))",
        [SIDE] = "prefetch_next"};
    struct trace_file_header header = {TRACE_FILE_MAGIC, TRACE_FILE_VERSION, sizeof header};
    memcpy(w->data, &header, sizeof header);
    w->size = sizeof header;
    for (uint32_t i = COMMAND; i <= SIDE; i++) put_text(w, i, i == ODD && odd ? odd : names[i]);
    PUT(w, TRACE_PROCESS,
        (struct trace_process_record){
            .record.name = COMMAND, .pid = 11, .parent = 10, .start = 900, .level = TRACE_NODE});
    PUT(w, TRACE_DEVICE, (struct trace_device_record){.record.name = DEVICE, .uuid = {9}});
    PUT(w, TRACE_SHAPE,
        (struct trace_shape_record){.record.name = 1, .grid = {4, 2, 1}, .block = {128, 1, 1}});
}

static void call(struct writer *w, uint32_t name, int64_t ns)
{
    PUT(w, TRACE_API,
        (struct trace_host_record){.record.name = name,
                                   .start = w->host,
                                   .end = w->host + ns,
                                   .correlation = ++w->correlation,
                                   .thread = 42});
    w->host += ns + 300;
}

/* A launch and its kernel, which starts behind the one before it and not before its launch. */
static void work(struct writer *w, uint16_t type, uint32_t name, uint32_t stream, int64_t ns)
{
    call(w, type == TRACE_KERNEL ? LAUNCH : COPY_CALL, 2200);
    if (w->device < w->host + 900) w->device = w->host + 900;
    int64_t start = stream == 7 ? w->device : w->device - 5000;
    PUT(w, type,
        (struct trace_work_record){.record.name = name,
                                   .start = start,
                                   .end = start + ns,
                                   .correlation = w->correlation,
                                   .context = 1,
                                   .stream = stream,
                                   .shape = type == TRACE_KERNEL,
                                   .bytes = type == TRACE_KERNEL ? 0 : 4096,
                                   .from = MEMORY_DEVICE,
                                   .to = MEMORY_PINNED});
    if (stream == 7) w->device += ns + 400;
}

static void step(struct writer *w, int number)
{
    for (int layer = 0; layer < STEP_TRACE_LAYERS; layer++) {
        work(w, TRACE_KERNEL, NORM, 7, 2100);
        work(w, TRACE_KERNEL, QKV, 7, 9200);
        work(w, TRACE_KERNEL, ATTENTION, 7, 7400 + 50 * number);
        work(w, TRACE_KERNEL, ODD, 7, 1800);
        work(w, TRACE_KERNEL, EXPERTS, 7, 24000);
        if (layer % 8 == 3) work(w, TRACE_KERNEL, SIDE, 13, 3000);
    }
    work(w, TRACE_COPY, COPY, 7, 1500);
    int64_t left = w->device - w->host;
    call(w, WAIT_CALL, left > 1000 ? left : 1000);
    w->host += 21000; /* the program thinks */
}

unsigned char *step_trace_make(const char *odd, size_t *size)
{
    struct writer w = {.host = 1000, .device = 1000};
    w.data = calloc(1, ROOM);
    if (!w.data) return NULL;
    begin(&w, odd);
    for (int i = 0; i < STEP_TRACE_STEPS; i++) step(&w, i);
    PUT(&w, TRACE_END, (struct trace_end_record){.time = w.host});
    end_block(&w);
    *size = w.size;
    return w.data;
}
