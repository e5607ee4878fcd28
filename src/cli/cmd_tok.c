/* `sol tok`: text to ids, ids to text, and training of vocabularies. Encoding and decoding go
 * through any amount of text in the memory of its longest piece. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/status.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "cli/vocabulary_option.h"
#include "format/output_file.h"
#include "store/store_json.h"
#include "tok/bpe_train.h"
#include "tok/tokenizer.h"
#include "tok/vocab_write.h"

struct tok_options {
    const char *model, *vocab;
    const char *text;
    bool special, json, count;
    int64_t vocab_size, threads;
    const char *output, *format, *special_set;
};

static const struct option options[] = {
    VOCABULARY_OPTIONS(struct tok_options, model, vocab),
    {OPTION_GROUP, 0, "Encode", NULL, NULL, 0, 0, 0},
    {OPTION_STRING, 0, "text", "TEXT", "encode this instead of a file",
     offsetof(struct tok_options, text), 0, 0},
    {OPTION_FLAG, 0, "special", NULL,
     "special tokens such as <|start|> that are written out in the text count",
     offsetof(struct tok_options, special), 0, 0},
    {OPTION_FLAG, 0, "count", NULL, "print only how many tokens there are",
     offsetof(struct tok_options, count), 0, 0},
    {OPTION_FLAG, 0, "json", NULL,
     "print one JSON object; not of decode, whose output is the text itself",
     offsetof(struct tok_options, json), 0, 0},
    {OPTION_GROUP, 0, "Train", NULL, NULL, 0, 0, 0},
    {OPTION_INT, 0, "vocab-size", "N", "tokens to make, the 256 bytes included",
     offsetof(struct tok_options, vocab_size), TRAIN_TOKENS_MIN, TRAIN_TOKENS_MAX},
    {OPTION_STRING, 'o', "output", "OUT", "file to write; replaced when it is complete",
     offsetof(struct tok_options, output), 0, 0},
    {OPTION_STRING, 0, "format", "FORMAT",
     "of OUT: json, tiktoken or gguf (default: by its ending)",
     offsetof(struct tok_options, format), 0, 0},
    {OPTION_STRING, 0, "special-set", "SET",
     "special tokens behind the N others: harmony (default; 21 ids) or nanochat (9, from <|bos|> "
     "on)",
     offsetof(struct tok_options, special_set), 0, 0},
    {OPTION_INT, 't', "threads", "N", "threads to count words with (default: every core)",
     offsetof(struct tok_options, threads), 1, 1024},
    {0},
};

static const struct command_example examples[] = {
    {"sol tok encode --text 'Hello, world'", "the ids of a text", NULL},
    {"sol tok encode --special chat.txt | sol tok decode", "what was encoded comes out exactly",
     NULL},
    {"sol tok train --vocab-size 300 -o vocabulary.json books/*.txt", "a vocabulary of one's own",
     NULL},
    {"sol tok encode --vocab o200k_base.tiktoken --count book.txt",
     "how many tokens a text has with another one", "o200k_base.tiktoken"},
    {0},
};

static const struct command_spec spec = {
    .name = "tok",
    .summary = "turn text into tokens and back, train vocabularies",
    .arguments = "encode|decode|train [FILE...]",
    .notes = "encode prints the ids of FILE (default: standard input) on one line. decode reads\n"
             "ids, separated by blanks or commas, and writes their bytes; what was encoded comes\n"
             "out exactly. train splits text as o200k does; special tokens follow the N others:\n"
             "--vocab-size 32759 --special-set nanochat makes a vocabulary of 32768 ids.",
    .examples = examples,
    .options = options,
};

/* ---- input in parts ---- */

enum { PART = 1 << 20 };

struct input {
    FILE *from;
    const char *name;
    char *data;
    size_t length, capacity;
    bool ended;
};

static enum sol_status input_open(struct input *in, const char *path)
{
    bool standard = !path || strcmp(path, "-") == 0;
    *in = (struct input){.name = standard ? "standard input" : path, .capacity = PART};
    if (standard)
        in->from = stdin;
    else
        SOL_TRY(file_stream(path, &in->from));
    in->data = malloc(in->capacity);
    return in->data ? SOL_OK : status_set(SOL_E_MEMORY, "no memory to read %s", in->name);
}

static void input_close(struct input *in)
{
    if (in->from && in->from != stdin) fclose(in->from);
    free(in->data);
}

/* Drops `used` bytes and reads on; when nothing was used, with twice the room. */
static enum sol_status input_more(struct input *in, size_t used)
{
    in->length -= used;
    memmove(in->data, in->data + used, in->length);
    if (in->length == in->capacity) {
        char *grown = in->capacity <= SIZE_MAX / 2 ? realloc(in->data, 2 * in->capacity) : NULL;
        if (!grown)
            return status_set(SOL_E_MEMORY, "%s: no memory for a piece of %zu bytes", in->name,
                              in->length);
        in->data = grown;
        in->capacity *= 2;
    }
    errno = 0;
    size_t got = fread(in->data + in->length, 1, in->capacity - in->length, in->from);
    in->length += got;
    SOL_TRY(interrupt_check());
    if (ferror(in->from))
        return status_set(SOL_E_IO, "cannot read %s: %s", in->name, strerror(errno));
    in->ended = got == 0 || feof(in->from);
    return SOL_OK;
}

static enum sol_status check_output(void)
{
    if (!ferror(stdout)) return SOL_OK;
    return status_set(SOL_E_IO, "cannot write standard output: %s", strerror(errno));
}

/* ---- encode ---- */

/* printf would take longer than the encoding. */
static void put_number(uint32_t number)
{
    char digits[10];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    fwrite(digits + at, 1, sizeof digits - at, stdout);
}

/* Prints the ids, empties the list and counts them in *total. */
static void put_ids(const struct tok_options *o, struct token_list *ids, uint64_t *total)
{
    for (size_t i = 0; i < ids->count && !o->count; i++) {
        if (*total + i) fputs(o->json ? ", " : " ", stdout);
        put_number((uint32_t)ids->ids[i]);
    }
    *total += ids->count;
    ids->count = 0;
}

static enum sol_status encode_stream(const struct tok_options *o, const struct tokenizer *t,
                                     struct input *in, struct token_list *ids, uint64_t *total)
{
    for (size_t used = 0; !in->ended;) {
        SOL_TRY(input_more(in, used));
        if (in->ended) break;
        SOL_TRY(tokenizer_encode_part(t, in->data, in->length, o->special, &used, ids));
        put_ids(o, ids, total);
        SOL_TRY(check_output());
    }
    SOL_TRY(tokenizer_encode(t, in->data, in->length, o->special, ids));
    put_ids(o, ids, total);
    return SOL_OK;
}

static enum sol_status encode_file(const struct tok_options *o, const struct tokenizer *t,
                                   const char *path, struct token_list *ids, uint64_t *total)
{
    struct input in;
    enum sol_status status = input_open(&in, path);
    if (status == SOL_OK) status = encode_stream(o, t, &in, ids, total);
    input_close(&in);
    return status;
}

static enum sol_status encode(const struct tok_options *o, const struct tokenizer *t,
                              const char *path)
{
    struct token_list ids = {0};
    uint64_t total = 0;
    enum sol_status status;
    if (o->json && !o->count) fputs("{\"ids\": [", stdout);
    if (o->text) {
        status = tokenizer_encode(t, o->text, strlen(o->text), o->special, &ids);
        put_ids(o, &ids, &total);
    } else {
        status = encode_file(o, t, path, &ids, &total);
    }
    token_list_free(&ids);
    if (status != SOL_OK) return status;
    if (o->json)
        printf(o->count ? "{\"count\": %" PRIu64 "}\n" : "], \"count\": %" PRIu64 "}\n", total);
    else if (o->count)
        printf("%" PRIu64 "\n", total);
    else
        putchar('\n');
    return SOL_OK;
}

/* ---- decode ---- */

struct decoder {
    const struct tokenizer *tokenizer;
    const char *name; /* of the input */
    uint64_t position, id;
    bool in_number;
};

static enum sol_status end_number(struct decoder *d)
{
    if (!d->in_number) return SOL_OK;
    d->in_number = false;
    d->position++;
    struct token_bytes bytes = {"", 0};
    if (d->id <= INT32_MAX) bytes = tokenizer_bytes(d->tokenizer, (int32_t)d->id);
    if (bytes.length == 0)
        return status_set(SOL_E_ARGUMENT,
                          "%s: number %" PRIu64 " is %" PRIu64
                          "; that is no token of the vocabulary (0 to %d)",
                          d->name, d->position, d->id, tokenizer_vocab(d->tokenizer) - 1);
    fwrite(bytes.data, 1, bytes.length, stdout);
    return SOL_OK;
}

static enum sol_status decode_part(struct decoder *d, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (text[i] >= '0' && text[i] <= '9') {
            uint64_t digit = (uint64_t)(text[i] - '0');
            if (!d->in_number) d->id = 0;
            if (d->id <= INT32_MAX) d->id = 10 * d->id + digit; /* larger: no token anyway */
            d->in_number = true;
            continue;
        }
        SOL_TRY(end_number(d));
        if (!text[i] || !strchr(" \t\r\n,[]", text[i]))
            return status_set(SOL_E_ARGUMENT,
                              "%s: byte 0x%02x behind %" PRIu64 " ids; expected numbers separated "
                              "by blanks or commas",
                              d->name, (unsigned char)text[i], d->position);
    }
    return SOL_OK;
}

static enum sol_status decode(const struct tokenizer *t, const char *path)
{
    struct input in;
    enum sol_status status = input_open(&in, path);
    struct decoder d = {.tokenizer = t, .name = in.name};
    while (status == SOL_OK && !in.ended) {
        status = input_more(&in, in.length);
        if (status == SOL_OK) status = decode_part(&d, in.data, in.length);
        if (status == SOL_OK) status = check_output();
    }
    if (status == SOL_OK) status = end_number(&d);
    input_close(&in);
    return status;
}

/* ---- train ---- */

static enum sol_status output_format(const struct tok_options *o, enum vocab_format *format)
{
    static const char *const names[] = {"tiktoken", "json", "gguf"}; /* as enum vocab_format */
    const char *dot = o->output ? strrchr(o->output, '.') : NULL;
    const char *name = o->format ? o->format : dot ? dot + 1 : "";
    if (!o->output) return status_set(SOL_E_ARGUMENT, "train needs -o OUT");
    if (!o->vocab_size) return status_set(SOL_E_ARGUMENT, "train needs --vocab-size N");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        *format = (enum vocab_format)i;
        if (strcasecmp(name, names[i]) == 0) return SOL_OK;
    }
    return status_set(SOL_E_ARGUMENT, "--format is json, tiktoken or gguf%s%s%s",
                      o->format ? ", not '" : "",
                      o->format ? name : "; the ending of OUT names none", o->format ? "'" : "");
}

static enum sol_status special_set(const struct tok_options *o, enum vocab_format format,
                                   enum special_set *set)
{
    const char *name = o->special_set ? o->special_set : special_set_name(SPECIAL_HARMONY);
    for (*set = 0; *set < SPECIAL_SETS; (*set)++)
        if (strcmp(name, special_set_name(*set)) == 0) break;
    if (*set == SPECIAL_SETS)
        return status_set(SOL_E_ARGUMENT, "--special-set is harmony or nanochat, not '%s'", name);
    if (*set == SPECIAL_HARMONY || format != VOCAB_TIKTOKEN) return SOL_OK;
    return status_set(
        SOL_E_ARGUMENT,
        "a .tiktoken file has no special tokens of its own, and is read with those of "
        "harmony; write --special-set %s as json or gguf",
        name);
}

/* The files stay mapped as long as the counts, whose words lie in them. */
struct training {
    struct mapped_file *files;
    int n_files;
    uint64_t bytes;
    struct pool *pool;
    struct word_counts counts;
    struct bpe_vocabulary vocabulary;
    struct output_file *output; /* NULL for GGUF */
};

/* A path that cannot be written is noticed before the work. */
static enum sol_status open_output(struct training *t, enum vocab_format format, const char *path)
{
    if (format == VOCAB_GGUF) return output_file_check(path, 0);
    return output_file_create(path, 0, OUTPUT_STREAM, &t->output);
}

static enum sol_status count_files(struct training *t, const char *const *paths)
{
    struct progress progress;
    enum sol_status status = SOL_OK;
    for (int i = 0; i < t->n_files; i++) {
        SOL_TRY(mapped_file_open(paths[i], &t->files[i]));
        t->bytes += t->files[i].size;
    }
    progress_start(&progress, "counting words", "bytes", t->bytes);
    uint64_t before = 0;
    for (int i = 0; i < t->n_files && status == SOL_OK; i++) {
        if (t->files[i].size)
            status = word_counts_add(&t->counts, t->pool, t->files[i].data, t->files[i].size,
                                     &progress, before);
        before += t->files[i].size;
    }
    progress_end(&progress);
    return status;
}

static enum sol_status train(struct training *t, const struct tok_options *o,
                             const char *const *paths)
{
    enum vocab_format format;
    enum special_set special;
    SOL_TRY(output_format(o, &format));
    SOL_TRY(special_set(o, format, &special));
    if (t->n_files == 0) return status_set(SOL_E_ARGUMENT, "train needs the files to learn from");
    for (int i = 0; i < t->n_files; i++) SOL_TRY(output_file_apart(o->output, paths[i]));
    SOL_TRY(open_output(t, format, o->output));
    t->files = calloc((size_t)t->n_files, sizeof *t->files);
    if (!t->files) return status_set(SOL_E_MEMORY, "no memory for %d files", t->n_files);
    SOL_TRY(pool_create(o->threads ? (int)o->threads : cpu_info()->cores, &t->pool));
    SOL_TRY(word_counts_create(&t->counts));
    uint64_t start = clock_ns();
    SOL_TRY(count_files(t, paths));
    uint64_t counted = clock_ns();
    SOL_TRY(bpe_train(&t->counts, (size_t)o->vocab_size, &t->vocabulary));
    uint64_t trained = clock_ns();
    SOL_TRY(t->output ? vocab_write_text(&t->vocabulary, special, format, t->output)
                      : vocab_write(&t->vocabulary, special, format, o->output));
    const struct bpe_vocabulary *v = &t->vocabulary;
    if (v->n_tokens < (size_t)o->vocab_size)
        LOG_WARN("only %zu tokens: no pair is left in the text", v->n_tokens);
    double per_token = v->text_tokens ? (double)v->text_bytes / (double)v->text_tokens : 0.0;
    double counting = 1e-9 * (double)(counted - start),
           merging = 1e-9 * (double)(trained - counted);
    if (o->json)
        return json_print(json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f}", "output",
                                    store_json_string(o->output), "tokens", (json_int_t)v->n_tokens,
                                    "ids", (json_int_t)v->n_tokens + special_set_span(special),
                                    "merges", (json_int_t)v->n_rules, "bytes", (json_int_t)t->bytes,
                                    "words", (json_int_t)t->counts.used, "bytes_per_token",
                                    per_token, "counting_s", counting, "merging_s", merging));
    printf("%s: %zu tokens, %zu merges, from %.2f MB with %zu different words\n", o->output,
           v->n_tokens, v->n_rules, (double)t->bytes / 1e6, t->counts.used);
    printf("with the special tokens of %s: %zu ids\n", special_set_name(special),
           v->n_tokens + (size_t)special_set_span(special));
    printf("%.3f bytes per token of this text; counting %.2f s, merging %.2f s\n", per_token,
           counting, merging);
    return SOL_OK;
}

static enum sol_status run_train(const struct tok_options *o, const char *const *paths, int n)
{
    struct training t = {.n_files = n};
    enum sol_status status = train(&t, o, paths);
    bpe_vocabulary_destroy(&t.vocabulary);
    word_counts_destroy(&t.counts);
    pool_destroy(t.pool);
    output_file_destroy(t.output);
    for (int i = 0; t.files && i < n; i++) mapped_file_close(&t.files[i]);
    free(t.files);
    return status;
}

/* ---- command ---- */

static enum sol_status dispatch(const struct tok_options *o, const char *const *args, int n_args)
{
    const char *verb = n_args ? args[0] : "";
    bool encoding = strcmp(verb, "encode") == 0;
    if (strcmp(verb, "train") == 0) return run_train(o, args + 1, n_args - 1);
    if (!encoding && strcmp(verb, "decode") != 0)
        return status_set(SOL_E_ARGUMENT, "expected: sol tok encode, decode or train%s%s%s",
                          n_args ? ", not '" : "", verb, n_args ? "'" : "");
    if (n_args > 2) return status_set(SOL_E_ARGUMENT, "%s takes one file", verb);
    if (o->text && (!encoding || n_args > 1))
        return status_set(SOL_E_ARGUMENT, "--text goes with encode and without a file");
    if (o->json && !encoding)
        return status_set(SOL_E_ARGUMENT, "decode has no --json: its output is the text itself");
    struct tokenizer *t;
    SOL_TRY(vocabulary_open(o->model, o->vocab, &t));
    const char *path = n_args > 1 ? args[1] : NULL;
    enum sol_status status = encoding ? encode(o, t, path) : decode(t, path);
    tokenizer_destroy(t);
    return status;
}

static int run(int argc, char **argv)
{
    struct tok_options o = {0};
    int n_args, exit_status;
    const char **args = calloc((size_t)argc + 1, sizeof *args);
    if (!args) return cli_fail(status_set(SOL_E_MEMORY, "no memory for %d arguments", argc));
    if (cli_parse(&spec, argc, argv, &o, args, &n_args, &exit_status))
        exit_status = cli_fail(dispatch(&o, args, n_args));
    free(args);
    return exit_status;
}

const struct command cmd_tok = {&spec, run, true};
