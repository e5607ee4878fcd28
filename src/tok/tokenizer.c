/* Text to ids and back.
 *
 * Vocabularies spell tokens in the alphabet of GPT-2 or in base64. They are turned back into bytes
 * once, at load; from there on everything works on bytes.
 *
 * A piece of text that is a token as a whole is nearly always what merging would give too, but not
 * by definition. So the first time a piece is met it is merged, and whether the token came out is
 * noted in `whole`; after that the hash table alone answers. The note is the same whoever writes
 * it, so threads may race for it. */
#include "tok/tokenizer.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes_hash.h"
#include "base/memory.h"
#include "base/status.h"
#include "tok/bpe.h"
#include "tok/pretokenize.h"
#include "tok/tokenizer_private.h"

/* ---- bytes to id
 * ----------------------------------------------------------------------------------- */

static struct token_bytes bytes_of(const struct tokenizer *t, int32_t id)
{
    return (struct token_bytes){t->bytes + t->offsets[id], t->offsets[id + 1] - t->offsets[id]};
}

static inline struct token_slot *find_slot(const struct tokenizer *t,
                                           const struct token_lookup *lookup, uint64_t hash,
                                           const char *data, size_t length)
{
    uint32_t tag = (uint32_t)(hash >> 32);
    for (size_t i = (size_t)hash & lookup->mask;; i = (i + 1) & lookup->mask) {
        struct token_slot *slot = &lookup->slots[i];
        if (slot->id < 0) return slot;
        if (slot->tag != tag) continue;
        struct token_bytes token = bytes_of(t, slot->id);
        if (token.length == length && memcmp(token.data, data, length) == 0) return slot;
    }
}

static inline int32_t find_id(const struct tokenizer *t, const struct token_lookup *lookup,
                              const char *data, size_t length)
{
    return find_slot(t, lookup, bytes_hash(data, length), data, length)->id;
}

struct token_slot *token_slot_find(const struct tokenizer *t, const struct token_lookup *lookup,
                                   uint64_t hash, const char *data, size_t length)
{
    return find_slot(t, lookup, hash, data, length);
}

int32_t token_id_find(const struct tokenizer *t, const struct token_lookup *lookup,
                      const char *data, size_t length)
{
    return find_id(t, lookup, data, length);
}

void tokenizer_destroy(struct tokenizer *t)
{
    if (!t) return;
    free(t->bytes);
    free(t->offsets);
    free(t->kinds);
    free(t->whole);
    free(t->normal.slots);
    free(t->special.slots);
    bpe_destroy(t->bpe);
    free(t);
}

/* ---- encoding
 * -------------------------------------------------------------------------------------- */

void token_list_free(struct token_list *list)
{
    free(list->ids);
    *list = (struct token_list){NULL, 0, 0};
}

/* Room for `more` ids. */
static enum sol_status reserve(struct token_list *list, size_t more)
{
    size_t need, bytes;
    if (!size_add(list->count, more, &need)) goto fail;
    if (need <= list->capacity) return SOL_OK;
    size_t capacity = list->capacity > SIZE_MAX / 2 ? need : list->capacity * 2;
    if (capacity < need) capacity = need;
    if (capacity < 64) capacity = 64;
    if (!size_mul(capacity, sizeof *list->ids, &bytes)) goto fail;
    int32_t *ids = realloc(list->ids, bytes);
    if (!ids) goto fail;
    list->ids = ids;
    list->capacity = capacity;
    return SOL_OK;
fail:
    return status_set(SOL_E_MEMORY, "no memory for %zu more tokens", more);
}

static enum sol_status encode_piece(const struct tokenizer *t, const char *text, size_t length,
                                    struct token_list *list)
{
    int32_t whole = length <= t->longest ? find_id(t, &t->normal, text, length) : -1;
    if (whole >= 0) {
        unsigned char known = atomic_load_explicit(&t->whole[whole], memory_order_relaxed);
        if (known == WHOLE_YES || length == 1) {
            SOL_TRY(reserve(list, 1));
            list->ids[list->count++] = whole;
            return SOL_OK;
        }
        if (known == WHOLE_NO) whole = -1;
    }
    SOL_TRY(reserve(list, length));
    int32_t *ids = list->ids + list->count;
    for (size_t i = 0; i < length; i++) ids[i] = t->byte_ids[(unsigned char)text[i]];
    size_t count = length;
    SOL_TRY(bpe_merge(t->bpe, ids, &count));
    list->count += count;
    if (whole >= 0)
        atomic_store_explicit(&t->whole[whole], count == 1 ? WHOLE_YES : WHOLE_NO,
                              memory_order_relaxed);
    return SOL_OK;
}

/* Where `part` is set, more text may follow: what depends on it is left. *used is how far it got.
 */
static enum sol_status encode_plain(const struct tokenizer *t, const char *text, size_t length,
                                    bool part, size_t *used, struct token_list *list)
{
    *used = 0;
    while (*used < length) {
        const char *at = text + *used;
        size_t left = length - *used;
        size_t piece = part ? pretokenize_next_part(at, left) : pretokenize_next(at, left);
        if (piece == 0) return SOL_OK;
        SOL_TRY(encode_piece(t, at, piece, list));
        *used += piece;
    }
    return SOL_OK;
}

/* The longest special token that begins here, or -1. */
static int32_t special_at(const struct tokenizer *t, const char *text, size_t length)
{
    if (!t->special_begins[(unsigned char)text[0]]) return -1;
    for (size_t n = length < t->special_longest ? length : t->special_longest; n > 0; n--) {
        if (!t->special_length[n]) continue;
        int32_t id = find_id(t, &t->special, text, n);
        if (id >= 0) return id;
    }
    return -1;
}

static enum sol_status encode_special(const struct tokenizer *t, const char *text, size_t length,
                                      bool part, size_t *used, struct token_list *list)
{
    size_t plain = 0; /* where the text since the last special token begins */
    size_t pos = 0, done;
    while (pos < length) {
        bool cut = part && length - pos < t->special_longest;
        if (cut && t->special_begins[(unsigned char)text[pos]]) break; /* perhaps a longer one */
        int32_t id = special_at(t, text + pos, length - pos);
        if (id < 0) {
            pos++;
            continue;
        }
        SOL_TRY(encode_plain(t, text + plain, pos - plain, false, &done, list));
        SOL_TRY(reserve(list, 1));
        list->ids[list->count++] = id;
        pos += bytes_of(t, id).length;
        plain = pos;
    }
    SOL_TRY(encode_plain(t, text + plain, pos - plain, part, &done, list));
    *used = plain + done;
    return SOL_OK;
}

static enum sol_status encode(const struct tokenizer *t, const char *text, size_t length,
                              bool special, bool part, size_t *used, struct token_list *ids)
{
    size_t before = ids->count;
    *used = 0;
    if (length == 0) return SOL_OK; /* text may be NULL */
    enum sol_status status = special && t->special_longest
                                 ? encode_special(t, text, length, part, used, ids)
                                 : encode_plain(t, text, length, part, used, ids);
    if (status != SOL_OK) ids->count = before;
    return status;
}

enum sol_status tokenizer_encode(const struct tokenizer *t, const char *text, size_t length,
                                 bool special, struct token_list *ids)
{
    size_t used;
    return encode(t, text, length, special, false, &used, ids);
}

enum sol_status tokenizer_encode_part(const struct tokenizer *t, const char *text, size_t length,
                                      bool special, size_t *used, struct token_list *ids)
{
    return encode(t, text, length, special, true, used, ids);
}

/* ---- about tokens
 * ---------------------------------------------------------------------------------- */

int32_t tokenizer_vocab(const struct tokenizer *t)
{
    return t->count;
}

struct token_bytes tokenizer_bytes(const struct tokenizer *t, int32_t id)
{
    if (id < 0 || id >= t->count) return (struct token_bytes){"", 0};
    return bytes_of(t, id);
}

bool tokenizer_is_control(const struct tokenizer *t, int32_t id)
{
    if (id < 0 || id >= t->count) return true;
    return t->kinds[id] == TOKEN_CONTROL || t->kinds[id] == TOKEN_UNUSED ||
           t->kinds[id] == TOKEN_UNKNOWN;
}

bool tokenizer_is_stop(const struct tokenizer *t, int32_t id)
{
    for (int i = 0; i < N_STOPS; i++)
        if (id >= 0 && t->stops[i] == id) return true;
    return false;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_begin(const struct tokenizer *t)
{
    return tokenizer_bos(t) >= 0 ? tokenizer_bos(t) : tokenizer_find(t, "<|endoftext|>");
}

bool tokenizer_adds_bos(const struct tokenizer *t)
{
    return t->adds_bos;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *token)
{
    int32_t id = find_id(t, &t->special, token, strlen(token));
    return id >= 0 ? id : find_id(t, &t->normal, token, strlen(token));
}

/* FNV-1a. */
uint64_t tokenizer_hash(const struct tokenizer *tokenizer)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int32_t id = 0; id < tokenizer_vocab(tokenizer); id++) {
        struct token_bytes token = tokenizer_bytes(tokenizer, id);
        unsigned char ends[] = {(unsigned char)token.length,
                                (unsigned char)tokenizer_is_control(tokenizer, id)};
        for (size_t i = 0; i < token.length + sizeof ends; i++) {
            unsigned char byte =
                i < token.length ? (unsigned char)token.data[i] : ends[i - token.length];
            hash = (hash ^ byte) * UINT64_C(0x100000001b3);
        }
    }
    return hash ? hash : 1;
}

/* ---- streaming
 * ------------------------------------------------------------------------------------- */

size_t utf8_stream_push(struct utf8_stream *stream, const char *data, size_t length, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        stream->held[stream->n_held++] = data[i];
        /* At most twice: what was held turns out broken, then the new byte stands alone. */
        while (stream->n_held) {
            uint32_t code;
            int size = utf8_decode(stream->held, (size_t)stream->n_held, &code);
            if (size == 0) break;
            if (size < 0) size = stream->n_held > 1 ? stream->n_held - 1 : 1;
            memcpy(out + n, stream->held, (size_t)size);
            n += (size_t)size;
            stream->n_held -= size;
            memmove(stream->held, stream->held + size, (size_t)stream->n_held);
        }
    }
    return n;
}

size_t utf8_stream_flush(struct utf8_stream *stream, char *out)
{
    size_t n = (size_t)stream->n_held;
    memcpy(out, stream->held, n);
    stream->n_held = 0;
    return n;
}
