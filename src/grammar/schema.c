/* From a schema to a program. What is nested is compiled by recursion, at most GRAMMAR_NESTING_MAX
 * deep; what is referred to is a rule, compiled from a list. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes_hash.h"
#include "grammar/grammar_private.h"
#include "grammar/schema_private.h"

/* ---- keywords ---- */

/* Those that decide what a value may be, and are not served. Words that JSON Schema does not know,
 * and those that only describe, are passed over, as it demands. */
static const char *const refused[] = {
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "contains",
    "minContains",
    "maxContains",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
    "extends",
    "disallow",
    "divisibleBy",
};

/* Those that decide and are served. */
static const char *const served[] = {
    "type",     "enum",     "const",     "properties",           "required",         "items",
    "minItems", "maxItems", "minLength", "additionalProperties", "maxLength",        "pattern",
    "format",   "minimum",  "maximum",   "exclusiveMinimum",     "exclusiveMaximum", "multipleOf",
    "nullable",
};

static bool is_among(const char *word, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(word, words[i]) == 0) return true;
    return false;
}

static bool is_served(const char *word)
{
    return is_among(word, served, sizeof served / sizeof *served);
}

bool schema_decides(const char *keyword)
{
    static const char *const combining[] = {"$ref", "anyOf", "allOf", "oneOf", "uniqueItems"};
    return is_served(keyword) ||
           is_among(keyword, combining, sizeof combining / sizeof *combining) ||
           is_among(keyword, refused, sizeof refused / sizeof *refused);
}

/* "minimum": 0 of an array that may have any items refuses nothing; so some refused words do. */
static bool changes_nothing(const char *word, const json_t *value)
{
    if (strncmp(word, "min", 3) == 0 && json_is_integer(value))
        return json_integer_value(value) <= 0;
    if (strcmp(word, "additionalItems") == 0)
        return true; /* items is no list: the list is refused */
    if (json_is_true(value)) return true;
    return json_is_object(value) && json_object_size(value) == 0 && strcmp(word, "not") != 0;
}

static enum sol_status check_keywords(struct schema *s, const json_t *schema)
{
    const char *word;
    json_t *value;
    json_object_foreach((json_t *)schema, word, value)
    {
        size_t mark = schema_enter(s, word, NULL);
        bool unique = strcmp(word, "uniqueItems") == 0 && !json_is_false(value);
        if (unique || (is_among(word, refused, sizeof refused / sizeof *refused) &&
                       !changes_nothing(word, value)))
            return status_set(SOL_E_UNSUPPORTED, "the keyword '%s' is not supported", word);
        schema_leave(s, mark);
    }
    return SOL_OK;
}

/* ---- the path ---- */

static void add_segment(struct schema *s, const char *segment)
{
    size_t at = strlen(s->path);
    if (at + 8 > SCHEMA_PATH_MAX) return;
    s->path[at++] = '/';
    for (; *segment && at + 3 < SCHEMA_PATH_MAX; segment++) {
        bool escape = *segment == '~' || *segment == '/';
        if (escape) s->path[at++] = '~';
        s->path[at++] = escape ? (*segment == '~' ? '0' : '1') : *segment;
    }
    s->path[at] = 0;
}

size_t schema_enter(struct schema *s, const char *keyword, const char *name)
{
    size_t mark = strlen(s->path);
    add_segment(s, keyword);
    if (name) add_segment(s, name);
    return mark;
}

void schema_leave(struct schema *s, size_t mark)
{
    s->path[mark] = 0;
}

/* ---- references ---- */

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* One segment of a pointer, its escapes (%41, ~1) undone, into `out`; returns the rest. */
static const char *read_segment(const char *at, char *out)
{
    for (; *at && *at != '/'; at++) {
        int high = *at == '%' ? hex_value(at[1]) : -1;
        int low = high >= 0 ? hex_value(at[2]) : -1;
        char c = *at;
        if (low >= 0 && high * 16 + low) {
            c = (char)(high * 16 + low);
            at += 2;
        }
        *out++ = c;
    }
    *out = 0;
    return at;
}

static void undo_tildes(char *text)
{
    char *out = text;
    for (const char *at = text; *at; at++) {
        bool escape = *at == '~' && (at[1] == '0' || at[1] == '1');
        *out++ = escape ? (at[1] == '0' ? '~' : '/') : *at;
        if (escape) at++;
    }
    *out = 0;
}

static const json_t *child(const json_t *parent, const char *name)
{
    if (json_is_object(parent)) return json_object_get(parent, name);
    if (!json_is_array(parent) || !*name || strlen(name) > 8) return NULL;
    for (const char *p = name; *p; p++)
        if (*p < '0' || *p > '9') return NULL;
    return json_array_get(parent, (size_t)atol(name));
}

enum sol_status schema_resolve(struct schema *s, const char *pointer, const json_t **out)
{
    const json_t *at = s->root;
    *out = NULL;
    if (pointer[0] != '#' || (pointer[1] && pointer[1] != '/'))
        return status_set(SOL_E_UNSUPPORTED,
                          "$ref to '%.200s': only places in this document (#/...) are supported",
                          pointer);
    char *segment = malloc(strlen(pointer) + 1);
    if (!segment) return status_set(SOL_E_MEMORY, "no memory for a schema");
    for (const char *rest = pointer + 1; *rest == '/' && at;) {
        rest = read_segment(rest + 1, segment);
        undo_tildes(segment);
        at = child(at, segment);
    }
    free(segment);
    if (!at) return status_set(SOL_E_FORMAT, "$ref to '%.200s', which is not there", pointer);
    *out = at;
    return SOL_OK;
}

static size_t rule_slot(const struct schema *s, const json_t *target)
{
    size_t slot = (size_t)bytes_hash_mix((uint64_t)(uintptr_t)target) & (s->n_slots - 1);
    while (s->slots[slot] && s->rules[s->slots[slot] - 1].target != target)
        slot = (slot + 1) & (s->n_slots - 1);
    return slot;
}

static enum sol_status grow_rules(struct schema *s)
{
    if (2 * (s->n_rules + 1) <= s->n_slots) return SOL_OK;
    size_t n = s->n_slots ? 2 * s->n_slots : 32;
    struct schema_rule *rules = realloc(s->rules, n * sizeof *rules);
    if (rules) s->rules = rules;
    uint32_t *slots = calloc(n, sizeof *slots);
    if (!rules || !slots) {
        free(slots);
        return status_set(SOL_E_MEMORY, "no memory for a schema");
    }
    free(s->slots);
    s->slots = slots;
    s->n_slots = n;
    for (size_t i = 0; i < s->n_rules; i++)
        s->slots[rule_slot(s, s->rules[i].target)] = (uint32_t)i + 1;
    return SOL_OK;
}

/* A call of the rule of `target`, which will be compiled if it was not. */
static enum sol_status call(struct schema *s, const json_t *target, const char *pointer,
                            uint32_t next, uint32_t *out)
{
    SOL_TRY(grow_rules(s));
    size_t slot = rule_slot(s, target);
    if (!s->slots[slot]) {
        uint32_t rule;
        SOL_TRY(program_rule(s->program, &rule));
        s->rules[s->n_rules++] = (struct schema_rule){target, pointer, rule};
        s->slots[slot] = (uint32_t)s->n_rules;
    }
    const struct schema_rule *found = &s->rules[s->slots[slot] - 1];
    return program_op(s->program, (struct op){.kind = OP_CALL, .a = found->rule, .next = next},
                      out);
}

static enum sol_status compile_ref(struct schema *s, const json_t *schema, const char *pointer,
                                   uint32_t next, uint32_t *out)
{
    const json_t *target;
    const char *word;
    json_t *value;
    json_object_foreach((json_t *)schema, word, value)
    {
        if (strcmp(word, "$ref") != 0 && schema_decides(word)) {
            const json_t *merged; /* what stands beside a reference counts too */
            SOL_TRY(schema_merge_all(s, schema, &merged));
            return schema_value(s, merged, next, out);
        }
    }
    size_t mark = schema_enter(s, "$ref", NULL);
    SOL_TRY(schema_resolve(s, pointer, &target));
    SOL_TRY(call(s, target, pointer, next, out));
    schema_leave(s, mark);
    return SOL_OK;
}

/* ---- types ---- */

static unsigned type_named(const char *name)
{
    static const struct {
        const char *name;
        unsigned type;
    } names[] = {{"null", TYPE_NULL},     {"boolean", TYPE_BOOLEAN}, {"integer", TYPE_INTEGER},
                 {"number", TYPE_NUMBER}, {"string", TYPE_STRING},   {"array", TYPE_ARRAY},
                 {"object", TYPE_OBJECT}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (name && strcmp(name, names[i].name) == 0) return names[i].type;
    return 0;
}

static enum sol_status read_types(struct schema *s, const json_t *schema, unsigned *out)
{
    const json_t *type = json_object_get(schema, "type");
    *out = TYPE_ANY;
    if (!type) return SOL_OK;
    size_t mark = schema_enter(s, "type", NULL),
           n = json_is_array(type) ? json_array_size(type) : 1;
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *name = json_is_array(type) ? json_array_get(type, i) : type;
        unsigned one = type_named(json_string_value(name));
        if (!one)
            return status_set(SOL_E_FORMAT, "no type of JSON Schema; these are null, boolean, "
                                            "integer, number, string, array, object");
        *out |= one;
    }
    if (json_is_true(json_object_get(schema, "nullable"))) *out |= TYPE_NULL;
    schema_leave(s, mark);
    return SOL_OK;
}

unsigned schema_type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_NULL:
        return TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return TYPE_BOOLEAN;
    case JSON_INTEGER:
        return TYPE_INTEGER | TYPE_NUMBER;
    case JSON_REAL:
        return TYPE_NUMBER;
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    default:
        return TYPE_OBJECT;
    }
}

static enum sol_status compile_type(struct schema *s, const json_t *schema, unsigned type,
                                    uint32_t next, uint32_t *out)
{
    uint32_t words[2];
    switch (type) {
    case TYPE_NULL:
        return schema_text(s, "null", next, out);
    case TYPE_BOOLEAN:
        SOL_TRY(schema_text(s, "true", next, &words[0]));
        SOL_TRY(schema_text(s, "false", next, &words[1]));
        return program_split(s->program, words, 2, out);
    case TYPE_INTEGER:
    case TYPE_NUMBER:
        return schema_number(s, schema, type == TYPE_INTEGER, next, out);
    case TYPE_STRING:
        return schema_string(s, schema, next, out);
    case TYPE_ARRAY:
        return schema_array(s, schema, next, out);
    default:
        return schema_object(s, schema, next, out);
    }
}

static enum sol_status compile_types(struct schema *s, const json_t *schema, unsigned types,
                                     uint32_t next, uint32_t *out)
{
    uint32_t ways[8], n = 0;
    if (types & TYPE_NUMBER) types &= ~(unsigned)TYPE_INTEGER;
    for (unsigned type = 1; type <= TYPE_OBJECT; type <<= 1)
        if (types & type) SOL_TRY(compile_type(s, schema, type, next, &ways[n++]));
    if (n != 1) return program_split(s->program, ways, n, out);
    *out = ways[0];
    return SOL_OK;
}

/* ---- schemas ---- */

static enum sol_status compile_choice(struct schema *s, const json_t *schema, const char *keyword,
                                      uint32_t next, uint32_t *out)
{
    const json_t *list = json_object_get(schema, keyword);
    size_t mark = schema_enter(s, keyword, NULL), n = json_array_size(list);
    if (n == 0) return status_set(SOL_E_FORMAT, "must be a list of at least one schema");
    if (strcmp(keyword, "oneOf") == 0 && !schema_disjoint(s, list))
        return status_set(SOL_E_UNSUPPORTED,
                          "oneOf is supported where no value can satisfy two of its schemas: "
                          "different types, or a required property with different values; use "
                          "anyOf");
    uint32_t *ways = malloc(n * sizeof *ways);
    if (!ways) return status_set(SOL_E_MEMORY, "no memory for a schema");
    const json_t *others;
    enum sol_status status = schema_without(s, schema, keyword, &others);
    for (size_t i = 0; i < n && status == SOL_OK; i++) {
        char index[24];
        const json_t *way = json_array_get(list, i);
        snprintf(index, sizeof index, "%zu", i);
        size_t inner = schema_enter(s, index, NULL);
        if (others && json_is_object(way)) status = schema_merge(s, others, way, &way);
        if (status == SOL_OK) status = schema_value(s, way, next, &ways[i]);
        if (status == SOL_OK) schema_leave(s, inner);
    }
    if (status == SOL_OK) status = program_split(s->program, ways, (uint32_t)n, out);
    free(ways);
    if (status == SOL_OK) schema_leave(s, mark);
    return status;
}

static enum sol_status compile_keywords(struct schema *s, const json_t *schema, uint32_t next,
                                        uint32_t *out)
{
    unsigned types;
    const json_t *ref = json_object_get(schema, "$ref"), *merged;
    if (ref && !json_is_string(ref)) return status_set(SOL_E_FORMAT, "$ref must be a string");
    if (ref) return compile_ref(s, schema, json_string_value(ref), next, out);
    SOL_TRY(check_keywords(s, schema));
    if (json_object_get(schema, "allOf")) {
        SOL_TRY(schema_merge_all(s, schema, &merged));
        return schema_value(s, merged, next, out);
    }
    if (json_object_get(schema, "anyOf")) return compile_choice(s, schema, "anyOf", next, out);
    if (json_object_get(schema, "oneOf")) return compile_choice(s, schema, "oneOf", next, out);
    SOL_TRY(read_types(s, schema, &types));
    const json_t *values = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    if (one) {
        json_t *list = json_pack("[O]", one);
        if (!list || json_array_append_new(s->made, list) != 0)
            return status_set(SOL_E_MEMORY, "no memory for a schema");
        if (json_is_array(values)) { /* both: the one, if it is among them */
            bool found = false;
            for (size_t i = 0; i < json_array_size(values); i++)
                found = found || json_equal(json_array_get(values, i), one);
            if (!found) json_array_clear(list);
        }
        values = list;
    }
    if (values) {
        if (json_is_array(values)) SOL_TRY(schema_filter(s, schema, &values));
        return schema_values(s, values, types, next, out);
    }
    const char *word;
    json_t *value;
    bool any = types == TYPE_ANY;
    json_object_foreach((json_t *)schema, word, value) any = any && !is_served(word);
    if (any) return call(s, NULL, "any value", next, out);
    return compile_types(s, schema, types, next, out);
}

enum sol_status schema_value(struct schema *s, const json_t *schema, uint32_t next, uint32_t *out)
{
    if (json_is_true(schema)) return call(s, NULL, "any value", next, out);
    if (json_is_false(schema)) return program_split(s->program, NULL, 0, out);
    if (!json_is_object(schema))
        return status_set(SOL_E_FORMAT, "a schema must be an object, true or false");
    if (++s->depth > GRAMMAR_NESTING_MAX)
        return status_set(SOL_E_UNSUPPORTED, "schemas are nested more than %d deep",
                          GRAMMAR_NESTING_MAX);
    if (++s->work > SCHEMA_WORK_MAX)
        return status_set(SOL_E_UNSUPPORTED, "the schema is too large: more than %d schemas in it",
                          SCHEMA_WORK_MAX);
    SOL_TRY(compile_keywords(s, schema, next, out));
    s->depth--;
    return SOL_OK;
}

enum sol_status schema_member(struct schema *s, const json_t *schema, const char *keyword,
                              uint32_t next, uint32_t *out)
{
    const json_t *member = json_object_get(schema, keyword);
    if (!member) return call(s, NULL, "any value", next, out);
    size_t mark = schema_enter(s, keyword, NULL);
    SOL_TRY(schema_value(s, member, next, out));
    schema_leave(s, mark);
    return SOL_OK;
}

/* ---- pieces ---- */

enum sol_status schema_text(struct schema *s, const char *text, uint32_t next, uint32_t *out)
{
    return program_text(s->program, text, strlen(text), next, out);
}

enum sol_status schema_gap(struct schema *s, uint32_t next, uint32_t *out)
{
    uint32_t ways[2] = {next, 0};
    *out = next;
    if (s->space == GRAMMAR_SPACE_NONE) return SOL_OK;
    SOL_TRY(schema_text(s, " ", next, &ways[1]));
    return program_split(s->program, ways, 2, out);
}

enum sol_status schema_whole_number(const json_t *schema, const char *keyword, int64_t *out)
{
    const json_t *value = json_object_get(schema, keyword);
    double number = json_number_value(value);
    *out = -1;
    if (!value) return SOL_OK;
    if (!json_is_number(value) || number < 0 ||
        number != (double)(int64_t)(number < 1e18 ? number : 0))
        return status_set(SOL_E_FORMAT, "'%s' must be a whole number, 0 or more", keyword);
    *out = number < UNBOUNDED ? (int64_t)number : UNBOUNDED;
    return SOL_OK;
}

/* ---- the whole ---- */

static enum sol_status compile_rules(struct schema *s)
{
    for (size_t i = 0; i < s->n_rules; i++) { /* the list grows meanwhile */
        const struct schema_rule rule = s->rules[i];
        uint32_t end, begin;
        SOL_TRY(program_op(s->program, (struct op){.kind = OP_RETURN}, &end));
        snprintf(s->path, sizeof s->path, "%.*s", SCHEMA_PATH_MAX / 2, rule.pointer);
        s->depth = 0;
        if (rule.target)
            SOL_TRY(schema_value(s, rule.target, end, &begin));
        else
            SOL_TRY(compile_types(s, json_null(), TYPE_ANY, end, &begin));
        s->program->rules[rule.rule] = begin;
    }
    return SOL_OK;
}

static enum sol_status compile(struct schema *s)
{
    uint32_t end;
    SOL_TRY(program_op(s->program, (struct op){.kind = OP_END}, &end));
    SOL_TRY(schema_value(s, s->root, end, &s->program->start));
    SOL_TRY(compile_rules(s));
    snprintf(s->path, sizeof s->path, "#");
    return program_finish(s->program);
}

enum sol_status grammar_from_schema(const json_t *schema, enum grammar_space space,
                                    struct grammar **out)
{
    *out = NULL;
    struct grammar *g = calloc(1, sizeof *g);
    struct schema s = {
        .root = schema, .space = space, .path = "#", .steps = DFA_WORK_MAX, .made = json_array()};
    enum sol_status status = SOL_E_MEMORY;
    if (!g || !s.made) {
        status_set(SOL_E_MEMORY, "no memory for a schema");
    } else {
        s.program = &g->program;
        status = compile(&s);
        if (status != SOL_OK && status != SOL_E_MEMORY) status_prefix(status, "%s", s.path);
    }
    json_decref(s.made);
    dfa_free(&s.character);
    dfa_free(&s.characters);
    free(s.rules);
    free(s.slots);
    if (status == SOL_OK)
        *out = g;
    else
        grammar_destroy(g);
    return status;
}

enum sol_status grammar_any_object(enum grammar_space space, struct grammar **out)
{
    json_t *schema = json_pack("{s:s}", "type", "object");
    *out = NULL;
    if (!schema) return status_set(SOL_E_MEMORY, "no memory for a schema");
    enum sol_status status = grammar_from_schema(schema, space, out);
    json_decref(schema);
    return status;
}

void grammar_destroy(struct grammar *grammar)
{
    if (!grammar) return;
    program_free(&grammar->program);
    free(grammar);
}

size_t grammar_bytes(const struct grammar *grammar)
{
    const struct program *p = &grammar->program;
    return sizeof *grammar + p->bytes + p->ops_capacity * sizeof *p->ops +
           p->splits_capacity * sizeof *p->splits + dfa_bytes(&p->character);
}
