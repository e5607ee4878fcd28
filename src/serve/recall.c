#include "serve/recall.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/bytes_hash.h"
#include "base/memory.h"

enum { BUCKETS = 4096 };

struct entry {
    struct entry *next;          /* in its bucket */
    struct entry *newer, *older; /* by use */
    size_t key_length, length;   /* of `bytes`: the key, then the text */
    uint64_t hash, salt;
    char kind;
    char bytes[];
};

struct recall {
    pthread_mutex_t mutex;
    size_t bytes, most;
    struct entry *newest, *oldest;
    struct entry *buckets[BUCKETS];
};

enum sol_status recall_create(size_t bytes, struct recall **out)
{
    *out = NULL;
    struct recall *recall = calloc(1, sizeof *recall);
    if (!recall) return status_set(SOL_E_MEMORY, "no memory for what is remembered of tools");
    pthread_mutex_init(&recall->mutex, NULL);
    recall->most = bytes;
    *out = recall;
    return SOL_OK;
}

void recall_destroy(struct recall *recall)
{
    if (!recall) return;
    for (struct entry *e = recall->newest, *older; e; e = older) {
        older = e->older;
        free(e);
    }
    pthread_mutex_destroy(&recall->mutex);
    free(recall);
}

static size_t cost(const struct entry *e)
{
    return sizeof *e + e->key_length + e->length;
}

/* ---- the list by use ---- */

static void unlink_use(struct recall *recall, struct entry *e)
{
    *(e->newer ? &e->newer->older : &recall->newest) = e->older;
    *(e->older ? &e->older->newer : &recall->oldest) = e->newer;
}

static void link_newest(struct recall *recall, struct entry *e)
{
    e->newer = NULL;
    e->older = recall->newest;
    *(recall->newest ? &recall->newest->newer : &recall->oldest) = e;
    recall->newest = e;
}

/* ---- the table ---- */

static uint64_t hash_of(char kind, uint64_t salt, struct chat_text key)
{
    return bytes_hash_mix(bytes_hash(key.data, key.length) ^ salt ^ (uint64_t)(unsigned char)kind);
}

/* Where the pointer to the entry is; to NULL where there is none. */
static struct entry **find(struct recall *recall, char kind, uint64_t salt, struct chat_text key)
{
    uint64_t hash = hash_of(kind, salt, key);
    struct entry **at = &recall->buckets[hash % BUCKETS];
    for (; *at; at = &(*at)->next)
        if ((*at)->hash == hash && (*at)->salt == salt && (*at)->kind == kind &&
            (*at)->key_length == key.length && memcmp((*at)->bytes, key.data, key.length) == 0)
            break;
    return at;
}

static void drop(struct recall *recall, struct entry **at)
{
    struct entry *e = *at;
    *at = e->next;
    unlink_use(recall, e);
    recall->bytes -= cost(e);
    free(e);
}

static void drop_oldest(struct recall *recall)
{
    struct entry *e = recall->oldest;
    drop(recall, find(recall, e->kind, e->salt, (struct chat_text){e->bytes, e->key_length}));
}

void recall_put(struct recall *recall, char kind, uint64_t salt, struct chat_text key,
                struct chat_text text)
{
    size_t size;
    if (!size_add(sizeof(struct entry) + key.length, text.length, &size) || size > recall->most / 4)
        return;
    struct entry *e = malloc(size);
    if (!e) return;
    *e = (struct entry){.key_length = key.length,
                        .length = text.length,
                        .hash = hash_of(kind, salt, key),
                        .salt = salt,
                        .kind = kind};
    memcpy(e->bytes, key.data, key.length);
    if (text.length) memcpy(e->bytes + key.length, text.data, text.length);
    pthread_mutex_lock(&recall->mutex);
    struct entry **at = find(recall, kind, salt, key);
    if (*at) drop(recall, at);
    while (recall->bytes + size > recall->most) drop_oldest(recall);
    at = find(recall, kind, salt, key);
    e->next = NULL;
    *at = e;
    link_newest(recall, e);
    recall->bytes += size;
    pthread_mutex_unlock(&recall->mutex);
}

bool recall_get(struct recall *recall, char kind, uint64_t salt, struct chat_text key,
                struct text_buffer *to)
{
    pthread_mutex_lock(&recall->mutex);
    struct entry *e = *find(recall, kind, salt, key);
    if (e) {
        text_put(to, e->bytes + e->key_length, e->length);
        unlink_use(recall, e);
        link_newest(recall, e);
    }
    pthread_mutex_unlock(&recall->mutex);
    return e != NULL;
}
