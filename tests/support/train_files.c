/* See train_files.h. */
#include "support/train_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "train/data_bin.h"

#define DATA SOL_SOURCE_DIR "/tests/data/"

static char folder[] = "/tmp/sol-train-data-XXXXXX";
struct tokenizer *tokenizer;

const char prose[] =
    "The ferry left at six, with two crates of pears and a clock that nobody had ordered.\n"
    "\"It will keep time for the gulls,\" said the mate, who liked a short answer.\n"
    "\n"
    "By noon the wind had turned, and the harbour lay behind us like a folded letter. We read\n"
    "what we could of it: three chimneys, a white wall, the schoolhouse with its bell.\n"
    "   \r\n"
    "Nobody spoke of the winter. There were 412 miles to go, and the pears were good.\n"
    "/ a line that begins with a slash\n"
    "\n\n\n"
    "The clock struck; it was not noon, but we ate all the same.";

/* ---- files ---- */

/* A path in the test's folder; `name` may have one folder in it. Valid for the next seven calls. */
const char *path_of(const char *name)
{
    static char paths[8][200];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

const char *write_file(const char *name, const void *data, size_t size)
{
    const char *path = path_of(name);
    char parent[200];
    snprintf(parent, sizeof parent, "%s", path);
    *strrchr(parent, '/') = 0;
    mkdir(parent, 0777);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return path;
}

const char *write_text(const char *name, const char *text)
{
    return write_file(name, text, strlen(text));
}

/* A token file of sol's own, of uint16 tokens. */
const char *write_tokens(const char *name, const int32_t *tokens, size_t n, int64_t vocab,
                         int32_t bos)
{
    unsigned char *data = malloc(TOKEN_FILE_HEADER + 2 * n);
    assert_non_null(data);
    token_file_header(data, 2, n, vocab, bos, 0);
    for (size_t i = 0; i < n; i++) {
        data[TOKEN_FILE_HEADER + 2 * i] = (unsigned char)tokens[i];
        data[TOKEN_FILE_HEADER + 2 * i + 1] = (unsigned char)(tokens[i] >> 8);
    }
    const char *path = write_file(name, data, TOKEN_FILE_HEADER + 2 * n);
    free(data);
    return path;
}

/* `n` documents of random lengths with token 0 before each. */
const char *write_random_tokens(const char *name, int n, int longest)
{
    struct rng rng;
    rng_seed(&rng, 11);
    int32_t *tokens = malloc((size_t)n * (size_t)longest * sizeof *tokens);
    size_t count = 0;
    assert_non_null(tokens);
    for (int d = 0; d < n; d++) {
        tokens[count++] = 0;
        for (int64_t i = rng_range(&rng, 0, longest - 1); i > 0; i--)
            tokens[count++] = (int32_t)rng_range(&rng, 1, 499);
    }
    const char *path = write_tokens(name, tokens, count, 500, 0);
    free(tokens);
    return path;
}

/* Documents of an asked and a given part. */
const char *write_segments(const char *name, int n)
{
    char text[20000];
    size_t at = 0;
    for (int i = 0; i < n; i++)
        at += (size_t)snprintf(
            text + at, sizeof text - at,
            "{\"segments\": [{\"text\": \"<|startoftext|>%.*s\", \"label\": false}, "
            "{\"label\": true, \"text\": \"%.*s\"}]}\n",
            i * 13 % 40, prose, 1 + i * 37 % 80, prose);
    return write_text(name, text);
}

/* Lines with the prose's sentences in another order each; long enough to be read in parts. */
const char *write_long_text(const char *name, size_t size)
{
    struct rng rng;
    rng_seed(&rng, 5);
    char *text = malloc(size + sizeof prose + 100);
    size_t at = 0;
    assert_non_null(text);
    while (at < size) {
        size_t from = (size_t)rng_range(&rng, 0, sizeof prose - 60),
               n = (size_t)rng_range(&rng, 1, 59);
        memcpy(text + at, prose + from, n);
        at += n;
        if (rng_range(&rng, 0, 3) == 0) text[at++] = '\n';
    }
    const char *path = write_file(name, text, at);
    free(text);
    return path;
}

struct corpus_options options_of(const char *path)
{
    struct corpus_options o;
    corpus_options_init(&o);
    o.path = path;
    o.val_path = path; /* all of it for both */
    o.tokenizer = tokenizer;
    o.vocab = 1000;
    return o;
}

struct corpus *open_corpus(const struct corpus_options *o, enum corpus_part part)
{
    struct corpus *c;
    if (corpus_open(o, part, &c) != SOL_OK) fail_msg("%s", sol_last_error());
    return c;
}

struct corpus *open_path(const char *path)
{
    struct corpus_options o = options_of(path);
    return open_corpus(&o, CORPUS_TRAIN);
}

/* The error and its message. */
void check_refused(enum sol_status status, enum sol_status wanted, const char *message)
{
    if (status != wanted || !strstr(sol_last_error(), message))
        fail_msg("%s and '%s', not %s and '%s'", sol_status_name(status),
                 status ? sol_last_error() : "", sol_status_name(wanted), message);
}

void refuse_corpus(const struct corpus_options *o, enum corpus_part part, enum sol_status wanted,
                   const char *message)
{
    struct corpus *c;
    check_refused(corpus_open(o, part, &c), wanted, message);
    assert_null(c);
}

int train_files_set_up(void **state)
{
    (void)state;
    return mkdtemp(folder) && tokenizer_open(DATA "tokenizer_small.json", &tokenizer) == SOL_OK
               ? 0
               : -1;
}

int train_files_tear_down(void **state)
{
    (void)state;
    char command[200];
    tokenizer_destroy(tokenizer);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}
