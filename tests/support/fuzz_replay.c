/* main() of fuzz targets in the normal test build, where libFuzzer is not: runs every file of the
 * corpus, then random mutations of them, the same ones each time.
 *
 * usage: fuzz_<input> [-n MUTATIONS] [FILE or FOLDER]...     (default: the target's corpus)
 *
 * The present input lies in the file <target>.input, mapped, so that it is still there after a
 * crash; it is removed at the end. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "support/fuzz.h"

enum {
    MUTATIONS = 4000,
    SECONDS = 20, /* for the mutations, so that a sanitized build under an emulator ends too */
    INPUT_MAX = 1 << 22, /* larger corpus files are refused */
    GROW_MAX = 4096,     /* how much a mutation may add */
};

struct input {
    uint8_t *data;
    size_t size;
};

static struct {
    struct input *inputs;
    size_t count;
    uint8_t *current; /* the mapped file, [INPUT_MAX] */
    int file;
    uint64_t runs;
} replay;

static void die(const char *what, const char *path)
{
    fprintf(stderr, "fuzz_replay: %s %s%s%s\n", what, path, errno ? ": " : "",
            errno ? strerror(errno) : "");
    exit(1);
}

/* ---- corpus ---- */

static void add_file(const char *path)
{
    struct stat info;
    FILE *from = fopen(path, "rb");
    if (!from || fstat(fileno(from), &info) != 0) die("cannot open", path);
    if (info.st_size > INPUT_MAX - GROW_MAX) die("too large:", path);
    struct input input = {.size = (size_t)info.st_size};
    input.data = malloc(input.size + 1);
    replay.inputs = realloc(replay.inputs, (replay.count + 1) * sizeof *replay.inputs);
    if (!input.data || !replay.inputs) die("no memory for", path);
    if (fread(input.data, 1, input.size, from) != input.size) die("cannot read", path);
    fclose(from);
    replay.inputs[replay.count++] = input;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void add_path(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) die("cannot find", path);
    if (!S_ISDIR(info.st_mode)) {
        add_file(path);
        return;
    }
    struct dirent **entries;
    int n = scandir(path, &entries, NULL, by_name);
    if (n < 0) die("cannot list", path);
    for (int i = 0; i < n; i++) {
        char file[4096];
        snprintf(file, sizeof file, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') add_file(file);
        free(entries[i]);
    }
    free(entries);
}

/* ---- running ---- */

static void open_current(const char *target)
{
    static char path[256];
    snprintf(path, sizeof path, "%s.input", target);
    replay.file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (replay.file < 0 || ftruncate(replay.file, INPUT_MAX) != 0) die("cannot create", path);
    replay.current = mmap(NULL, INPUT_MAX, PROT_READ | PROT_WRITE, MAP_SHARED, replay.file, 0);
    if (replay.current == MAP_FAILED) die("cannot map", path);
}

/* From a block of exactly this size, so that reading past its end is seen. */
static void run_one(const uint8_t *data, size_t size)
{
    memcpy(replay.current, data, size);
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact) die("no memory for", "an input");
    memcpy(exact, data, size);
    FUZZ_REQUIRE(LLVMFuzzerTestOneInput(exact, size) == 0);
    free(exact);
    replay.runs++;
}

static const uint8_t interesting[] = {0,   1,   2,   4,   7,   8,    9,    10,   16,   31,   32,
                                      '"', '-', '<', '{', '}', 0x7f, 0x80, 0xc0, 0xe0, 0xf0, 0xff};

static size_t below(struct rng *rng, size_t n)
{
    return (size_t)rng_range(rng, 0, (int64_t)n - 1);
}

/* One change of [0, size) in a buffer with GROW_MAX bytes of room. Returns the new size. */
static size_t mutate(struct rng *rng, uint8_t *data, size_t size)
{
    size_t at = size ? below(rng, size) : 0;
    size_t length = size ? 1 + below(rng, size - at < 16 ? size - at : 16) : 0;
    switch (size ? below(rng, 7) : 6) {
    case 0:
        data[at] ^= (uint8_t)(1u << below(rng, 8));
        return size;
    case 1:
        data[at] = (uint8_t)rng_next(rng);
        return size;
    case 2:
        data[at] = interesting[below(rng, sizeof interesting)];
        return size;
    case 3: /* removed */
        memmove(data + at, data + at + length, size - at - length);
        return size - length;
    case 4: /* cut off */
        return at;
    case 5: /* copied elsewhere */
        memmove(data + below(rng, size - length + 1), data + at, length);
        return size;
    default: /* inserted */
        length = 1 + below(rng, 8);
        memmove(data + at + length, data + at, size - at);
        for (size_t i = 0; i < length; i++) data[at + i] = (uint8_t)rng_next(rng);
        return size + length;
    }
}

static void run_mutations(uint64_t n)
{
    struct rng rng;
    rng_seed(&rng, 1);
    uint8_t *data = malloc(INPUT_MAX);
    if (!data) die("no memory for", "mutations");
    uint64_t end = clock_ns() + SECONDS * UINT64_C(1000000000);
    for (uint64_t i = 0; i < n && clock_ns() < end; i++) {
        const struct input *from = &replay.inputs[below(&rng, replay.count)];
        size_t size = from->size;
        memcpy(data, from->data, size);
        for (size_t changes = 1 + below(&rng, 6); changes; changes--)
            size = mutate(&rng, data, size);
        run_one(data, size);
    }
    free(data);
}

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    const char *target = slash ? slash + 1 : argv[0];
    uint64_t mutations = MUTATIONS;
    bool named = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-n") == 0 && i + 1 < argc) {
            mutations = strtoull(argv[++i], NULL, 10);
            continue;
        }
        add_path(argv[i]);
        named = true;
    }
    if (!named) {
        char corpus[4096];
        snprintf(corpus, sizeof corpus, "%s/tests/fuzz_corpus/%s", SOL_SOURCE_DIR, target);
        add_path(corpus);
    }
    if (replay.count == 0) die("no input in the corpus of", target);
    open_current(target);
    run_one((const uint8_t *)"", 0);
    for (size_t i = 0; i < replay.count; i++) run_one(replay.inputs[i].data, replay.inputs[i].size);
    run_mutations(mutations);
    printf("%s: %zu corpus files, %" PRIu64 " executions\n", target, replay.count, replay.runs);

    char path[256];
    snprintf(path, sizeof path, "%s.input", target);
    unlink(path);
    munmap(replay.current, INPUT_MAX);
    close(replay.file);
    for (size_t i = 0; i < replay.count; i++) free(replay.inputs[i].data);
    free(replay.inputs);
    return 0;
}
