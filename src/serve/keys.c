#include "serve/keys.h"

#include <nettle/memops.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/status.h"

enum { SECRET_MIN = 8, KEYS_MAX = 4096, NAME_MAX_BYTES = 64 };

struct entry {
    struct key key;
    uint8_t digest[SHA256_DIGEST_SIZE]; /* of the secret, which is not kept */
};

struct key_set {
    struct entry *at;
    size_t n, room;
};

static void digest_of(const char *secret, size_t length, uint8_t digest[SHA256_DIGEST_SIZE])
{
    struct sha256_ctx context;
    sha256_init(&context);
    sha256_update(&context, length, (const uint8_t *)secret);
    sha256_digest(&context, SHA256_DIGEST_SIZE, digest);
}

/* A digest of the digest: who reads it where it is stored learns nothing to ask with. */
static void name_owner(struct entry *e)
{
    char own[sizeof e->digest + 5] = "owner";
    uint8_t digest[SHA256_DIGEST_SIZE];
    memcpy(own + 5, e->digest, sizeof e->digest);
    digest_of(own, sizeof own, digest);
    for (size_t i = 0; i < sizeof e->key.owner / 2; i++)
        snprintf(e->key.owner + 2 * i, 3, "%02x", digest[i]);
}

static uint64_t random_salt(size_t i)
{
    uint64_t salt;
    if (getrandom(&salt, sizeof salt, 0) != sizeof salt) salt = clock_ns();
    return salt ^ (i + 1);
}

static enum sol_status add(struct key_set *k, const char *name, size_t name_length,
                           const char *secret, size_t length, const char *what, size_t line)
{
    if (length < SECRET_MIN)
        return status_set(SOL_E_FORMAT, "%s, line %zu: a key has %d characters or more", what, line,
                          SECRET_MIN);
    if (name_length > NAME_MAX_BYTES || k->n == KEYS_MAX)
        return status_set(SOL_E_FORMAT,
                          "%s, line %zu: at most %d keys, with names of at most %d bytes", what,
                          line, KEYS_MAX, NAME_MAX_BYTES);
    if (k->n == k->room) {
        size_t room = k->room ? 2 * k->room : 8;
        struct entry *more = realloc(k->at, room * sizeof *more);
        if (!more) return status_set(SOL_E_MEMORY, "no memory for keys");
        k->at = more;
        k->room = room;
    }
    struct entry *e = &k->at[k->n];
    char number[32];
    snprintf(number, sizeof number, "key%zu", k->n + 1);
    char *own = name_length ? strndup(name, name_length) : strdup(number);
    if (!own) return status_set(SOL_E_MEMORY, "no memory for keys");
    *e = (struct entry){.key = {own, k->n + 1, random_salt(k->n), ""}};
    digest_of(secret, length, e->digest);
    name_owner(e);
    k->n++;
    for (size_t i = 0; i + 1 < k->n; i++)
        if (strcmp(k->at[i].key.name, own) == 0 ||
            memcmp(k->at[i].digest, e->digest, sizeof e->digest) == 0)
            return status_set(SOL_E_FORMAT, "%s, line %zu: a name or key that was there before",
                              what, line);
    return SOL_OK;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* One or two words, then nothing or a comment. */
static enum sol_status parse_line(struct key_set *k, const char *text, size_t length,
                                  const char *what, size_t line)
{
    const char *word[3];
    size_t size[3], n = 0;
    for (size_t i = 0; i < length && text[i] != '#' && n < 3;) {
        while (i < length && is_blank(text[i])) i++;
        size_t begin = i;
        while (i < length && !is_blank(text[i]) && !(text[i] == '#' && i == begin)) i++;
        if (i == begin) break;
        word[n] = text + begin;
        size[n++] = i - begin;
    }
    if (!n) return SOL_OK;
    if (n == 3)
        return status_set(SOL_E_FORMAT, "%s, line %zu: a key, or a name and a key, not more words",
                          what, line);
    return add(k, n == 2 ? word[0] : "", n == 2 ? size[0] : 0, word[n - 1], size[n - 1], what,
               line);
}

enum sol_status key_set_parse(const char *text, size_t length, const char *what,
                              struct key_set **out)
{
    *out = NULL;
    struct key_set *k = calloc(1, sizeof *k);
    if (!k) return status_set(SOL_E_MEMORY, "no memory for keys");
    enum sol_status status = SOL_OK;
    size_t line = 0;
    for (size_t at = 0; at < length && status == SOL_OK;) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t n = end ? (size_t)(end - text) - at : length - at;
        status = parse_line(k, text + at, n, what, ++line);
        at += n + 1;
    }
    if (status == SOL_OK && !k->n)
        status =
            status_set(SOL_E_FORMAT, "%s has no key: a line each, \"KEY\" or \"NAME KEY\"", what);
    if (status != SOL_OK) {
        key_set_destroy(k);
        return status;
    }
    *out = k;
    return SOL_OK;
}

void key_set_destroy(struct key_set *k)
{
    if (!k) return;
    for (size_t i = 0; i < k->n; i++) free((void *)(uintptr_t)k->at[i].key.name);
    free(k->at);
    free(k);
}

const struct key *key_set_find(const struct key_set *k, const char *secret)
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    const struct key *found = NULL;
    digest_of(secret, strlen(secret), digest);
    for (size_t i = 0; i < k->n; i++)
        if (memeql_sec(k->at[i].digest, digest, sizeof digest)) found = &k->at[i].key;
    return found;
}

const struct key *key_of_everybody(void)
{
    static const struct key everybody = {"everybody", 0, 0, ""};
    return &everybody;
}
