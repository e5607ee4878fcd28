/* Files of a corpus for tests, in a folder of their own, and what reads them. */
#ifndef TESTS_SUPPORT_TRAIN_FILES_H
#define TESTS_SUPPORT_TRAIN_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tok/tokenizer.h"
#include "train/data_corpus.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Of a whole group of tests, for cmocka_run_group_tests: the folder, and tokenizer_small.json. */
int train_files_set_up(void **state);
int train_files_tear_down(void **state);
extern struct tokenizer *tokenizer;
extern const char prose[]; /* sentences, paragraphs, blank lines of all kinds */

/* A path in the test's folder; `name` may have one folder in it. Valid for the next seven calls. */
const char *path_of(const char *name);
const char *write_file(const char *name, const void *data, size_t size);
const char *write_text(const char *name, const char *text);
/* A token file of sol's own, of uint16 tokens. */
const char *write_tokens(const char *name, const int32_t *tokens, size_t n, int64_t vocab,
                         int32_t bos);
/* `n` documents of random lengths with token 0 before each. */
const char *write_random_tokens(const char *name, int n, int longest);
/* Documents of an asked and a given part. */
const char *write_segments(const char *name, int n);
/* Lines with the prose's sentences in another order each; long enough to be read in parts. */
const char *write_long_text(const char *name, size_t size);

/* All of the file for training and for validation. */
struct corpus_options options_of(const char *path);
struct corpus *open_corpus(const struct corpus_options *options, enum corpus_part part);
struct corpus *open_path(const char *path);
void check_refused(enum sol_status status, enum sol_status wanted, const char *message);
void refuse_corpus(const struct corpus_options *options, enum corpus_part part,
                   enum sol_status wanted, const char *message);

#endif
