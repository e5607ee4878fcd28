#include "inject/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Large enough that a write is cheap per record, small enough to lose little. */
enum { BUFFER_SIZE = 256 << 10, TEXT_BLOCK = 64 << 10 };
_Static_assert(BUFFER_SIZE <= (int)TRACE_BLOCK_MAX && BUFFER_SIZE > 2 * (int)TRACE_RECORD_MAX,
               "a record fits a block");

struct entry {
    uint64_t hash;
    const char *text; /* kept for the comparison; shapes: NULL */
    uint32_t length;
    uint32_t shape; /* index into `shapes` */
};

/* Open addressing; entries[slot - 1] for a slot that is not 0. Numbers in the file are slots. */
struct names {
    uint32_t *slots;
    struct entry *entries;
    uint32_t n_slots, count;
};

/* Texts are copied into blocks of this list, which are never moved. */
struct text_block {
    struct text_block *next;
    uint32_t size, used;
    char text[];
};

static struct {
    pthread_mutex_t lock;
    char folder[4000];
    uint32_t level;
    int file;     /* -1: not created yet; -2: given up */
    dev_t device; /* of the file, to see that the descriptor is still ours */
    ino_t inode;
    uint32_t used; /* bytes of records in `buffer` */
    struct names strings, shapes;
    struct trace_shape_record *shape_list;
    struct text_block *texts;
} writer = {.lock = PTHREAD_MUTEX_INITIALIZER, .file = -2};

/* The next block, its header first. Apart, so that the library's file does not hold its zeros. */
static _Alignas(8) unsigned char buffer[sizeof(struct trace_block) + BUFFER_SIZE];

void writer_lock(void)
{
    pthread_mutex_lock(&writer.lock);
}

void writer_unlock(void)
{
    pthread_mutex_unlock(&writer.lock);
}

/* ---- the file ---- */

static bool write_all(const void *data, size_t size)
{
    const char *from = data;
    while (size > 0) {
        ssize_t n = write(writer.file, from, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        from += n;
        size -= (size_t)n;
    }
    return true;
}

/* Programs that become daemons close every descriptor, and the number may then be another file's.
 */
static bool still_ours(void)
{
    struct stat info;
    return writer.file >= 0 && fstat(writer.file, &info) == 0 && info.st_dev == writer.device &&
           info.st_ino == writer.inode;
}

static void give_up(void)
{
    if (still_ours()) close(writer.file);
    writer.file = -2;
}

static void create_file(void)
{
    struct timespec now;
    char path[sizeof writer.folder + 64];
    clock_gettime(CLOCK_REALTIME, &now);
    long long start = (long long)now.tv_sec * 1000000000 + now.tv_nsec;
    snprintf(path, sizeof path, "%s/%ld-%lld" TRACE_FILE_SUFFIX, writer.folder, (long)getpid(),
             start);
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) {
        give_up();
        return;
    }
    /* The program may count on the next number being 0, 1 or 2 after it closed one of those. */
    writer.file = fcntl(file, F_DUPFD_CLOEXEC, 100);
    if (writer.file < 0)
        writer.file = file;
    else
        close(file);
    struct stat info;
    if (fstat(writer.file, &info) == 0) {
        writer.device = info.st_dev;
        writer.inode = info.st_ino;
    }
    struct trace_file_header header = {TRACE_FILE_MAGIC, TRACE_FILE_VERSION, sizeof header};
    if (!write_all(&header, sizeof header)) give_up();
}

static void write_block(void)
{
    struct trace_block block = {TRACE_BLOCK_MAGIC, writer.used, 0};
    block.checksum = trace_checksum(buffer + sizeof block, writer.used);
    memcpy(buffer, &block, sizeof block);
    if (!still_ours() || !write_all(buffer, sizeof block + writer.used)) give_up();
    writer.used = 0;
}

/* The command line with blanks between its words. */
static uint32_t command_line(void)
{
    char text[4096] = "";
    int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = file >= 0 ? read(file, text, sizeof text - 1) : 0;
    if (file >= 0) close(file);
    while (n > 0 && text[n - 1] == '\0') n--;
    for (ssize_t i = 0; i < n; i++)
        if (text[i] == '\0') text[i] = ' ';
    text[n > 0 ? n : 0] = '\0';
    return writer_string(text);
}

static void append(const void *record, uint16_t size)
{
    if (writer.used + size > BUFFER_SIZE) write_block();
    memcpy(buffer + sizeof(struct trace_block) + writer.used, record, size);
    writer.used += size;
}

static void begin_file(void)
{
    struct timespec now;
    create_file();
    if (writer.file < 0) return;
    clock_gettime(CLOCK_REALTIME, &now);
    struct trace_process_record process = {
        .pid = getpid(),
        .parent = getppid(),
        .start = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec,
        .level = writer.level,
    };
    process.record.name = command_line();
    WRITER_PUT(TRACE_PROCESS, process);
}

void writer_flush(void)
{
    if (writer.file == -1) begin_file();
    if (writer.used > 0 && writer.file >= 0) write_block();
}

void writer_put(enum trace_record_type type, void *record, uint16_t size)
{
    struct trace_record *head = record;
    if (writer.file == -1) begin_file();
    if (writer.file == -2) return;
    head->type = (uint16_t)type;
    head->size = size;
    append(record, size);
}

/* ---- interning ---- */

static bool grow_names(struct names *names)
{
    if (2 * (names->count + 1) <= names->n_slots) return true;
    uint32_t wanted = names->n_slots ? 4 * names->n_slots : 1024;
    uint32_t *slots = calloc(wanted, sizeof *slots);
    if (!slots) return false;
    struct entry *entries = realloc(names->entries, wanted / 2 * sizeof *entries);
    if (!entries) {
        free(slots);
        return false;
    }
    for (uint32_t i = 0; i < names->count; i++) {
        uint32_t at = (uint32_t)entries[i].hash & (wanted - 1);
        while (slots[at]) at = (at + 1) & (wanted - 1);
        slots[at] = i + 1;
    }
    free(names->slots);
    names->slots = slots;
    names->entries = entries;
    names->n_slots = wanted;
    return true;
}

static const char *copy_text(const char *text, uint32_t length)
{
    struct text_block *block = writer.texts;
    if (!block || block->size - block->used < length) {
        uint32_t size = length > TEXT_BLOCK ? length : TEXT_BLOCK;
        block = malloc(sizeof *block + size);
        if (!block) return NULL;
        *block = (struct text_block){writer.texts, size, 0};
        writer.texts = block;
    }
    char *copy = memcpy(block->text + block->used, text, length);
    block->used += length;
    return copy;
}

static void put_string(uint32_t number, const char *text, uint32_t length)
{
    static _Alignas(8) unsigned char bytes[TRACE_RECORD_MAX];
    uint32_t size = (uint32_t)sizeof(struct trace_record) + ((length + 7) & ~7u);
    memset(bytes + size - 8, 0, 8);
    memcpy(bytes + sizeof(struct trace_record), text, length);
    struct trace_record head = {TRACE_STRING, (uint16_t)size, number};
    memcpy(bytes, &head, sizeof head);
    append(bytes, (uint16_t)size);
}

uint32_t writer_string(const char *text)
{
    if (!text) return 0;
    if (writer.file == -1) begin_file();
    if (writer.file == -2 || !grow_names(&writer.strings)) return 0;
    struct names *names = &writer.strings;
    enum { LENGTH_MAX = TRACE_RECORD_MAX - sizeof(struct trace_record) };
    uint32_t length = (uint32_t)strnlen(text, LENGTH_MAX), mask = names->n_slots - 1;
    uint64_t hash = bytes_hash(text, length);
    uint32_t at = (uint32_t)hash & mask;
    for (; names->slots[at]; at = (at + 1) & mask) {
        const struct entry *e = &names->entries[names->slots[at] - 1];
        if (e->hash == hash && e->length == length && memcmp(e->text, text, length) == 0)
            return names->slots[at];
    }
    const char *copy = copy_text(text, length);
    if (!copy) return 0;
    names->entries[names->count++] = (struct entry){hash, copy, length, 0};
    names->slots[at] = names->count;
    put_string(names->count, text, length);
    return names->count;
}

uint32_t writer_shape(const struct trace_shape_record *shape)
{
    const char *bytes = (const char *)shape + sizeof shape->record;
    const size_t size = sizeof *shape - sizeof shape->record;
    struct names *names = &writer.shapes;
    if (writer.file == -1) begin_file();
    uint32_t room = names->n_slots;
    if (writer.file == -2 || !grow_names(names)) return 0;
    if (names->n_slots != room) {
        struct trace_shape_record *list =
            realloc(writer.shape_list, names->n_slots / 2 * sizeof *list);
        if (!list) return 0;
        writer.shape_list = list;
    }
    uint64_t hash = bytes_hash(bytes, size);
    uint32_t mask = names->n_slots - 1, at = (uint32_t)hash & mask;
    for (; names->slots[at]; at = (at + 1) & mask) {
        uint32_t i = names->slots[at] - 1;
        if (names->entries[i].hash == hash &&
            memcmp((const char *)&writer.shape_list[i] + sizeof shape->record, bytes, size) == 0)
            return i + 1;
    }
    struct trace_shape_record record = *shape;
    writer.shape_list[names->count] = record;
    names->entries[names->count++] = (struct entry){.hash = hash};
    names->slots[at] = names->count;
    record.record.name = names->count;
    WRITER_PUT(TRACE_SHAPE, record);
    return names->count;
}

static void forget(struct names *names)
{
    if (names->slots) memset(names->slots, 0, names->n_slots * sizeof *names->slots);
    names->count = 0;
}

/* ---- the rest ---- */

void writer_note(const char *text)
{
    struct trace_record note = {.name = writer_string(text)};
    WRITER_PUT(TRACE_NOTE, note);
}

void writer_lost(uint64_t records, uint64_t timestamps, uint64_t unknown)
{
    struct trace_lost_record lost = {
        .records = records, .timestamps = timestamps, .unknown = unknown};
    if (records | timestamps | unknown) WRITER_PUT(TRACE_LOST, lost);
}

bool writer_open(const char *folder, uint32_t level)
{
    if (strlen(folder) >= sizeof writer.folder) return false;
    strcpy(writer.folder, folder);
    writer.level = level;
    writer.file = -1;
    return true;
}

void writer_forked(void)
{
    pthread_mutex_init(&writer.lock, NULL);
    if (still_ours()) close(writer.file);
    if (writer.file != -2) writer.file = -1;
    writer.used = 0;
    forget(&writer.strings);
    forget(&writer.shapes);
    while (writer.texts) {
        struct text_block *next = writer.texts->next;
        free(writer.texts);
        writer.texts = next;
    }
}

void writer_end(int64_t time)
{
    struct trace_end_record end = {.time = time};
    WRITER_PUT(TRACE_END, end);
    writer_flush();
    give_up();
}
