#include "serve/schema_cache.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/bytes_hash.h"
#include "chat/json.h"

/* In a list, what was used last first. */
struct schema_entry {
    struct schema_entry *next;
    char *text; /* compact; NULL: any object */
    size_t length;
    uint64_t hash;
    struct grammar *grammar;
    struct mask_cache *masks;
    size_t holds;
};

struct schema_cache {
    pthread_mutex_t mutex;
    struct schema_entry *first;
};

enum sol_status schema_cache_create(struct schema_cache **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return status_set(SOL_E_MEMORY, "no memory for the schemas of requests");
    pthread_mutex_init(&(*out)->mutex, NULL);
    return SOL_OK;
}

static void entry_destroy(struct schema_entry *e)
{
    if (!e) return;
    mask_cache_destroy(e->masks);
    grammar_destroy(e->grammar);
    free(e->text);
    free(e);
}

void schema_cache_destroy(struct schema_cache *cache)
{
    if (!cache) return;
    for (struct schema_entry *e = cache->first, *next; e; e = next) {
        next = e->next;
        entry_destroy(e);
    }
    pthread_mutex_destroy(&cache->mutex);
    free(cache);
}

/* ---- under the lock ---- */

/* Taken out of the list, or NULL. */
static struct schema_entry *take(struct schema_cache *cache, const char *text, size_t length,
                                 uint64_t hash)
{
    for (struct schema_entry **at = &cache->first, *e; (e = *at); at = &e->next) {
        if (e->hash != hash || e->length != length || !e->text != !text) continue;
        if (text && memcmp(e->text, text, length) != 0) continue;
        *at = e->next;
        return e;
    }
    return NULL;
}

/* What is not in use, beyond what may be kept. */
static void trim(struct schema_cache *cache)
{
    size_t count = 0, bytes = 0;
    for (struct schema_entry **at = &cache->first, *e; (e = *at);) {
        size_t more = grammar_bytes(e->grammar) + e->length;
        bool fits = count < SCHEMA_CACHE_ENTRIES && bytes + more <= SCHEMA_CACHE_BYTES;
        if (fits || e->holds) {
            count++;
            bytes += more;
            at = &e->next;
            continue;
        }
        *at = e->next;
        entry_destroy(e);
    }
}

static void put_first(struct schema_cache *cache, struct schema_entry *e)
{
    e->next = cache->first;
    cache->first = e;
}

/* ---- from outside ---- */

static enum sol_status compile(const json_t *schema, const struct token_trie *trie,
                               struct schema_entry *e)
{
    if (schema)
        SOL_TRY(grammar_from_schema(schema, GRAMMAR_SPACE_ONE, &e->grammar));
    else
        SOL_TRY(grammar_any_object(GRAMMAR_SPACE_ONE, &e->grammar));
    return trie ? mask_cache_create(trie, &e->masks) : SOL_OK;
}

static void hold_entry(struct schema_cache *cache, struct schema_entry *e, struct schema_hold *out)
{
    e->holds++;
    put_first(cache, e);
    *out = (struct schema_hold){e->grammar, e->masks, e};
}

enum sol_status schema_cache_hold(struct schema_cache *cache, const json_t *schema,
                                  const struct token_trie *trie, struct schema_hold *out)
{
    struct text_buffer text = {0};
    *out = (struct schema_hold){0};
    if (schema) chat_json_print(schema, &text);
    SOL_TRY(text_check(&text, "a schema"));
    uint64_t hash = bytes_hash(text.data ? text.data : "", text.length);
    pthread_mutex_lock(&cache->mutex);
    struct schema_entry *e = take(cache, text.data, text.length, hash);
    if (e) hold_entry(cache, e, out);
    pthread_mutex_unlock(&cache->mutex);
    if (e) {
        text_buffer_free(&text);
        return SOL_OK;
    }
    e = calloc(1, sizeof *e);
    if (!e) {
        text_buffer_free(&text);
        return status_set(SOL_E_MEMORY, "no memory for a schema");
    }
    *e = (struct schema_entry){.text = text.data, .length = text.length, .hash = hash};
    enum sol_status status = compile(schema, trie, e);
    if (status != SOL_OK) {
        entry_destroy(e);
        return status;
    }
    /* Another thread may have made the same meanwhile: there are two then, until they are old. */
    pthread_mutex_lock(&cache->mutex);
    hold_entry(cache, e, out);
    trim(cache);
    pthread_mutex_unlock(&cache->mutex);
    return SOL_OK;
}

void schema_cache_release(struct schema_cache *cache, struct schema_hold *hold)
{
    if (!hold->entry) return;
    pthread_mutex_lock(&cache->mutex);
    hold->entry->holds--;
    trim(cache);
    pthread_mutex_unlock(&cache->mutex);
    *hold = (struct schema_hold){0};
}
