/* The tokens that a command works on: from a text, a file, a list of ids, or at random (synthetic
 * models have no vocabulary). */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include <stddef.h>

#include "base/options.h"
#include "cli/engine_options.h"
#include "model/model.h"

struct input_options {
    const char *text;      /* set by a command's own option, --prompt say */
    const char *file;      /* "-": standard input */
    const char *ids;       /* "1,2,3" */
    int64_t random_tokens; /* 0: off */
    bool special;
};

#define INPUT_OPTIONS(type, field)                                                                 \
    OPTION_ENTRY(STRING, 'f', "file", "FILE", "read the text from FILE, - for standard input",     \
                 offsetof(type, field.file), 0, 0),                                                \
        OPTION_ENTRY(STRING, 0, "tokens", "IDS", "token ids instead of text: 1,2,3",               \
                     offsetof(type, field.ids), 0, 0),                                             \
        OPTION_ENTRY(INT, 0, "random-tokens", "N", "N random tokens instead of text",              \
                     offsetof(type, field.random_tokens), 1, 1 << 24),                             \
        OPTION_ENTRY(FLAG, 0, "special", NULL,                                                     \
                     "special tokens such as <|start|> that are written out in the text count",    \
                     offsetof(type, field.special), 0, 0)

/* One source at most may be given; without one the text is what is piped in, and a terminal is no
 * source. `wanted` names the options for the error message ("-p or -f").
 * The model's beginning-of-text token comes first where the model asks for one. Every id is one of
 * the model's. Free with token_list_free. */
enum sol_status input_tokens(const struct input_options *options, const char *wanted,
                             const struct model *model, struct token_list *ids);

/* All of a file, or of standard input for "-", to *data, which free() releases. `most` bytes are
 * read; more is SOL_E_FORMAT. 0: no limit. */
enum sol_status input_read(const char *path, size_t most, char **data, size_t *length);

json_t *json_ids(const int32_t *ids, size_t count);

#endif
