/* Text to ids and back.
 *
 * The file spells tokens in the alphabet of GPT-2, which has a visible character for every byte.
 * They are turned back into bytes once, at load; from there on everything works on bytes. Loading
 * 201,088 tokens and 446,189 merges has to be quick, so it is one pass over each array, into tables
 * sized beforehand.
 *
 * A piece of text that is a token as a whole is nearly always what merging would give too, but not
 * by definition. So the first time a piece is met it is merged, and whether the token came out is
 * noted in `whole`; after that the hash table alone answers. The note is the same whoever writes
 * it, so threads may race for it. */
#include "model/tokenizer.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "model/bpe.h"
#include "model/pretokenize.h"

/* tokenizer.ggml.token_type */
enum kind { KIND_NORMAL = 1, KIND_UNKNOWN, KIND_CONTROL, KIND_USER, KIND_UNUSED, KIND_BYTE };

enum { WHOLE_UNTRIED, WHOLE_YES, WHOLE_NO };

/* The longest name of a special token that is looked for in text. */
enum { SPECIAL_MAX = 255 };

enum { N_STOPS = 4 };

struct slot {
    uint32_t tag; /* upper half of the hash: spares most comparisons of bytes */
    int32_t id;   /* -1: empty */
};

/* Bytes to id; open addressing, at most half full. */
struct lookup {
    struct slot *slots;
    size_t mask;
};

struct tokenizer {
    int32_t count;
    char *bytes;       /* of all tokens, one after the other */
    uint32_t *offsets; /* count + 1 */
    uint8_t *kinds;
    _Atomic unsigned char *whole;
    size_t longest; /* normal token, in bytes */
    struct lookup normal, special;
    int32_t byte_ids[256];
    struct bpe *bpe;
    bool special_begins[256];             /* some special token begins with this byte */
    bool special_length[SPECIAL_MAX + 1]; /* some special token has this length */
    size_t special_longest;
    int32_t bos, stops[N_STOPS];
    bool adds_bos;
};

/* ---- bytes to id
 * ----------------------------------------------------------------------------------- */

static inline uint64_t mix(uint64_t h)
{
    h *= 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

static uint64_t hash_bytes(const char *data, size_t length)
{
    uint64_t h = length, word;
    for (; length >= 8; data += 8, length -= 8) {
        memcpy(&word, data, 8);
        h = mix(h ^ word);
    }
    word = 0;
    for (size_t i = 0; i < length; i++) word = word << 8 | (unsigned char)data[i];
    return mix(mix(h ^ word));
}

static struct token_bytes bytes_of(const struct tokenizer *t, int32_t id)
{
    return (struct token_bytes){t->bytes + t->offsets[id], t->offsets[id + 1] - t->offsets[id]};
}

/* The slot of these bytes, or the empty one where they would go. */
static struct slot *find_slot(const struct tokenizer *t, const struct lookup *lookup, uint64_t hash,
                              const char *data, size_t length)
{
    uint32_t tag = (uint32_t)(hash >> 32);
    for (size_t i = (size_t)hash & lookup->mask;; i = (i + 1) & lookup->mask) {
        struct slot *slot = &lookup->slots[i];
        if (slot->id < 0) return slot;
        if (slot->tag != tag) continue;
        struct token_bytes token = bytes_of(t, slot->id);
        if (token.length == length && memcmp(token.data, data, length) == 0) return slot;
    }
}

static int32_t find_id(const struct tokenizer *t, const struct lookup *lookup, const char *data,
                       size_t length)
{
    return find_slot(t, lookup, hash_bytes(data, length), data, length)->id;
}

static enum sol_status lookup_create(struct lookup *lookup, size_t entries)
{
    size_t slots = 16;
    while (slots / 2 < entries) slots *= 2; /* entries fit an int32 */
    lookup->slots = malloc(slots * sizeof *lookup->slots);
    if (!lookup->slots) return status_set(SOL_E_MEMORY, "no memory for %zu tokens", entries);
    memset(lookup->slots, 0xff, slots * sizeof *lookup->slots); /* id -1 */
    lookup->mask = slots - 1;
    return SOL_OK;
}

/* ---- loading
 * --------------------------------------------------------------------------------------- */

struct loader {
    const struct gguf *file;
    struct tokenizer *t;
    int16_t byte_of[324]; /* code of the GPT-2 alphabet -> byte, -1 where there is none */
};

SOL_PRINTF(2, 3)
static enum sol_status malformed(const struct loader *l, const char *fmt, ...)
{
    char text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return status_set(SOL_E_FORMAT, "'%s': tokenizer: %s", gguf_name(l->file), text);
}

/* Printable Latin-1 stands for itself; the other 68 bytes got 256, 257, ... in order. */
static void make_alphabet(struct loader *l)
{
    int next = 256;
    memset(l->byte_of, 0xff, sizeof l->byte_of);
    for (int byte = 0; byte < 256; byte++) {
        bool printable = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
        l->byte_of[printable ? byte : next++] = (int16_t)byte;
    }
}

/* Spelling to bytes. `out` has room for `length`, since the alphabet never takes less than it
 * gives. Returns the number of bytes, or -1 for a character outside the alphabet. */
static int64_t spell_out(const struct loader *l, const char *text, size_t length, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < length; n++) {
        unsigned char c = (unsigned char)text[i];
        uint32_t code = c;
        int size = 1;
        if (c >= 0x80) size = utf8_decode(text + i, length - i, &code);
        if (size <= 0 || code >= sizeof l->byte_of / sizeof *l->byte_of || l->byte_of[code] < 0)
            return -1;
        out[n] = (char)l->byte_of[code];
        i += (size_t)size;
    }
    return (int64_t)n;
}

static bool equals(struct gguf_string a, const char *b)
{
    return a.length == strlen(b) && memcmp(a.data, b, a.length) == 0;
}

static enum sol_status check_kind_of_tokenizer(const struct loader *l)
{
    struct gguf_string model, pre = {"", 0};
    bool found;
    SOL_TRY(gguf_get_string(l->file, "tokenizer.ggml.model", &model, NULL));
    if (!equals(model, "gpt2"))
        return malformed(l, "tokenizer.ggml.model is '%.*s'; only gpt2 (byte-level BPE) is read",
                         (int)(model.length < 40 ? model.length : 40), model.data);
    SOL_TRY(gguf_get_string(l->file, "tokenizer.ggml.pre", &pre, &found));
    if (!found)
        return malformed(
            l, "tokenizer.ggml.pre is missing; gpt-oss files say gpt-4o (convert the model "
               "again with a current converter)");
    if (!equals(pre, "gpt-4o"))
        return malformed(
            l,
            "tokenizer.ggml.pre is '%.*s'; only gpt-4o is read (convert the model again "
            "with a current converter)",
            (int)(pre.length < 40 ? pre.length : 40), pre.data);
    return SOL_OK;
}

/* Sizes everything by a first walk over the tokens. */
static enum sol_status allocate(struct loader *l, struct gguf_array tokens)
{
    struct tokenizer *t = l->t;
    if (tokens.type != GGUF_STRING || tokens.count == 0 || tokens.count >= INT32_MAX)
        return malformed(l, "tokenizer.ggml.tokens is no list of 1 to 2^31 - 2 strings");
    const struct gguf_tensor *embedding = gguf_tensor_find(l->file, "token_embd.weight");
    if (embedding && (uint64_t)embedding->dims[1] < tokens.count)
        return malformed(l, "%llu tokens, but token_embd.weight has %lld rows",
                         (unsigned long long)tokens.count, (long long)embedding->dims[1]);
    t->count = (int32_t)tokens.count;
    size_t total = 0;
    struct gguf_string text;
    while (gguf_array_next_string(&tokens, &text)) total += text.length; /* all in one file */
    if (total > UINT32_MAX)
        return malformed(l, "the tokens have %zu bytes; 2^32 - 1 at most", total);

    size_t count = (size_t)t->count;
    t->bytes = malloc(total + 1);
    t->offsets = malloc((count + 1) * sizeof *t->offsets);
    t->kinds = calloc(count, sizeof *t->kinds);
    t->whole = calloc(count, sizeof *t->whole);
    if (!t->bytes || !t->offsets || !t->kinds || !t->whole)
        return status_set(SOL_E_MEMORY, "no memory for a vocabulary of %zu tokens", count);
    return SOL_OK;
}

static enum sol_status load_kinds(struct loader *l, size_t *n_special)
{
    struct gguf_array types;
    SOL_TRY(gguf_get_array(l->file, "tokenizer.ggml.token_type", &types, NULL));
    if (types.count != (uint64_t)l->t->count)
        return malformed(l, "%llu entries in token_type for %d tokens",
                         (unsigned long long)types.count, l->t->count);
    *n_special = 0;
    for (int32_t id = 0; id < l->t->count; id++) {
        int64_t kind;
        if (!gguf_array_next_i64(&types, &kind) || kind < KIND_NORMAL || kind > KIND_BYTE)
            return malformed(l, "token %d has no valid token_type (1 to 6)", id);
        l->t->kinds[id] = (uint8_t)kind;
        if (kind == KIND_UNKNOWN || kind == KIND_CONTROL || kind == KIND_USER) (*n_special)++;
    }
    return SOL_OK;
}

/* A token that is found by its name and no part of ordinary text. */
static enum sol_status note_special(struct loader *l, int32_t id, struct token_bytes name)
{
    struct tokenizer *t = l->t;
    if (name.length == 0 || name.length > SPECIAL_MAX)
        return malformed(l, "special token %d has a name of %zu bytes; 1 to %d are allowed", id,
                         name.length, SPECIAL_MAX);
    t->special_begins[(unsigned char)name.data[0]] = true;
    t->special_length[name.length] = true;
    if (name.length > t->special_longest) t->special_longest = name.length;
    return SOL_OK;
}

/* Stores token `id` behind the ones before it and enters it into its table. */
static enum sol_status add_token(struct loader *l, int32_t id, struct gguf_string text)
{
    struct tokenizer *t = l->t;
    char *to = t->bytes + t->offsets[id];
    bool normal = t->kinds[id] == KIND_NORMAL || t->kinds[id] == KIND_BYTE;
    size_t length = text.length;
    t->offsets[id + 1] = t->offsets[id];
    if (t->kinds[id] == KIND_UNUSED) return SOL_OK; /* no token: length 0 */
    if (normal) {
        int64_t n = spell_out(l, text.data, text.length, to);
        if (n <= 0)
            return malformed(l, "token %d %s", id,
                             n ? "has a character outside GPT-2's alphabet of bytes" : "is empty");
        length = (size_t)n;
        if (length > t->longest) t->longest = length;
    } else {
        memcpy(to, text.data, length);
        SOL_TRY(note_special(l, id, (struct token_bytes){to, length}));
    }
    t->offsets[id + 1] += (uint32_t)length;
    uint64_t hash = hash_bytes(to, length);
    struct slot *slot = find_slot(t, normal ? &t->normal : &t->special, hash, to, length);
    if (slot->id >= 0) return malformed(l, "tokens %d and %d are the same", slot->id, id);
    *slot = (struct slot){(uint32_t)(hash >> 32), id};
    return SOL_OK;
}

static enum sol_status load_tokens(struct loader *l)
{
    struct tokenizer *t = l->t;
    struct gguf_array tokens;
    struct gguf_string text;
    size_t n_special = 0;
    SOL_TRY(gguf_get_array(l->file, "tokenizer.ggml.tokens", &tokens, NULL));
    SOL_TRY(allocate(l, tokens));
    SOL_TRY(load_kinds(l, &n_special));
    SOL_TRY(lookup_create(&t->normal, (size_t)t->count - n_special));
    SOL_TRY(lookup_create(&t->special, n_special));
    t->offsets[0] = 0;
    for (int32_t id = 0; id < t->count && gguf_array_next_string(&tokens, &text); id++)
        SOL_TRY(add_token(l, id, text));
    for (int byte = 0; byte < 256; byte++) {
        char text_of_byte = (char)byte;
        t->byte_ids[byte] = find_id(t, &t->normal, &text_of_byte, 1);
        if (t->byte_ids[byte] < 0)
            return malformed(l, "no token for byte 0x%02x; all 256 are needed", (unsigned)byte);
    }
    return SOL_OK;
}

/* "left right": both halves and what they make must be tokens. `buffer` holds the longest token. */
static enum sol_status add_merge(struct loader *l, uint64_t index, struct gguf_string text,
                                 char *buffer)
{
    struct tokenizer *t = l->t;
    unsigned long long number = index;
    /* GPT-2's alphabet has no space, so the first one is the separator. */
    const char *space = memchr(text.data, ' ', text.length);
    size_t left_size = space ? (size_t)(space - text.data) : 0;
    if (!space || left_size == 0 || left_size + 1 == text.length)
        return malformed(l, "merge %llu is not two tokens with a space between", number);
    /* A byte is spelled with one or two. */
    if (text.length - 1 > 2 * t->longest)
        return malformed(l, "merge %llu makes no token of the vocabulary", number);
    int64_t left = spell_out(l, text.data, left_size, buffer);
    int64_t right =
        left < 0 ? -1 : spell_out(l, space + 1, text.length - left_size - 1, buffer + left);
    if (right < 0)
        return malformed(l, "merge %llu has a character outside GPT-2's alphabet", number);
    int32_t left_id = find_id(t, &t->normal, buffer, (size_t)left);
    int32_t right_id = find_id(t, &t->normal, buffer + left, (size_t)right);
    if (left_id < 0 || right_id < 0)
        return malformed(l, "the %s half of merge %llu is no token of the vocabulary",
                         left_id < 0 ? "left" : "right", number);
    int32_t merged = find_id(t, &t->normal, buffer, (size_t)(left + right));
    if (merged < 0) return malformed(l, "merge %llu makes no token of the vocabulary", number);
    if (!bpe_add(t->bpe, left_id, right_id, merged))
        return malformed(l, "merge %llu is there twice", number);
    return SOL_OK;
}

static enum sol_status load_merges(struct loader *l)
{
    struct gguf_array merges;
    struct gguf_string text;
    SOL_TRY(gguf_get_array(l->file, "tokenizer.ggml.merges", &merges, NULL));
    if (merges.type != GGUF_STRING || merges.count >= UINT32_MAX)
        return malformed(l, "tokenizer.ggml.merges is no list of strings");
    SOL_TRY(bpe_create((size_t)merges.count, &l->t->bpe));
    char *buffer = malloc(2 * l->t->longest);
    if (!buffer)
        return status_set(SOL_E_MEMORY, "no memory for a token of %zu bytes", l->t->longest);
    enum sol_status status = SOL_OK;
    for (uint64_t i = 0; status == SOL_OK && gguf_array_next_string(&merges, &text); i++)
        status = add_merge(l, i, text, buffer);
    free(buffer);
    return status;
}

static enum sol_status load_id(struct loader *l, const char *key, int32_t *id)
{
    uint64_t value;
    bool found;
    *id = -1;
    SOL_TRY(gguf_get_u64(l->file, key, &value, &found));
    if (!found) return SOL_OK;
    if (value >= (uint64_t)l->t->count)
        return malformed(l, "%s is %llu, but there are %d tokens", key, (unsigned long long)value,
                         l->t->count);
    *id = (int32_t)value;
    return SOL_OK;
}

static enum sol_status load_special_ids(struct loader *l)
{
    struct tokenizer *t = l->t;
    bool found;
    SOL_TRY(load_id(l, "tokenizer.ggml.bos_token_id", &t->bos));
    SOL_TRY(load_id(l, "tokenizer.ggml.eos_token_id", &t->stops[0]));
    SOL_TRY(gguf_get_bool(l->file, "tokenizer.ggml.add_bos_token", &t->adds_bos, &found));
    if (t->adds_bos && t->bos < 0)
        return malformed(l, "add_bos_token is set, but there is no bos_token_id");
    t->stops[1] = tokenizer_find(t, "<|return|>");
    t->stops[2] = tokenizer_find(t, "<|call|>");
    t->stops[3] = tokenizer_find(t, "<|endoftext|>");
    return SOL_OK;
}

enum sol_status tokenizer_from_gguf(const struct gguf *file, struct tokenizer **out)
{
    *out = NULL;
    struct loader loader = {.file = file, .t = calloc(1, sizeof *loader.t)};
    enum sol_status status;
    if (!loader.t) return status_set(SOL_E_MEMORY, "no memory for a tokenizer");
    make_alphabet(&loader);
    if ((status = check_kind_of_tokenizer(&loader)) != SOL_OK) goto fail;
    if ((status = load_tokens(&loader)) != SOL_OK) goto fail;
    if ((status = load_merges(&loader)) != SOL_OK) goto fail;
    if ((status = load_special_ids(&loader)) != SOL_OK) goto fail;
    *out = loader.t;
    return SOL_OK;
fail:
    tokenizer_destroy(loader.t);
    return status;
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

static enum sol_status encode_plain(const struct tokenizer *t, const char *text, size_t length,
                                    struct token_list *list)
{
    for (size_t pos = 0; pos < length;) {
        size_t piece = pretokenize_next(text + pos, length - pos);
        SOL_TRY(encode_piece(t, text + pos, piece, list));
        pos += piece;
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
                                      struct token_list *list)
{
    size_t plain = 0; /* where the text since the last special token begins */
    for (size_t pos = 0; pos < length;) {
        int32_t id = special_at(t, text + pos, length - pos);
        if (id < 0) {
            pos++;
            continue;
        }
        SOL_TRY(encode_plain(t, text + plain, pos - plain, list));
        SOL_TRY(reserve(list, 1));
        list->ids[list->count++] = id;
        pos += bytes_of(t, id).length;
        plain = pos;
    }
    return encode_plain(t, text + plain, length - plain, list);
}

enum sol_status tokenizer_encode(const struct tokenizer *t, const char *text, size_t length,
                                 bool special, struct token_list *ids)
{
    size_t before = ids->count;
    if (length == 0) return SOL_OK; /* text may be NULL */
    enum sol_status status = special && t->special_longest ? encode_special(t, text, length, ids)
                                                           : encode_plain(t, text, length, ids);
    if (status != SOL_OK) ids->count = before;
    return status;
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
    return t->kinds[id] == KIND_CONTROL || t->kinds[id] == KIND_UNUSED ||
           t->kinds[id] == KIND_UNKNOWN;
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

bool tokenizer_adds_bos(const struct tokenizer *t)
{
    return t->adds_bos;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *token)
{
    int32_t id = find_id(t, &t->special, token, strlen(token));
    return id >= 0 ? id : find_id(t, &t->normal, token, strlen(token));
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
