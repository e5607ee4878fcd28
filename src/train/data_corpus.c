/* Which files a corpus has, and which of them is for what. Finding and reading documents is in
 * data_documents.c. */
#include "train/data_corpus.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/status.h"
#include "train/data_private.h"

void corpus_options_init(struct corpus_options *o)
{
    *o = (struct corpus_options){.val_percent = 10, .plain_width = 2, .bos = -1};
}

/* ---- which files ---- */

static bool ends_in(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);
    return n > m && strcasecmp(name + n - m, ending) == 0;
}

static enum document_kind kind_of(const char *name, enum corpus_split split)
{
    if (ends_in(name, ".jsonl")) return DOCUMENT_JSON_LINE;
    if (ends_in(name, ".bin")) return DOCUMENT_TOKENS;
    return split == CORPUS_BLANK_LINES ? DOCUMENT_PARAGRAPH : DOCUMENT_FILE;
}

static int is_data(const struct dirent *entry)
{
    const char *name = entry->d_name;
    return name[0] != '.' &&
           (ends_in(name, ".txt") || ends_in(name, ".jsonl") || ends_in(name, ".bin"));
}

static int is_parquet(const struct dirent *entry)
{
    return ends_in(entry->d_name, ".parquet");
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void free_names(struct dirent **names, int n)
{
    for (int i = 0; i < n; i++) free(names[i]);
    free(names);
}

static enum sol_status parquet(const char *path)
{
    return status_set(SOL_E_UNSUPPORTED,
                      "'%s': parquet is not read; tools/parquet_to_jsonl makes .jsonl files of it",
                      path);
}

static enum sol_status add_file(struct corpus *c, const char *folder, const char *name)
{
    SOL_TRY(array_grow(&c->files, (size_t)c->n_files, &c->capacity, sizeof *c->files,
                       "a list of files"));
    struct corpus_file *file = &c->files[c->n_files];
    *file = (struct corpus_file){0};
    if (asprintf(&file->path, "%s%s%s", folder ? folder : "", folder ? "/" : "", name) < 0) {
        file->path = NULL;
        return status_set(SOL_E_MEMORY, "no memory for the path of '%s'", name);
    }
    c->n_files++;
    return SOL_OK;
}

static enum sol_status list_folder(struct corpus *c, const char *path)
{
    struct dirent **names;
    int n = scandir(path, &names, is_data, by_bytes);
    if (n < 0) return status_set(SOL_E_IO, "cannot read '%s': %s", path, strerror(errno));
    enum sol_status status = SOL_OK;
    for (int i = 0; i < n && status == SOL_OK; i++) status = add_file(c, path, names[i]->d_name);
    free_names(names, n);
    if (n > 0) return status;
    n = scandir(path, &names, is_parquet, by_bytes);
    if (n > 0) status = parquet(path);
    if (n >= 0) free_names(names, n);
    if (status != SOL_OK) return status;
    return status_set(SOL_E_ARGUMENT, "'%s' has no .txt, .jsonl or .bin files", path);
}

static enum sol_status list_files(struct corpus *c, const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return status_set(SOL_E_IO, "cannot open '%s': %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode)) return list_folder(c, path);
    return ends_in(path, ".parquet") ? parquet(path) : add_file(c, NULL, path);
}

static void drop_files(struct corpus *c, int from, int to)
{
    for (int i = from; i < to; i++) {
        mapped_file_close(&c->files[i].map);
        free(c->files[i].path);
    }
    if (to < c->n_files)
        memmove(&c->files[from], &c->files[to], (size_t)(c->n_files - to) * sizeof *c->files);
    c->n_files -= to - from;
}

/* ---- opening them ---- */

/* What a header says of the vocabulary must fit the tokenizer and the model. */
static enum sol_status check_token_file(const struct corpus *c, const struct corpus_file *f)
{
    const struct token_file *t = &f->tokens;
    if (t->vocab > c->vocab && t->kind == TOKEN_FILE_SOL)
        return status_set(SOL_E_ARGUMENT,
                          "'%s' has a vocabulary of %" PRId64
                          " tokens, and the model one of %" PRId64,
                          f->path, t->vocab, c->vocab);
    /* llm.c's headers only say whose vocabulary it is; a text may use a part of it. Documents are
     * looked at. */
    if (t->hash && c->tokenizer && t->hash != c->tokenizer_hash)
        return status_set(SOL_E_ARGUMENT,
                          "'%s' was made with another vocabulary than the one that is given",
                          f->path);
    return SOL_OK;
}

static enum sol_status open_file(struct corpus *c, struct corpus_file *f,
                                 const struct corpus_options *o)
{
    f->kind = kind_of(f->path, o->split);
    SOL_TRY(mapped_file_open(f->path, &f->map));
    f->end = f->map.size;
    if (f->kind != DOCUMENT_TOKENS) return SOL_OK;
    SOL_TRY(token_file_read(f->map.data, f->map.size, f->path, o->plain_width, &f->tokens));
    f->end = f->tokens.count;
    return check_token_file(c, f);
}

static enum sol_status open_files(struct corpus *c, const struct corpus_options *o)
{
    for (int i = 0; i < c->n_files; i++) {
        struct corpus_file *f = &c->files[i], *first = &c->files[0];
        SOL_TRY(open_file(c, f, o));
        if ((f->kind == DOCUMENT_TOKENS) != (first->kind == DOCUMENT_TOKENS))
            return status_set(SOL_E_ARGUMENT, "'%s' and '%s': texts and token files do not mix",
                              first->path, f->path);
        if (f->kind == DOCUMENT_TOKENS && f->tokens.bos != first->tokens.bos)
            return status_set(SOL_E_ARGUMENT,
                              "'%s' and '%s': their documents begin with tokens %d and %d",
                              first->path, f->path, first->tokens.bos, f->tokens.bos);
    }
    bool tokens = c->files[0].kind == DOCUMENT_TOKENS;
    if (!tokens && !c->tokenizer)
        return status_set(SOL_E_ARGUMENT, "'%s' is text; a vocabulary is needed to read it",
                          c->files[0].path);
    c->bos = o->bos;
    if (c->bos < 0 && tokens) c->bos = c->files[0].tokens.bos;
    if (c->bos < 0 && c->tokenizer) c->bos = tokenizer_begin(c->tokenizer);
    if (c->bos < c->vocab) return SOL_OK;
    return status_set(SOL_E_ARGUMENT,
                      "documents begin with token %d, and the model's vocabulary has %" PRId64,
                      c->bos, c->vocab);
}

/* ---- for training or for validation ---- */

static enum sol_status share_file(struct corpus *c, const struct corpus_options *o,
                                  enum corpus_part part)
{
    struct corpus_file *f = &c->files[0];
    double share = 1.0 - o->val_percent / 100.0;
    uint64_t cut = document_after(c, f, (uint64_t)(share * (double)f->end));
    if (cut == 0 || cut >= f->end)
        return status_set(SOL_E_ARGUMENT,
                          "'%s' has no document to begin with in its last %g %%, which are for "
                          "validation; name other "
                          "data for that",
                          f->path, o->val_percent);
    if (part == CORPUS_TRAIN)
        f->end = cut;
    else
        f->begin = cut;
    return SOL_OK;
}

static enum sol_status choose_part(struct corpus *c, const struct corpus_options *o,
                                   enum corpus_part part)
{
    if (o->val_path) return SOL_OK;
    if (c->n_files == 1) return share_file(c, o, part);
    if (part == CORPUS_TRAIN)
        drop_files(c, c->n_files - 1, c->n_files);
    else
        drop_files(c, 0, c->n_files - 1);
    return SOL_OK;
}

static uint64_t add_bytes(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t add_number(uint64_t hash, uint64_t number)
{
    for (int i = 0; i < 8; i++, number >>= 8)
        hash = add_bytes(hash, &(unsigned char){(unsigned char)number}, 1);
    return hash;
}

/* FNV-1a, since positions keep it. Not of the folder: data may move. */
static uint64_t hash_of(const struct corpus *c)
{
    uint64_t hash = add_number(UINT64_C(0xcbf29ce484222325), (uint64_t)c->bos);
    for (int i = 0; i < c->n_files; i++) {
        const struct corpus_file *f = &c->files[i];
        const char *slash = strrchr(f->path, '/'), *name = slash ? slash + 1 : f->path;
        hash = add_bytes(hash, name, strlen(name) + 1);
        hash = add_number(add_number(hash, f->map.size), f->kind);
        hash = add_number(add_number(hash, f->begin), f->end);
    }
    return add_number(hash, c->tokenizer_hash);
}

/* ---- all ---- */

static enum sol_status check_options(const struct corpus_options *o)
{
    if (o->plain_width != 2 && o->plain_width != 4)
        return status_set(SOL_E_ARGUMENT, "tokens of %d bytes; 2 or 4 are possible",
                          o->plain_width);
    if (!(o->val_percent > 0 && o->val_percent < 100))
        return status_set(SOL_E_ARGUMENT,
                          "%g %% for validation; more than 0 and less than 100 are possible",
                          o->val_percent);
    if (o->tokenizer && tokenizer_vocab(o->tokenizer) > o->vocab)
        return status_set(SOL_E_ARGUMENT, "the vocabulary has %d tokens, and the model %" PRId64,
                          tokenizer_vocab(o->tokenizer), o->vocab);
    return SOL_OK;
}

static enum sol_status open_corpus(struct corpus *c, const struct corpus_options *o,
                                   enum corpus_part part)
{
    SOL_TRY(check_options(o));
    c->tokenizer = o->tokenizer;
    c->tokenizer_hash = o->tokenizer ? tokenizer_hash(o->tokenizer) : 0;
    c->vocab = o->vocab;
    SOL_TRY(list_files(c, part == CORPUS_VAL && o->val_path ? o->val_path : o->path));
    SOL_TRY(open_files(c, o));
    SOL_TRY(choose_part(c, o, part));
    c->hash = hash_of(c);
    return SOL_OK;
}

enum sol_status corpus_open(const struct corpus_options *options, enum corpus_part part,
                            struct corpus **out)
{
    struct corpus *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) return status_set(SOL_E_MEMORY, "no memory for a corpus");
    enum sol_status status = open_corpus(c, options, part);
    if (status == SOL_OK)
        *out = c;
    else
        corpus_close(c);
    return status;
}

void corpus_close(struct corpus *c)
{
    if (!c) return;
    drop_files(c, 0, c->n_files);
    free(c->files);
    free(c);
}

struct corpus_info corpus_info(const struct corpus *c)
{
    struct corpus_info info = {
        .files = c->n_files, .bos = c->bos, .vocab = c->vocab, .hash = c->hash};
    for (int i = 0; i < c->n_files; i++) {
        const struct corpus_file *f = &c->files[i];
        info.token_files = f->kind == DOCUMENT_TOKENS;
        *(info.token_files ? &info.tokens : &info.bytes) += f->end - f->begin;
        info.whole_texts = info.whole_texts || f->kind == DOCUMENT_FILE;
        if (i == 0 && f->kind == DOCUMENT_JSON_LINE) info.labelled = document_has_labels(f);
    }
    return info;
}
