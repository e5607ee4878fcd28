/* Lets scripts drive grammars (tools/structured_check.py, bench/structured_vs_llguidance.py).
 *
 * usage: structured_driver VOCABULARY [none]     ("none": no white space in the JSON)
 *
 * Reads a command a line, and answers with a line each:
 *   S schema     compiles it and begins a text      ok NANOSECONDS BYTES | STATUS message
 *   R            begins another text                ok
 *   T id         goes on by a token                 ok | no
 *   V hex        is this a whole text?              yes | no POSITION | unfinished
 *   F            what must follow                   hex bytes, or -
 *   A            may it end, must it end            1 0
 *   M            the mask                           NANOSECONDS, then the mask's bytes
 *   C            forgets the masks that it kept     ok
 * At the start it says: words of a mask, nanoseconds and bytes of the vocabulary's tree. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "grammar/matcher.h"
#include "grammar/token_trie.h"
#include "tok/tokenizer.h"

struct driver {
    struct tokenizer *tokenizer;
    struct token_trie *trie;
    enum grammar_space space;
    struct grammar *grammar;
    struct matcher *matcher;
    struct mask_cache *cache;
    uint32_t *mask;
};

/* Of this thread's processor, so that what else the machine does hardly counts. */
static uint64_t processor_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int hex(char c)
{
    return c <= '9' ? c - '0' : (c | 32) - 'a' + 10;
}

static void begin(struct driver *d)
{
    matcher_destroy(d->matcher);
    d->matcher = NULL;
    if (d->grammar && matcher_create(d->grammar, &d->matcher) != SOL_OK) exit(1);
}

static void forget(struct driver *d)
{
    mask_cache_destroy(d->cache);
    if (mask_cache_create(d->trie, &d->cache) != SOL_OK) exit(1);
}

static void compile(struct driver *d, const char *text)
{
    json_error_t error;
    json_t *schema = json_loads(text, JSON_DECODE_ANY, &error);
    matcher_destroy(d->matcher);
    grammar_destroy(d->grammar);
    d->matcher = NULL;
    d->grammar = NULL;
    if (!schema) {
        printf("json %s\n", error.text);
        return;
    }
    uint64_t start = processor_ns();
    enum sol_status status = grammar_from_schema(schema, d->space, &d->grammar);
    uint64_t took = processor_ns() - start;
    json_decref(schema);
    if (status == SOL_OK)
        printf("ok %llu %zu\n", (unsigned long long)took, grammar_bytes(d->grammar));
    else
        printf("%s %s\n", sol_status_name(status), sol_last_error());
    begin(d);
    forget(d);
}

static void check_text(struct driver *d, const char *text)
{
    size_t n = strlen(text) / 2;
    begin(d);
    for (size_t i = 0; i < n; i++) {
        char byte = (char)(hex(text[2 * i]) << 4 | hex(text[2 * i + 1]));
        if (matcher_advance(d->matcher, &byte, 1) == SOL_OK) continue;
        printf("no %zu\n", i);
        return;
    }
    puts(matcher_accepts(d->matcher) ? "yes" : "unfinished");
}

static void forced(struct driver *d)
{
    char out[256];
    size_t n = matcher_forced(d->matcher, out, sizeof out);
    for (size_t i = 0; i < n; i++) printf("%02x", (unsigned char)out[i]);
    puts(n ? "" : "-");
}

static void mask(struct driver *d)
{
    uint64_t start = processor_ns();
    if (matcher_mask(d->matcher, d->trie, d->cache, d->mask) != SOL_OK) exit(1);
    printf("%llu\n", (unsigned long long)(processor_ns() - start));
    fwrite(d->mask, sizeof *d->mask, token_trie_words(d->trie), stdout);
}

static void obey(struct driver *d, const char *line)
{
    if (line[0] == 'S') {
        compile(d, line + 2);
    } else if (line[0] == 'C') {
        forget(d);
        puts("ok");
    } else if (!d->matcher) {
        puts("no grammar");
    } else if (line[0] == 'R') {
        begin(d);
        puts("ok");
    } else if (line[0] == 'T') {
        puts(matcher_token(d->matcher, d->trie, atoi(line + 2)) == SOL_OK ? "ok" : "no");
    } else if (line[0] == 'V') {
        check_text(d, line + 2);
    } else if (line[0] == 'F') {
        forced(d);
    } else if (line[0] == 'A') {
        printf("%d %d\n", matcher_accepts(d->matcher), matcher_ended(d->matcher));
    } else if (line[0] == 'M') {
        mask(d);
    } else {
        puts("no such command");
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct driver d = {.space = GRAMMAR_SPACE_ONE};
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    if (argc < 2 || tokenizer_open(argv[1], &d.tokenizer) != SOL_OK) {
        fprintf(stderr, "structured_driver: %s\n", argc < 2 ? "no vocabulary" : sol_last_error());
        return 1;
    }
    if (argc > 2 && strcmp(argv[2], "none") == 0) d.space = GRAMMAR_SPACE_NONE;
    uint64_t start = processor_ns();
    if (token_trie_create(d.tokenizer, 0, &d.trie) != SOL_OK) return 1;
    uint64_t took = processor_ns() - start;
    d.mask = calloc(token_trie_words(d.trie) + 1, sizeof *d.mask);
    if (!d.mask || mask_cache_create(d.trie, &d.cache) != SOL_OK) return 1;
    printf("%zu %llu %zu\n", token_trie_words(d.trie), (unsigned long long)took,
           token_trie_memory(d.trie));
    fflush(stdout);
    while ((n = getline(&line, &capacity, stdin)) > 0) {
        if (line[n - 1] == '\n') line[n - 1] = 0;
        obey(&d, line);
    }
    free(line);
    free(d.mask);
    matcher_destroy(d.matcher);
    grammar_destroy(d.grammar);
    mask_cache_destroy(d.cache);
    token_trie_destroy(d.trie);
    tokenizer_destroy(d.tokenizer);
    return 0;
}
