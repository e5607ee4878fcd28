/* Command lines: words separated by zero bytes, parsed against a table with one option of each
 * kind. Whatever is accepted keeps what the table promises. */
#include "base/options.h"

#include <string.h>

#include "sol/status.h"
#include "support/fuzz.h"

enum { WORDS_MAX = 96, N_MAX = 1000 };

struct values {
    bool flag, other;
    int64_t n;
    double temperature;
    const char *file;
    struct int_list sizes;
    struct string_list forces;
};

static const struct option options[] = {
    {.kind = OPTION_GROUP, .name = "Everything"},
    {OPTION_FLAG, 'v', "verbose", NULL, "", offsetof(struct values, flag), 0, 0},
    {OPTION_FLAG, 0, "version", NULL, "", offsetof(struct values, other), 0, 0},
    {OPTION_INT, 'n', "number", "N", "", offsetof(struct values, n), 1, N_MAX},
    {OPTION_FLOAT, 0, "temperature", "T", "", offsetof(struct values, temperature), 0, 2},
    {OPTION_STRING, 'f', "file", "FILE", "", offsetof(struct values, file), 0, 0},
    {OPTION_INT_LIST, 's', "sizes", "LIST", "", offsetof(struct values, sizes), 0, N_MAX},
    {OPTION_STRINGS, 0, "force", "OP=V", "", offsetof(struct values, forces), 0, 0},
    {0},
};

static const struct command_spec spec = {
    .name = "fuzz",
    .summary = "",
    .arguments = "[FILE...]",
    .options = options,
};

static void check(const struct values *v, int n_args, int argc)
{
    FUZZ_REQUIRE(n_args >= 0 && n_args < argc);
    FUZZ_REQUIRE(v->n >= 1 && v->n <= N_MAX);
    FUZZ_REQUIRE(v->temperature >= 0 && v->temperature <= 2);
    FUZZ_REQUIRE(v->sizes.count <= OPTION_LIST_MAX && v->forces.count <= OPTION_LIST_MAX);
    for (size_t i = 0; i < v->sizes.count; i++)
        FUZZ_REQUIRE(v->sizes.values[i] >= 0 && v->sizes.values[i] <= N_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *argv[WORDS_MAX + 1];
    const char *args[WORDS_MAX + 1];
    static char name[] = "fuzz";
    FUZZ_REQUIRE(text);
    memcpy(text, data, size);
    text[size] = '\0';
    int argc = 0, n_args = 0;
    argv[argc++] = name;
    for (char *word = text; word <= text + size && argc < WORDS_MAX; word += strlen(word) + 1)
        argv[argc++] = word;
    argv[argc] = NULL;

    struct values values = {.n = 1, .temperature = 1};
    bool help = false;
    enum sol_status status = options_parse(&spec, argc, argv, &values, args, &n_args, &help);
    FUZZ_REQUIRE(status == SOL_OK || status == SOL_E_ARGUMENT);
    if (status == SOL_OK && !help) check(&values, n_args, argc);
    if (status != SOL_OK) FUZZ_REQUIRE(strncmp(sol_last_error(), "sol fuzz: ", 10) == 0);
    free(text);
    return 0;
}
