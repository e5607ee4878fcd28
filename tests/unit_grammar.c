/* Grammars: which texts schemas, patterns and bounds let through, and that masks of tokens say the
 * same as trying each token. What others make of the same schemas: tools/structured_check.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "grammar/matcher.h"
#include "grammar/number.h"
#include "grammar/regex.h"
#include "support/effort.h"

static struct grammar *compile(const char *text, enum grammar_space space)
{
    struct grammar *grammar;
    json_error_t error;
    json_t *schema = json_loads(text, JSON_DECODE_ANY, &error);
    if (!schema) fail_msg("%s: %s", text, error.text);
    if (grammar_from_schema(schema, space, &grammar) != SOL_OK)
        fail_msg("%s: %s", text, sol_last_error());
    json_decref(schema);
    return grammar;
}

static bool matches(const struct grammar *grammar, const char *text)
{
    struct matcher *m;
    assert_int_equal(matcher_create(grammar, &m), SOL_OK);
    bool whole = matcher_advance(m, text, strlen(text)) == SOL_OK && matcher_accepts(m);
    matcher_destroy(m);
    return whole;
}

/* ---- schemas ---- */

struct schema_case {
    const char *schema;
    const char *texts[12]; /* those that begin with '!' are refused */
};

#define PERSON                                                                                     \
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":"            \
    "\"integer\"},"                                                                                \
    "\"c\":{\"type\":\"null\"}},\"required\":[\"b\"],\"additionalProperties\":false}"

static const struct schema_case cases[] = {
    {PERSON,
     {"{\"a\":\"x\",\"b\":1,\"c\":null}", "{\"b\":1}", "{\"a\": \"\", \"b\": -7}", "!{}",
      "!{\"b\":1,\"a\":\"x\"}", "!{\"a\":\"x\"}", "!{\"b\":1,}", "!{\"b\":1.0}", "!{ \"b\":1}",
      "!{\"b\":1,\"d\":2}", "!{\"b\":1}x"}},
    {"{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"integer\"}}}",
     {"{}", "{\"ab\":1}", "{\"ab\":1,\"abc\":[1,{}]}", "{\"a\":\"x\"}", "!{\"ab\":\"x\"}",
      "!{\"x\":1,\"ab\":1}", "{\"\":true}", "!{\"a\\u0062\":1}", "{\"\\\"\":1,\"\\u0001\":2}"}},
    {"{\"type\":\"object\",\"required\":[\"x\"],\"additionalProperties\":{\"type\":\"boolean\"}}",
     {"{\"x\":true}", "{\"x\":false,\"y\":true}", "!{}", "!{\"y\":true}", "!{\"x\":1}"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
     {"[1,2]", "[1, 2, 3]", "![1]", "![1,2,3,4]", "![]", "![1,2,]"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"maxItems\":"
     "1},"
     "\"minItems\":3}",
     {"[[],[null],[]]", "[[],[],[],[]]", "![[],[]]", "![[null,null],[],[]]"}},
    {"{\"type\":\"array\",\"items\":false}", {"[]", "![1]", "![null]"}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"\xc3\xa4\xe2\x82\xac\"", "\"\\n\\u00e4b\"", "\"\\ud83d\\ude00x\"", "!\"a\"",
      "!\"abcd\"", "!\"\\ud83d\\ude00\"", "!\"\\ud83dx\"", "!\"a\nb\"", "!\"\xc3\""}},
    {"{\"type\":\"string\",\"pattern\":\"^a+b?$\",\"maxLength\":3}",
     {"\"aab\"", "\"a\"", "!\"aaab\"", "!\"b\"", "!\"aabc\""}},
    {"{\"type\":\"string\",\"pattern\":\"an|\\u00e4.[0-9]\"}", /* any text before and behind */
     {"\"banana\"",
      "\"x\xc3\xa4\xe2\x82\xac"
      "7y\"",
      "!\"\"", "!\"a n\"", "!\"\xc3\xa4\xc3\xa4\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[^x]*y\"}", /* until an x that is too early */
     {"\"\xc3\xa4y\"", "\"abyx\"", "!\"ab\"", "!\"xy\""}},
    {"{\"enum\":[\"a\",\"ab\",1,12,1.5,null,{\"k\":[1,2]},\"\\\"\\n\"]}",
     {"\"a\"", "\"ab\"", "1", "12", "1.5", "null", "{\"k\": [1, 2]}", "\"\\\"\\n\"", "!\"b\"", "!2",
      "!1.50"}},
    {"{\"type\":\"integer\",\"enum\":[1,\"x\",2.5]}", {"1", "!\"x\"", "!2.5"}},
    {"{\"enum\":[\"a\",\"bb\",\"\\u00e4\\u00e4\",3,4,null],\"minLength\":2,\"exclusiveMinimum\":3}",
     {"\"bb\"", "\"\xc3\xa4\xc3\xa4\"", "4", "null", "!\"a\"", "!3"}},
    {"{\"enum\":[\"a\",\"b1\"],\"pattern\":\"[0-9]$\"}", {"\"b1\"", "!\"a\""}},
    {"{\"const\":{\"a\":{}}}", {"{\"a\":{}}", "!{}"}},
    {"{\"type\":[\"string\",\"null\"]}", {"\"\"", "null", "!1", "!nul"}},
    {"{\"type\":\"string\",\"nullable\":true}", {"\"\"", "null"}},
    {"{\"type\":\"number\"}", {"-0.5e+10", "0", "1E5", "!01", "!.5", "!1.", "!+1", "!NaN"}},
    {"{\"type\":\"number\",\"minimum\":0}", {"0", "0.0", "0.5", "!-0", "!-0.0", "!-1"}},
    {"{\"type\":\"number\",\"exclusiveMaximum\":0}", {"-1", "-0.01", "!-0", "!-0.0", "!0"}},
    {"{\"type\":\"number\",\"minimum\":-2,\"maximum\":0}", {"-0", "0", "-2.0", "!-2.1", "!0.1"}},
    {"{\"type\":\"number\",\"minimum\":1e-3,\"maximum\":1e3}",
     {"0.001", "1000.0", "!0.0009", "!1000.1", "!1e2"}},
    {"{\"type\":\"number\",\"multipleOf\":0.25}", {"0.25", "-1.5", "7", "!0.3", "!0.125"}},
    {"true", {"{\"a\":[{},[],\"\",-1.5,true]}", "null", "!", "!{\"a\"}", "!{a:1}"}},
    {"{\"$ref\":\"#/$defs/list\",\"$defs\":{\"list\":{\"type\":\"object\",\"properties\":{\"v\":"
     "{\"type\":\"integer\"},\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/"
     "list\"},{\"type\":\"null\"}]}},"
     "\"required\":[\"v\",\"next\"],\"additionalProperties\":false}}}",
     {"{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}",
      "!{\"v\":1,\"next\":{}}", "!{\"v\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"t\":{\"$ref\":\"#/properties/a~1b%25\"},\"a/"
     "b%\":{\"const\":"
     "1}}}",
     {"{\"t\":1,\"a/b%\":1}", "!{\"t\":2}"}},
    {"{\"anyOf\":[{\"type\":\"array\",\"items\":{\"type\":\"integer\"}},{\"type\":\"array\","
     "\"items\":{"
     "\"type\":\"number\"}},{\"const\":[true]}]}",
     {"[1,2]", "[1,2.5]", "[true]", "![true,1]", "[]"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
     "\"integer\"}},"
     "\"additionalProperties\":false,\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
     {"{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":2}", "!{}"}},
    {"{\"allOf\":[{\"$ref\":\"#/definitions/x\"},{\"minimum\":3}],\"definitions\":{\"x\":{\"type\":"
     "\"integer\",\"maximum\":5}}}",
     {"3", "5", "!2", "!6"}},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", {"1", "\"\"", "!null"}},
    {"{\"type\":\"string\",\"format\":\"date\"}",
     {"\"2024-02-29\"", "\"2000-02-29\"", "!\"2023-02-29\"", "!\"1900-02-29\"", "!\"2024-04-31\"",
      "!\"0000-01-01\"", "\"0001-12-31\"", "!\"2024-13-01\""}},
    {"{\"type\":\"string\",\"format\":\"date-time\"}",
     {"\"2024-02-29T23:59:59Z\"", "\"2024-01-01T00:00:00.5+02:00\"", "!\"2024-01-01T24:00:00Z\"",
      "!\"2024-01-01T00:00:00\""}},
    {"{\"type\":\"string\",\"format\":\"ipv6\"}",
     {"\"::\"", "\"1::8\"", "\"2001:db8::1.2.3.4\"", "\"1:2:3:4:5:6:7:8\"", "!\"1:2\"",
      "!\"1::2::3\"", "!\"1:2:3:4:5:6:7:8:9\""}},
    {"{\"type\":\"string\",\"format\":\"ipv4\"}",
     {"\"255.0.10.9\"", "!\"256.1.1.1\"", "!\"01.1.1.1\""}},
    {"{\"type\":\"string\",\"format\":\"uuid\"}",
     {"\"123e4567-e89b-12d3-a456-426614174000\"", "!\"123e4567e89b12d3a456426614174000\""}},
    {"{\"type\":\"string\",\"format\":\"duration\"}",
     {"\"P1DT2H\"", "\"P3W\"", "!\"P\"", "!\"PT\""}},
    {"{\"type\":\"string\",\"format\":\"email\"}", {"\"a.b@c.de\"", "!\"a@\"", "!\"a..b@c\""}},
};

static void test_schemas(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grammar *grammar = compile(cases[i].schema, GRAMMAR_SPACE_ONE);
        for (size_t j = 0; j < 12 && cases[i].texts[j]; j++) {
            const char *text = cases[i].texts[j];
            bool wanted = *text != '!';
            if (matches(grammar, text + !wanted) != wanted)
                fail_msg("%s: %s", cases[i].schema, text);
        }
        grammar_destroy(grammar);
    }
    struct grammar *tight = compile(PERSON, GRAMMAR_SPACE_NONE);
    assert_true(matches(tight, "{\"a\":\"x y\",\"b\":1}"));
    assert_false(matches(tight, "{\"a\": \"x\",\"b\":1}"));
    assert_false(matches(tight, "{\"a\":\"x\", \"b\":1}"));
    grammar_destroy(tight);
}

/* ---- what is refused ---- */

static const struct {
    const char *schema, *begins;
    enum sol_status status;
} refusals[] = {
    {"{\"properties\":{\"a/b\":{\"not\":{\"type\":\"null\"}}}}",
     "#/properties/a~1b/not: ", SOL_E_UNSUPPORTED},
    {"{\"type\":\"array\",\"items\":{\"type\":\"array\",\"uniqueItems\":true}}",
     "#/items/uniqueItems: ", SOL_E_UNSUPPORTED},
    {"{\"patternProperties\":{\"x\":{\"type\":\"null\"}}}",
     "#/patternProperties: ", SOL_E_UNSUPPORTED},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "#/oneOf: ", SOL_E_UNSUPPORTED},
    {"{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"string\",\"format\":\"color\"}]}",
     "#/anyOf/1/format: ", SOL_E_UNSUPPORTED},
    {"{\"type\":\"string\",\"pattern\":\"a(?=b)\"}", "#/pattern: ", SOL_E_UNSUPPORTED},
    {"{\"type\":\"string\",\"pattern\":\"(a\"}", "#/pattern: ", SOL_E_FORMAT},
    {"{\"type\":\"string\",\"pattern\":\"(a{1,1000}){1,1000}\"}", "#/pattern: ", SOL_E_UNSUPPORTED},
    {"{\"type\":\"string\",\"pattern\":\"(){1000000000}(){1000000000}\"}",
     "#/pattern: ", SOL_E_UNSUPPORTED},
    {"{\"type\":\"string\",\"pattern\":\"(a|b)*a(a|b){30}$\"}", "#/pattern: ", SOL_E_UNSUPPORTED},
    {"{\"enum\":[[1]],\"minItems\":2}", "#: ", SOL_E_UNSUPPORTED},
    {"{\"$ref\":\"#/$defs/x\"}", "#/$ref: ", SOL_E_FORMAT},
    {"{\"$ref\":\"http://example.com/x\"}", "#/$ref: ", SOL_E_UNSUPPORTED},
    {"{\"$ref\":\"#\"}", "#: ", SOL_E_UNSUPPORTED},
    {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "#: ", SOL_E_UNSUPPORTED},
    {"{\"type\":\"array\",\"minItems\":1,\"items\":{\"$ref\":\"#\"}}", "#: ", SOL_E_FORMAT},
    {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "#: ", SOL_E_FORMAT},
    {"{\"type\":\"text\"}", "#/type: ", SOL_E_FORMAT},
    {"{\"type\":\"object\",\"properties\":[]}", "#/properties: ", SOL_E_FORMAT},
    {"{\"anyOf\":[]}", "#/anyOf: ", SOL_E_FORMAT},
    {"{\"type\":\"string\",\"minLength\":-1}", "#: ", SOL_E_FORMAT},
    {"{\"type\":\"number\",\"multipleOf\":0}", "#: ", SOL_E_FORMAT},
    {"{\"properties\":{\"a\":3}}", "#/properties/a: ", SOL_E_FORMAT},
    {"false", "#: ", SOL_E_FORMAT},
    {"3", "#: ", SOL_E_FORMAT},
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct grammar *grammar = (void *)1;
        json_t *schema = json_loads(refusals[i].schema, JSON_DECODE_ANY, NULL);
        assert_non_null(schema);
        enum sol_status status = grammar_from_schema(schema, GRAMMAR_SPACE_ONE, &grammar);
        json_decref(schema);
        if (status != refusals[i].status || grammar ||
            strncmp(sol_last_error(), refusals[i].begins, strlen(refusals[i].begins)) != 0)
            fail_msg("%s: %s: %s", refusals[i].schema, sol_status_name(status), sol_last_error());
    }
}

/* Schemas in schemas: up to the limit, and one more. */
static void test_nesting(void **state)
{
    (void)state;
    for (int depth = GRAMMAR_NESTING_MAX - 2; depth < 2000; depth += 3) {
        json_t *schema = json_pack("{s:s}", "type", "null");
        struct grammar *grammar;
        for (int i = 0; i < depth; i++)
            schema = json_pack("{s:s, s:o}", "type", "array", "items", schema);
        enum sol_status status = grammar_from_schema(schema, GRAMMAR_SPACE_ONE, &grammar);
        assert_int_equal(status, depth < GRAMMAR_NESTING_MAX ? SOL_OK : SOL_E_UNSUPPORTED);
        grammar_destroy(grammar);
        json_decref(schema);
    }
}

/* A text of what contains itself ends within the limit, whoever writes it. */
static void test_depth(void **state)
{
    (void)state;
    struct grammar *grammar = compile("{\"type\":\"array\"}", GRAMMAR_SPACE_ONE);
    struct matcher *m;
    int depth = 0;
    assert_int_equal(matcher_create(grammar, &m), SOL_OK);
    while (matcher_advance(m, "[", 1) == SOL_OK) depth++;
    assert_true(depth > 32 && depth <= 66);
    for (int i = 0; i < depth; i++) assert_int_equal(matcher_advance(m, "]", 1), SOL_OK);
    assert_true(matcher_accepts(m) && matcher_ended(m));
    matcher_destroy(m);
    grammar_destroy(grammar);
}

/* ---- patterns ---- */

static const struct {
    const char *pattern;
    const char *texts[8]; /* '!': refused */
} patterns[] = {
    {"b", {"b", "abc", "!", "!ac"}},
    {"^b", {"bc", "!ab"}},
    {"b$", {"ab", "!bc"}},
    {"^$", {"", "!a"}},
    {"^(a|^b)c|d$", {"ac", "bcx", "xd", "!xac"}},
    {"^[^a-c\\d]+$", {"xyz", "!xay", "!x1", "\\n", "\xc3\xa4"}},
    {"^\\w+\\s\\S$", {"a_1 x", "!a x y", "a\\tx"}},
    {"^a{2,3}b{2}c{1,}?$", {"aabbc", "aaabbccc", "!abbc", "!aaaabbc", "!aabc"}},
    {"^a{,2}$", {"a{,2}", "!aa"}},
    {"^\\u00e4\\x41\\u{1f600}$",
     {"\xc3\xa4"
      "A\xf0\x9f\x98\x80",
      "!\xc3\xa4"
      "a\xf0\x9f\x98\x80"}},
    {"^.$", {"x", "\xe2\x82\xac", "!\\n", "\\\"", "\\\\", "!\\u000d", "\\u0001"}},
    {"^[\\w.-]+$", {"a-b.c", "!a b"}},
    {"^[]$", {"!", "!a"}},
    {"^(?:(?<n>a)|(b))*$", {"", "abba", "!c"}},
    {"^(a*)*b$", {"b", "aaab", "!aaa"}},
};

static void test_patterns(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        struct dfa dfa;
        if (regex_compile(patterns[i].pattern, strlen(patterns[i].pattern), NULL, &dfa) != SOL_OK)
            fail_msg("%s: %s", patterns[i].pattern, sol_last_error());
        for (size_t j = 0; j < 8 && patterns[i].texts[j]; j++) {
            const char *text = patterns[i].texts[j];
            bool wanted = *text != '!';
            if (dfa_matches(&dfa, text + !wanted, strlen(text) - !wanted) != wanted)
                fail_msg("%s: %s", patterns[i].pattern, text);
        }
        dfa_free(&dfa);
    }
}

/* ---- numbers ---- */

/* n / 100 as text, with as many digits behind the point as `digits` says. */
static void decimal_text(int64_t n, int digits, char text[40])
{
    int64_t size = n < 0 ? -n : n;
    int length = snprintf(text, 40, "%s%lld.%02lld", n < 0 ? "-" : "", (long long)(size / 100),
                          (long long)(size % 100));
    text[digits == 0 ? length - 3 : length - 2 + digits] = 0;
}

/* Bounds and multiples in hundredths, against the comparison of integers. */
static void test_numbers(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 7);
    int rounds = (int)effort("bounds of numbers", 300, 20);
    for (int round = 0; round < rounds; round++) {
        int64_t scale = round % 3 == 0 ? 20 : round % 3 == 1 ? 1500 : 130000;
        int64_t low = rng_range(&rng, -scale, scale), high = rng_range(&rng, low, scale);
        int64_t multiple = rng_range(&rng, 0, 3) ? 0 : rng_range(&rng, 1, 300);
        bool integer = rng_range(&rng, 0, 1), open_low = rng_range(&rng, 0, 1);
        bool open_high = rng_range(&rng, 0, 1), no_low = !rng_range(&rng, 0, 3);
        bool no_high = !rng_range(&rng, 0, 3);
        char text[40];
        decimal_text(low, 2, text);
        json_t *a = json_real(strtod(text, NULL));
        decimal_text(high, 2, text);
        json_t *b = json_real(strtod(text, NULL)), *m = json_real((double)multiple / 100);
        struct number_rules rules = {.integer = integer,
                                     .low = {no_low ? NULL : a, open_low},
                                     .high = {no_high ? NULL : b, open_high},
                                     .multiple = multiple ? m : NULL};
        struct dfa dfa;
        if (number_compile(&rules, &dfa) != SOL_OK) fail_msg("%s", sol_last_error());
        bool free_number = no_low && no_high && !multiple;
        for (int i = 0; i < 200; i++) {
            int64_t n =
                i < 12 ? (i < 6 ? low : high) + i % 6 - 2 : rng_range(&rng, -2 * scale, 2 * scale);
            int digits = n % 100 == 0 ? (int)rng_range(&rng, 0, 2) : n % 10 == 0 ? 1 : 2;
            decimal_text(n, digits, text);
            bool wanted = (no_low || n > low || (n == low && !open_low)) &&
                          (no_high || n < high || (n == high && !open_high)) &&
                          (!multiple || n % multiple == 0) && !(integer && digits);
            if (n == 0 || (multiple && digits == 2 && n % 10 == 0))
                continue; /* spellings of 0, .x0 */
            if (multiple && digits == 1 && n % 100 == 0) continue;
            if (dfa_matches(&dfa, text, strlen(text)) != wanted)
                fail_msg(
                    "%s: low %lld%s high %lld%s multiple %lld (hundredths), integer %d, free %d",
                    text, (long long)low, no_low ? " none" : "", (long long)high,
                    no_high ? " none" : "", (long long)multiple, integer, free_number);
        }
        dfa_free(&dfa);
        json_decref(a);
        json_decref(b);
        json_decref(m);
    }
}

/* ---- tokens ---- */

static struct tokenizer *tokenizer;
static struct token_trie *trie;

static int open_vocabulary(void **state)
{
    (void)state;
    if (tokenizer_open(SOL_SOURCE_DIR "/models/builtin.gguf", &tokenizer) != SOL_OK) return -1;
    return token_trie_create(tokenizer, 0, &trie) == SOL_OK ? 0 : -1;
}

static int close_vocabulary(void **state)
{
    (void)state;
    token_trie_destroy(trie);
    tokenizer_destroy(tokenizer);
    return 0;
}

static bool has(const uint32_t *mask, int32_t id)
{
    return mask[id / 32] >> id % 32 & 1;
}

/* Every token is tried; the matcher is left where it was. */
static void check_mask(struct matcher *m, const uint32_t *mask, const char *schema)
{
    for (int32_t id = 0; id < tokenizer_vocab(tokenizer); id++) {
        bool legal = matcher_token(m, trie, id) == SOL_OK;
        if (legal) assert_int_equal(matcher_rollback(m, 1), SOL_OK);
        if (legal != has(mask, id)) {
            struct token_bytes bytes = tokenizer_bytes(tokenizer, id);
            fail_msg("%s: token %d '%.*s' is %slegal", schema, id, (int)bytes.length, bytes.data,
                     legal ? "" : "not ");
        }
    }
}

/* A token of the mask; now and then one that ends something. */
static int32_t draw(const uint32_t *mask, struct rng *rng)
{
    static const char *const ends[] = {"\"", "}", "]", "1", ",", ":"};
    if (rng_range(rng, 0, 2) == 0) {
        int32_t id = tokenizer_find(tokenizer, ends[rng_range(rng, 0, 5)]);
        if (id >= 0 && has(mask, id)) return id;
    }
    int32_t vocab = tokenizer_vocab(tokenizer), at = (int32_t)rng_range(rng, 0, vocab - 1);
    for (int32_t i = 0; i < vocab; i++)
        if (has(mask, (at + i) % vocab)) return (at + i) % vocab;
    return -1;
}

/* Random texts: masks are those of trying, with and without the cache; no dead end; what ends is
 * JSON. */
static void walk(const struct grammar *grammar, const char *schema, struct mask_cache *cache,
                 struct rng *rng, int steps)
{
    size_t words = token_trie_words(trie), length = 0;
    uint32_t *mask = calloc(words, sizeof *mask), *again = calloc(words, sizeof *again);
    char text[16384];
    struct matcher *m, *copy;
    assert_int_equal(matcher_create(grammar, &m), SOL_OK);
    for (int step = 0; step < steps && !matcher_ended(m) && length < sizeof text - 2048; step++) {
        assert_int_equal(matcher_mask(m, trie, NULL, mask), SOL_OK);
        assert_int_equal(matcher_mask(m, trie, cache, again), SOL_OK);
        assert_memory_equal(mask, again, words * sizeof *mask);
        if (step % 8 < 2) check_mask(m, mask, schema);
        int32_t id = draw(mask, rng);
        if (id < 0 && matcher_accepts(m)) break;
        if (id < 0) fail_msg("%s: a dead end after %.*s", schema, (int)length, text);
        assert_int_equal(matcher_copy(m, &copy), SOL_OK);
        assert_int_equal(matcher_token(copy, trie, id), SOL_OK);
        matcher_destroy(m);
        m = copy;
        struct token_bytes bytes = tokenizer_bytes(tokenizer, id);
        memcpy(text + length, bytes.data, bytes.length);
        length += bytes.length;
    }
    if (matcher_accepts(m)) {
        json_error_t error;
        json_t *value = json_loadb(text, length, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
        /* Numbers beyond a double are JSON too. */
        if (!value && json_error_code(&error) != json_error_numeric_overflow)
            fail_msg("%s: %.*s: %s", schema, (int)length, text, error.text);
        json_decref(value);
    }
    matcher_destroy(m);
    free(mask);
    free(again);
}

static void test_masks(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 11);
    int steps = (int)effort("tokens of a text", 64, 8);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grammar *grammar = compile(cases[i].schema, GRAMMAR_SPACE_ONE);
        struct mask_cache *cache;
        assert_int_equal(mask_cache_create(trie, &cache), SOL_OK);
        for (int round = 0; round < 2; round++) walk(grammar, cases[i].schema, cache, &rng, steps);
        mask_cache_destroy(cache);
        grammar_destroy(grammar);
    }
}

/* States that differ only in what was counted have masks of their own. */
static void test_cache_counts(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"abc"},
        {"{\"type\":\"array\",\"items\":{\"const\":1},\"minItems\":2,\"maxItems\":4}", "[1,1,1,1"},
    };
    size_t words = token_trie_words(trie);
    uint32_t *mask = calloc(words, sizeof *mask), *again = calloc(words, sizeof *again);
    for (size_t i = 0; i < 2; i++) {
        struct grammar *grammar = compile(texts[i][0], GRAMMAR_SPACE_NONE);
        struct mask_cache *cache;
        struct matcher *m;
        assert_int_equal(mask_cache_create(trie, &cache), SOL_OK);
        assert_int_equal(matcher_create(grammar, &m), SOL_OK);
        for (const char *c = texts[i][1]; *c; c++) {
            assert_int_equal(matcher_advance(m, c, 1), SOL_OK);
            assert_int_equal(matcher_mask(m, trie, NULL, mask), SOL_OK);
            assert_int_equal(matcher_mask(m, trie, cache, again), SOL_OK);
            assert_memory_equal(mask, again, words * sizeof *mask);
        }
        matcher_destroy(m);
        mask_cache_destroy(cache);
        grammar_destroy(grammar);
    }
    free(mask);
    free(again);
}

/* More states than the cache holds. */
static void test_cache_is_bounded(void **state)
{
    (void)state;
    const char *schema = "{\"type\":\"string\",\"pattern\":\"^(a{400}|b)$\"}";
    struct grammar *grammar = compile(schema, GRAMMAR_SPACE_ONE);
    struct mask_cache *cache;
    struct matcher *m;
    uint32_t *mask = calloc(token_trie_words(trie), sizeof *mask);
    assert_int_equal(mask_cache_create(trie, &cache), SOL_OK);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(matcher_create(grammar, &m), SOL_OK);
        assert_int_equal(matcher_advance(m, "\"", 1), SOL_OK);
        for (int i = 0; i < 400; i++) {
            assert_int_equal(matcher_mask(m, trie, cache, mask), SOL_OK);
            assert_true(has(mask, tokenizer_find(tokenizer, "a")));
            assert_int_equal(has(mask, tokenizer_find(tokenizer, "b")), i == 0);
            assert_int_equal(matcher_advance(m, "a", 1), SOL_OK);
        }
        assert_int_equal(matcher_rollback(m, MATCHER_HISTORY), SOL_OK);
        assert_int_equal(matcher_mask(m, trie, cache, mask), SOL_OK);
        assert_false(has(mask, tokenizer_find(tokenizer, "\"")));
        matcher_destroy(m);
    }
    free(mask);
    mask_cache_destroy(cache);
    grammar_destroy(grammar);
}

/* ---- llguidance's masks ---- */

static int digit_at(const char *hex, int64_t bit)
{
    int64_t at = (int64_t)strlen(hex) - 1 - bit / 4;
    char c = at >= 0 ? hex[at] : '0';
    int digit = c <= '9' ? c - '0' : c - 'a' + 10;
    return digit >> bit % 4 & 1;
}

static void follow_vector(const struct tokenizer *words, const struct token_trie *tree,
                          const json_t *vector)
{
    struct grammar *grammar;
    struct matcher *m;
    size_t i;
    json_t *step;
    uint32_t *mask = calloc(token_trie_words(tree), sizeof *mask);
    char *schema = json_dumps(json_object_get(vector, "schema"), JSON_ENCODE_ANY);
    grammar = compile(schema, GRAMMAR_SPACE_NONE);
    assert_int_equal(matcher_create(grammar, &m), SOL_OK);
    json_array_foreach(json_object_get(vector, "steps"), i, step)
    {
        const char *theirs = json_string_value(json_object_get(step, "mask"));
        const char *meant = json_string_value(json_object_get(step, "meant"));
        assert_int_equal(matcher_mask(m, tree, NULL, mask), SOL_OK);
        for (int32_t id = 0; id < tokenizer_vocab(words); id++)
            if ((digit_at(theirs, id) ^ digit_at(meant, id)) != has(mask, id))
                fail_msg("%s: step %zu: token %d", schema, i, id);
        assert_int_equal(matcher_accepts(m), json_is_true(json_object_get(step, "accepts")));
        const json_t *token = json_object_get(step, "token");
        if (token)
            assert_int_equal(matcher_token(m, tree, (int32_t)json_integer_value(token)), SOL_OK);
    }
    matcher_destroy(m);
    grammar_destroy(grammar);
    free(schema);
    free(mask);
}

/* Texts that were written under llguidance's masks (made_by in the file says how). */
static void test_vectors(void **state)
{
    (void)state;
    struct tokenizer *words;
    struct token_trie *tree;
    size_t i;
    json_t *vector,
        *file = json_load_file(SOL_SOURCE_DIR "/tests/data/structured_vectors.json", 0, NULL);
    const json_t *vectors = json_object_get(file, "vectors");
    assert_int_equal(tokenizer_open(SOL_SOURCE_DIR "/tests/data/tokenizer_small.json", &words),
                     SOL_OK);
    assert_int_equal(token_trie_create(words, 0, &tree), SOL_OK);
    assert_true(json_array_size(vectors) >= 40);
    json_array_foreach(vectors, i, vector) follow_vector(words, tree, vector);
    token_trie_destroy(tree);
    tokenizer_destroy(words);
    json_decref(file);
}

/* ---- the matcher ---- */

static void test_forced(void **state)
{
    (void)state;
    char out[64];
    struct grammar *grammar = compile(PERSON, GRAMMAR_SPACE_NONE);
    struct matcher *m;
    assert_int_equal(matcher_create(grammar, &m), SOL_OK);
    assert_int_equal(matcher_forced(m, out, sizeof out), 2);
    assert_memory_equal(out, "{\"", 2);
    assert_int_equal(matcher_advance(m, "{\"a", 3), SOL_OK);
    assert_int_equal(matcher_forced(m, out, sizeof out), 3);
    assert_memory_equal(out, "\":\"", 3);
    assert_int_equal(matcher_forced(m, out, 1), 1);
    assert_int_equal(matcher_advance(m, "\":\"x", 4), SOL_OK);
    assert_int_equal(matcher_forced(m, out, sizeof out), 0);
    assert_int_equal(matcher_advance(m, "\"", 1), SOL_OK);
    assert_int_equal(matcher_forced(m, out, sizeof out), 5);
    assert_memory_equal(out, ",\"b\":", 5);
    matcher_destroy(m);
    grammar_destroy(grammar);
}

static void test_rollback(void **state)
{
    (void)state;
    const char *text = "[[1,2],[3,4,5],\"a\"]";
    struct grammar *grammar = compile("{\"type\":\"array\",\"maxItems\":3}", GRAMMAR_SPACE_NONE);
    struct matcher *m;
    assert_int_equal(matcher_create(grammar, &m), SOL_OK);
    for (int round = 0; round < 200; round++) { /* longer than what is kept */
        for (size_t i = 0; i < strlen(text); i++) {
            assert_int_equal(matcher_advance(m, text + i, 1), SOL_OK);
            assert_int_equal(matcher_advance(m, "\x01", 1), SOL_E_ARGUMENT);
        }
        assert_true(matcher_ended(m));
        assert_int_equal(matcher_rollback(m, strlen(text)), SOL_OK);
    }
    assert_int_equal(matcher_rollback(m, 1), SOL_E_ARGUMENT);
    assert_int_equal(matcher_advance(m, text, strlen(text)), SOL_OK);
    assert_int_equal(matcher_rollback(m, 1), SOL_OK);
    assert_false(matcher_accepts(m));
    matcher_destroy(m);
    grammar_destroy(grammar);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schemas),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_cache_counts),
        cmocka_unit_test(test_cache_is_bounded),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_forced),
        cmocka_unit_test(test_rollback),
    };
    return cmocka_run_group_tests(tests, open_vocabulary, close_vocabulary);
}
