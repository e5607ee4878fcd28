/* Finding documents in files, and turning them into tokens. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "chat/format.h"
#include "tok/pretokenize.h"
#include "train/data_corpus.h"
#include "train/data_private.h"

enum { STRETCH = 1 << 20 }; /* bytes or tokens between two looks at whether to stop */

/* ---- lines ---- */

static uint64_t line_end(const char *text, uint64_t at, uint64_t end)
{
    const char *newline = at < end ? memchr(text + at, '\n', end - at) : NULL;
    return newline ? (uint64_t)(newline - text) + 1 : end;
}

static bool is_blank(const char *text, uint64_t from, uint64_t to)
{
    while (from < to && strchr(" \t\r\n", text[from]) && text[from]) from++;
    return from == to;
}

static uint64_t skip_blank_lines(const char *text, uint64_t at, uint64_t end)
{
    for (uint64_t next; at < end; at = next) {
        next = line_end(text, at, end);
        if (!is_blank(text, at, next)) break;
    }
    return at;
}

/* The next place at or behind `at` where no piece of text goes across. */
static uint64_t next_cut(const char *text, uint64_t at, uint64_t end)
{
    while (at < end && !pretokenize_is_cut(text, at)) at = line_end(text, at, end);
    return at < end ? at : end;
}

/* ---- where documents begin and end ---- */

static uint64_t next_bos(const struct corpus *c, const struct token_file *tokens, uint64_t at,
                         uint64_t end)
{
    if (c->bos < 0) return end;
    while (at < end && token_file_at(tokens, at) != (uint32_t)c->bos) at++;
    return at;
}

uint64_t document_after(const struct corpus *c, const struct corpus_file *f, uint64_t at)
{
    const char *text = f->map.data;
    if (at >= f->end) return f->end;
    if (f->kind == DOCUMENT_TOKENS) return c->bos < 0 ? at : next_bos(c, &f->tokens, at, f->end);
    uint64_t line = at > 0 && text[at - 1] != '\n' ? line_end(text, at, f->end) : at;
    if (f->kind == DOCUMENT_PARAGRAPH) {
        for (uint64_t next; line < f->end; line = next) {
            next = line_end(text, line, f->end);
            if (is_blank(text, line, next)) break;
        }
        return skip_blank_lines(text, line, f->end);
    }
    if (line < f->end || f->kind == DOCUMENT_JSON_LINE) return line;
    while (at < f->end && (text[at] & 0xc0) == 0x80) at++;
    return at;
}

/* Where the lines end that go on from `at` until a blank one, without their last line end; or a cut
 * where they are longer than `part`. *next is where to go on. */
static uint64_t paragraph_end(const char *text, uint64_t at, uint64_t end, uint64_t part,
                              uint64_t *next)
{
    uint64_t start = at, last = at;
    while (at < end) {
        uint64_t line = line_end(text, at, end);
        if (is_blank(text, at, line)) break;
        if (part && at - start >= part && pretokenize_is_cut(text, at)) {
            *next = at;
            return at;
        }
        at = last = line;
    }
    *next = at;
    while (last > start && (text[last - 1] == '\n' || text[last - 1] == '\r')) last--;
    return last;
}

/* The document at the cursor, in what is left of its file; false where nothing is. The cursor goes
 * behind it, and stays `inside` where more of it follows. */
static bool find(const struct corpus *c, const struct corpus_file *f, uint64_t part,
                 struct corpus_cursor *cursor, struct corpus_document *out)
{
    const char *text = f->map.data;
    uint64_t at = cursor->offset, to, next;
    if (!cursor->inside && (f->kind == DOCUMENT_PARAGRAPH || f->kind == DOCUMENT_JSON_LINE))
        at = skip_blank_lines(text, at, f->end);
    if (at >= f->end) return false;
    uint64_t limit = part && f->end - at > part ? at + part : f->end;
    bool whole = true;
    switch (f->kind) {
    case DOCUMENT_FILE:
        next = to = limit < f->end ? next_cut(text, limit, f->end) : f->end;
        whole = to == f->end;
        break;
    case DOCUMENT_PARAGRAPH:
        to = paragraph_end(text, at, f->end, part, &next);
        whole = to < next || next == f->end;
        break;
    case DOCUMENT_TOKENS:
        next = to = next_bos(c, &f->tokens, at + 1, limit);
        whole = to == f->end || (c->bos >= 0 && token_file_at(&f->tokens, to) == (uint32_t)c->bos);
        break;
    default:
        to = next = line_end(text, at, f->end);
        if (text[to - 1] == '\n') to--;
    }
    *out = (struct corpus_document){cursor->file, at, to - at, !cursor->inside};
    cursor->document += out->first;
    cursor->offset = next;
    cursor->inside = !whole;
    return true;
}

struct corpus_cursor corpus_start(const struct corpus *c)
{
    return (struct corpus_cursor){.offset = c->files[0].begin, .epoch = 1};
}

bool corpus_holds(const struct corpus *c, const struct corpus_cursor *cursor)
{
    if (cursor->file < 0 || cursor->file >= c->n_files || cursor->epoch < 1) return false;
    const struct corpus_file *f = &c->files[cursor->file];
    return cursor->offset >= f->begin && cursor->offset <= f->end;
}

enum sol_status corpus_next(const struct corpus *c, uint64_t part, struct corpus_cursor *cursor,
                            struct corpus_document *out)
{
    for (int ends = 0; ends < 2;) {
        if (find(c, &c->files[cursor->file], part, cursor, out)) return SOL_OK;
        if (++cursor->file == c->n_files) {
            cursor->file = 0;
            cursor->document = 0;
            cursor->epoch++;
            ends++;
        }
        cursor->offset = c->files[cursor->file].begin;
        cursor->inside = false;
    }
    return status_set(SOL_E_FORMAT, "'%s'%s: there are no documents", c->files[0].path,
                      c->n_files > 1 ? " and the files after it" : "");
}

/* ---- tokens ---- */

static enum sol_status push(struct token_list *ids, int32_t id)
{
    SOL_TRY(
        array_grow(&ids->ids, ids->count, &ids->capacity, sizeof *ids->ids, "a document's tokens"));
    ids->ids[ids->count++] = id;
    return SOL_OK;
}

static enum sol_status push_bos(const struct corpus *c, const struct corpus_document *d,
                                struct token_list *ids)
{
    return d->first && c->bos >= 0 ? push(ids, c->bos) : SOL_OK;
}

static enum sol_status stopped(const atomic_bool *stop)
{
    if (!stop || !atomic_load_explicit(stop, memory_order_relaxed)) return SOL_OK;
    return status_set(SOL_E_INTERRUPTED, "reading of data was stopped");
}

static enum sol_status encode_text(const struct corpus *c, const char *text, uint64_t size,
                                   const atomic_bool *stop, struct token_list *ids)
{
    for (uint64_t at = 0, to; at < size; at = to) {
        SOL_TRY(stopped(stop));
        to = size - at > STRETCH ? next_cut(text, at + STRETCH, size) : size;
        SOL_TRY(tokenizer_encode(c->tokenizer, text + at, to - at, false, ids));
    }
    return SOL_OK;
}

static uint64_t line_number(const struct corpus_file *f, uint64_t offset)
{
    const char *text = f->map.data;
    uint64_t number = 1;
    for (uint64_t i = 0; i < offset; i++) number += text[i] == '\n';
    return number;
}

/* Control tokens in it are read as such: whoever writes segments wrote them. */
static enum sol_status encode_segment(const struct corpus *c, const json_t *segment,
                                      struct token_list *ids)
{
    const json_t *text = json_object_get(segment, "text"), *label;
    const size_t first = ids->count;
    label = json_object_get(segment, "label");
    if (!json_is_string(text) || !json_is_boolean(label))
        return status_set(SOL_E_FORMAT, "a segment has no string \"text\" or no true or false "
                                        "\"label\"");
    SOL_TRY(tokenizer_encode(c->tokenizer, json_string_value(text), json_string_length(text), true,
                             ids));
    for (size_t i = first; json_is_false(label) && i < ids->count; i++)
        ids->ids[i] = token_unlabelled(ids->ids[i]);
    return SOL_OK;
}

/* A conversation in the vocabulary's chat format; what the assistant writes is learnt. */
static enum sol_status render_messages(const struct chat_vocabulary *v, struct conversation *c,
                                       json_t *root, struct token_list *ids)
{
    struct render_map map = {0};
    const struct render_options how = {.next = CHAT_NOBODY, .training = true, .map = &map};
    const size_t first = ids->count;
    size_t span = 0;
    SOL_TRY(conversation_add_json(c, root));
    enum sol_status status = render_conversation(v, c, &how, ids);
    for (size_t i = first; status == SOL_OK && i < ids->count; i++)
        if (!render_map_is_written(&map, i, &span)) ids->ids[i] = token_unlabelled(ids->ids[i]);
    render_map_free(&map);
    return status;
}

static enum sol_status encode_messages(const struct corpus *corpus, json_t *root,
                                       struct token_list *ids)
{
    struct chat_vocabulary v;
    struct conversation *c;
    SOL_TRY(chat_vocabulary_find(corpus->tokenizer, &v));
    SOL_TRY(conversation_create(&c));
    enum sol_status status = render_messages(&v, c, root, ids);
    conversation_destroy(c);
    return status;
}

static enum sol_status encode_object(const struct corpus *c, const struct corpus_document *d,
                                     json_t *root, const atomic_bool *stop, struct token_list *ids)
{
    const json_t *text = json_object_get(root, "text");
    const json_t *segments = json_object_get(root, "segments"), *segment;
    size_t i;
    if (json_is_string(text)) {
        SOL_TRY(push_bos(c, d, ids));
        return encode_text(c, json_string_value(text), json_string_length(text), stop, ids);
    }
    if (json_is_array(json_object_get(root, "messages"))) return encode_messages(c, root, ids);
    if (!json_is_array(segments))
        return status_set(SOL_E_FORMAT, "there is no string \"text\" and no list \"segments\" or "
                                        "\"messages\" in an object");
    json_array_foreach(segments, i, segment) SOL_TRY(encode_segment(c, segment, ids));
    return SOL_OK;
}

static enum sol_status encode_json(const struct corpus *c, const struct corpus_file *f,
                                   const struct corpus_document *d, const atomic_bool *stop,
                                   struct token_list *ids)
{
    json_error_t error;
    const char *line = (const char *)f->map.data + d->offset;
    json_t *root = json_loadb(line, d->size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!root)
        return status_set(SOL_E_FORMAT, "'%s', line %" PRIu64 ": %s (byte %d of the line)", f->path,
                          line_number(f, d->offset), error.text, error.position);
    enum sol_status status = encode_object(c, d, root, stop, ids);
    json_decref(root);
    if (status != SOL_E_FORMAT && status != SOL_E_UNSUPPORTED) return status;
    return status_prefix(status, "'%s', line %" PRIu64, f->path, line_number(f, d->offset));
}

bool document_has_labels(const struct corpus_file *f)
{
    const char *text = f->map.data;
    const uint64_t at = skip_blank_lines(text, f->begin, f->end), end = line_end(text, at, f->end);
    json_t *root = at < end ? json_loadb(text + at, end - at, 0, NULL) : NULL;
    const bool has = json_is_array(json_object_get(root, "segments")) ||
                     json_is_array(json_object_get(root, "messages"));
    json_decref(root);
    return has;
}

static enum sol_status encode_tokens(const struct corpus *c, const struct corpus_file *f,
                                     const struct corpus_document *d, const atomic_bool *stop,
                                     struct token_list *ids)
{
    for (uint64_t i = 0; i < d->size; i++) {
        uint32_t token = token_file_at(&f->tokens, d->offset + i);
        if (i % STRETCH == 0) SOL_TRY(stopped(stop));
        if (token >= (uint64_t)c->vocab)
            return status_set(SOL_E_FORMAT,
                              "'%s': token %" PRIu64 " is %" PRIu32
                              ", and the model's vocabulary has %" PRId64,
                              f->path, d->offset + i, token, c->vocab);
        SOL_TRY(push(ids, (int32_t)token));
    }
    return SOL_OK;
}

enum sol_status corpus_encode(const struct corpus *c, const struct corpus_document *d,
                              const atomic_bool *stop, struct token_list *ids)
{
    const struct corpus_file *f = &c->files[d->file];
    const char *text = f->map.data;
    bool has_bos = f->kind == DOCUMENT_TOKENS && d->size &&
                   token_file_at(&f->tokens, d->offset) == (uint32_t)c->bos;
    if (f->kind == DOCUMENT_JSON_LINE) return encode_json(c, f, d, stop, ids);
    if (!has_bos) SOL_TRY(push_bos(c, d, ids));
    if (f->kind == DOCUMENT_TOKENS) return encode_tokens(c, f, d, stop, ids);
    return encode_text(c, text + d->offset, d->size, stop, ids);
}
