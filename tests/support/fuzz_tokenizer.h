/* What the targets of tokenizer files share. */
#ifndef TESTS_SUPPORT_FUZZ_TOKENIZER_H
#define TESTS_SUPPORT_FUZZ_TOKENIZER_H

#include <stddef.h>

#include "tok/tokenizer.h"

/* A long passage that nearly every accepted file has, as one byte. Mutations then fall on what
 * differs, and inputs stay short; a file can still be given in full. */
struct fuzz_mark {
    char byte; /* its first occurrence, and that alone, stands for the text */
    const char *text;
};

/* The file that the input stands for: a block from malloc, exactly *size long, so that reading on
 * is seen. A text may contain the marks behind its own. */
char *fuzz_expand(const void *data, size_t *size, const struct fuzz_mark *marks, size_t n_marks);

/* A tokenizer that was accepted gives back every byte: of its tokens (the first ones, where there
 * are very many), of all bytes, of a text, and of the file. */
void fuzz_tokenizer_use(const struct tokenizer *t, const char *file, size_t size);

#endif
