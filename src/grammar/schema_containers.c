/* Objects and arrays, and lists of values.
 *
 * An object's keys come in the order of the schema, those that it does not name behind them.
 * `key[i]` is where one of the keys from i on is expected, `rest[i]` what follows a value: a comma
 * and key[i], or the end. So the steps grow with the number of properties, however many are
 * optional. */
#include <stdlib.h>
#include <string.h>

#include "grammar/chars.h"
#include "grammar/schema_private.h"

static enum sol_status no_memory(void)
{
    return status_set(SOL_E_MEMORY, "no memory for a schema");
}

/* ---- objects ---- */

struct property {
    const char *name;
    const json_t *schema; /* NULL: that of additionalProperties */
    bool required;
};

struct object {
    struct property *properties;
    size_t n;
    const json_t *additional; /* NULL: any value */
    bool open;                /* keys that are not named are possible */
};

#define NO_KEY UINT32_MAX

static enum sol_status read_object(struct schema *s, const json_t *schema, struct object *o)
{
    json_t *properties = json_object_get(schema, "properties"), *value;
    const json_t *required = json_object_get(schema, "required");
    const char *name;
    size_t mark = schema_enter(s, "properties", NULL);
    if (properties && !json_is_object(properties))
        return status_set(SOL_E_FORMAT, "must be an object with a schema per property");
    schema_leave(s, mark);
    schema_enter(s, "required", NULL);
    if (json_is_boolean(required)) required = NULL; /* draft 3 said it of a property */
    if (required && !json_is_array(required))
        return status_set(SOL_E_FORMAT, "must be a list of names");
    o->additional = json_object_get(schema, "additionalProperties");
    o->open = !json_is_false(o->additional);
    o->properties =
        calloc(json_object_size(properties) + json_array_size(required) + 1, sizeof *o->properties);
    if (!o->properties) return no_memory();
    json_object_foreach(properties, name, value) o->properties[o->n++] =
        (struct property){name, value, false};
    for (size_t i = 0; i < json_array_size(required); i++) {
        name = json_string_value(json_array_get(required, i));
        if (!name) return status_set(SOL_E_FORMAT, "must be a list of names");
        size_t at = 0; /* of a hundred names in order this is soon found */
        while (at < o->n && strcmp(o->properties[(i + at) % o->n].name, name) != 0) at++;
        if (at < o->n)
            o->properties[(i + at) % o->n].required = true;
        else
            o->properties[o->n++] = (struct property){name, NULL, true};
    }
    schema_leave(s, mark);
    return SOL_OK;
}

enum sol_status schema_characters(struct schema *s)
{
    struct nfa nfa = {.work = &s->steps};
    struct char_set every = {0};
    enum sol_status status;
    if (s->character.next) return SOL_OK;
    chars_negate(&every);
    uint32_t end = nfa_accept(&nfa), loop = nfa_split(&nfa, end, end);
    uint32_t one = chars_spelled(&nfa, &every, end);
    nfa_set_split(&nfa, loop, chars_spelled(&nfa, &every, loop), end);
    if (every.no_memory) nfa.full = nfa.no_memory = true;
    status = dfa_from_nfa(&nfa, one, &s->character);
    if (status == SOL_OK) status = dfa_from_nfa(&nfa, loop, &s->characters);
    chars_free(&every);
    nfa_free(&nfa);
    return status;
}

/* The names of all properties, as they stand between the quotes. */
static enum sol_status named_keys(struct schema *s, const struct object *o, struct dfa *out)
{
    struct nfa nfa = {.work = &s->steps};
    enum sol_status status = SOL_OK;
    uint32_t end = nfa_accept(&nfa), start = 0;
    for (size_t i = 0; i < o->n && status == SOL_OK; i++) {
        json_t *name = json_string(o->properties[i].name);
        char *spelled = name ? schema_spell(name, true) : NULL;
        uint32_t way = spelled ? nfa_bytes(&nfa, spelled, strlen(spelled), end) : 0;
        start = i ? nfa_split(&nfa, start, way) : way;
        if (!spelled) status = no_memory();
        free(spelled);
        json_decref(name);
    }
    if (status == SOL_OK) status = dfa_from_nfa(&nfa, start, out);
    nfa_free(&nfa);
    return status;
}

/* The inside of a key that is none of the named ones, and its closing quote. */
static enum sol_status other_key(struct schema *s, const struct object *o, struct dfa *out)
{
    struct dfa named = {0}, other = {0};
    SOL_TRY(schema_characters(s));
    enum sol_status status = named_keys(s, o, &named);
    if (status == SOL_OK) status = dfa_combine(&s->characters, &named, true, &s->steps, &other);
    if (status == SOL_OK) status = dfa_close(&other, '"', &s->steps, out);
    dfa_free(&named);
    dfa_free(&other);
    return status;
}

static enum sol_status additional_value(struct schema *s, const struct object *o, uint32_t next,
                                        uint32_t *out)
{
    size_t mark = schema_enter(s, "additionalProperties", NULL);
    SOL_TRY(schema_value(s, o->additional ? o->additional : json_true(), next, out));
    schema_leave(s, mark);
    return SOL_OK;
}

/* "name": value */
static enum sol_status named_key(struct schema *s, const struct object *o, size_t i, uint32_t next,
                                 uint32_t *out)
{
    const struct property *property = &o->properties[i];
    if (property->schema) {
        size_t mark = schema_enter(s, "properties", property->name);
        SOL_TRY(schema_value(s, property->schema, next, out));
        schema_leave(s, mark);
    } else {
        SOL_TRY(additional_value(s, o, next, out));
    }
    SOL_TRY(schema_gap(s, *out, out));
    SOL_TRY(schema_text(s, ":", *out, out));
    json_t *name = json_string(property->name);
    char *spelled = name ? schema_spell(name, false) : NULL;
    enum sol_status status = spelled ? schema_text(s, spelled, *out, out) : no_memory();
    free(spelled);
    json_decref(name);
    return status;
}

/* Any number of keys that are not named, then the end. Gives key[n] and rest[n]. */
static enum sol_status other_keys(struct schema *s, const struct object *o, uint32_t close,
                                  uint32_t *key, uint32_t *rest)
{
    uint32_t at, ways[2];
    SOL_TRY(program_split(s->program, NULL, 0, rest));
    SOL_TRY(additional_value(s, o, *rest, &at));
    SOL_TRY(schema_gap(s, at, &at));
    SOL_TRY(schema_text(s, ":", at, &at));
    if (o->n) {
        struct dfa dfa;
        SOL_TRY(other_key(s, o, &dfa));
        SOL_TRY(program_dfa(s->program, &dfa, at, &at));
    } else {
        SOL_TRY(program_string(s->program, 0, UNBOUNDED, at, &at));
    }
    SOL_TRY(schema_text(s, "\"", at, key));
    SOL_TRY(schema_gap(s, *key, &at));
    SOL_TRY(schema_text(s, ",", at, &ways[0]));
    ways[1] = close;
    return program_set_split(s->program, *rest, ways, 2);
}

/* One of two ways, of which NO_KEY is none. */
static enum sol_status either(struct schema *s, uint32_t a, uint32_t b, uint32_t *out)
{
    uint32_t ways[2], n = 0;
    if (a != NO_KEY) ways[n++] = a;
    if (b != NO_KEY) ways[n++] = b;
    if (n != 1) return program_split(s->program, ways, n, out);
    *out = ways[0];
    return SOL_OK;
}

static enum sol_status compile_object(struct schema *s, const struct object *o, uint32_t next,
                                      uint32_t *out)
{
    uint32_t close, key = NO_KEY, rest, end, comma = NO_KEY;
    SOL_TRY(schema_text(s, "}", next, &close));
    rest = end = close; /* `end` is NO_KEY once a property must come */
    if (o->open) SOL_TRY(other_keys(s, o, close, &key, &rest));
    for (size_t i = o->n; i-- > 0;) {
        uint32_t this_key;
        SOL_TRY(named_key(s, o, i, rest, &this_key));
        if (o->properties[i].required) {
            key = this_key;
            end = NO_KEY;
        } else {
            SOL_TRY(either(s, this_key, key, &key));
        }
        SOL_TRY(schema_gap(s, key, &comma));
        SOL_TRY(schema_text(s, ",", comma, &comma));
        SOL_TRY(either(s, comma, end, &rest));
    }
    SOL_TRY(either(s, key, end, &rest));
    return schema_text(s, "{", rest, out);
}

enum sol_status schema_object(struct schema *s, const json_t *schema, uint32_t next, uint32_t *out)
{
    struct object o = {0};
    enum sol_status status = read_object(s, schema, &o);
    if (status == SOL_OK) status = compile_object(s, &o, next, out);
    free(o.properties);
    return status;
}

/* ---- arrays ---- */

/* Items without a limit, or one at least: a loop. */
static enum sol_status plain_array(struct schema *s, const json_t *schema, bool one, uint32_t next,
                                   uint32_t *out)
{
    uint32_t close, more, item, ways[2];
    SOL_TRY(schema_text(s, "]", next, &close));
    SOL_TRY(program_split(s->program, NULL, 0, &more));
    SOL_TRY(schema_member(s, schema, "items", more, &item));
    SOL_TRY(schema_gap(s, item, &ways[0]));
    SOL_TRY(schema_text(s, ",", ways[0], &ways[0]));
    ways[1] = close;
    SOL_TRY(program_set_split(s->program, more, ways, 2));
    if (!one) SOL_TRY(either(s, item, close, &item));
    return schema_text(s, "[", item, out);
}

static enum sol_status counted_array(struct schema *s, const json_t *schema, int64_t min,
                                     int64_t max, uint32_t next, uint32_t *out)
{
    uint32_t close, more, item, comma;
    struct op op = {.kind = OP_MORE, .a = (uint32_t)(min > 0 ? min : 0), .b = (uint32_t)max};
    SOL_TRY(schema_text(s, "]", next, &close));
    op.leave = close;
    SOL_TRY(program_op(s->program, op, &more));
    SOL_TRY(schema_member(s, schema, "items", more, &item));
    SOL_TRY(schema_gap(s, item, &comma));
    SOL_TRY(schema_text(s, ",", comma, &comma));
    s->program->ops[more].next = comma;
    SOL_TRY(program_op(s->program, (struct op){.kind = OP_COUNT, .a = more, .next = item}, &item));
    if (min <= 0) SOL_TRY(either(s, item, close, &item));
    return schema_text(s, "[", item, out);
}

enum sol_status schema_array(struct schema *s, const json_t *schema, uint32_t next, uint32_t *out)
{
    int64_t min, max;
    const json_t *items = json_object_get(schema, "items");
    SOL_TRY(schema_whole_number(schema, "minItems", &min));
    SOL_TRY(schema_whole_number(schema, "maxItems", &max));
    size_t mark = schema_enter(s, "items", NULL);
    if (json_is_array(items))
        return status_set(SOL_E_UNSUPPORTED,
                          "a list of schemas, one for each item, is not supported");
    schema_leave(s, mark);
    if (json_is_false(items)) max = 0;
    if (max < 0) max = UNBOUNDED;
    if (min > max) return program_split(s->program, NULL, 0, out);
    if (max == 0) return schema_text(s, "[]", next, out);
    if (max == UNBOUNDED && min <= 1) return plain_array(s, schema, min == 1, next, out);
    return counted_array(s, schema, min, max, next, out);
}

/* ---- lists of values ---- */

/* The shortest text that gives a double back. */
static char *spell_real(double value)
{
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    if (!strpbrk(text, ".e")) strcat(text, ".0");
    return strdup(text);
}

char *schema_spell(const json_t *value, bool inside)
{
    if (json_is_real(value)) return spell_real(json_real_value(value));
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    size_t n = text ? strlen(text) : 0;
    if (inside && n >= 2) {
        memmove(text, text + 1, n - 2);
        text[n - 2] = 0;
    }
    return text;
}

static enum sol_status compile_literal(struct schema *s, const json_t *value, int depth,
                                       uint32_t next, uint32_t *out);

static enum sol_status spelled(struct schema *s, const json_t *value, uint32_t next, uint32_t *out)
{
    char *text = schema_spell(value, false);
    enum sol_status status = text ? schema_text(s, text, next, out) : no_memory();
    free(text);
    return status;
}

static enum sol_status literal_object(struct schema *s, const json_t *value, int depth,
                                      uint32_t next, uint32_t *out)
{
    const char *name;
    json_t *member;
    size_t n = json_object_size(value), i = 0;
    struct {
        const char *name;
        json_t *member;
    } *members = malloc((n + 1) * sizeof *members);
    if (!members) return no_memory();
    json_object_foreach((json_t *)value, name, member)
    {
        members[i].name = name;
        members[i++].member = member;
    }
    enum sol_status status = schema_text(s, "}", next, out);
    while (i-- > 0 && status == SOL_OK) {
        json_t *key = json_string(members[i].name);
        status = compile_literal(s, members[i].member, depth, *out, out);
        if (status == SOL_OK) status = schema_gap(s, *out, out);
        if (status == SOL_OK) status = schema_text(s, ":", *out, out);
        if (status == SOL_OK) status = key ? spelled(s, key, *out, out) : no_memory();
        if (status == SOL_OK && i) status = schema_gap(s, *out, out);
        if (status == SOL_OK && i) status = schema_text(s, ",", *out, out);
        json_decref(key);
    }
    free(members);
    return status == SOL_OK ? schema_text(s, "{", *out, out) : status;
}

static enum sol_status literal_array(struct schema *s, const json_t *value, int depth,
                                     uint32_t next, uint32_t *out)
{
    SOL_TRY(schema_text(s, "]", next, out));
    for (size_t i = json_array_size(value); i-- > 0;) {
        SOL_TRY(compile_literal(s, json_array_get(value, i), depth, *out, out));
        if (i) SOL_TRY(schema_gap(s, *out, out));
        if (i) SOL_TRY(schema_text(s, ",", *out, out));
    }
    return schema_text(s, "[", *out, out);
}

static enum sol_status compile_literal(struct schema *s, const json_t *value, int depth,
                                       uint32_t next, uint32_t *out)
{
    if (depth > GRAMMAR_NESTING_MAX)
        return status_set(SOL_E_UNSUPPORTED, "a value is nested more than %d deep",
                          GRAMMAR_NESTING_MAX);
    if (json_is_object(value)) return literal_object(s, value, depth + 1, next, out);
    if (json_is_array(value)) return literal_array(s, value, depth + 1, next, out);
    return spelled(s, value, next, out);
}

/* All that is no object and no array in one automaton; nothing where there is none. */
static enum sol_status scalar_values(struct schema *s, const json_t *values, unsigned types,
                                     uint32_t next, uint32_t *out, bool *any)
{
    struct nfa nfa = {.work = &s->steps};
    struct dfa dfa;
    uint32_t end = nfa_accept(&nfa), start = 0;
    *any = false;
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *value = json_array_get(values, i);
        if (json_is_object(value) || json_is_array(value)) continue;
        if (!(schema_type_of(value) & types)) continue;
        char *text = schema_spell(value, false);
        if (!text) {
            nfa_free(&nfa);
            return no_memory();
        }
        uint32_t way = nfa_bytes(&nfa, text, strlen(text), end);
        start = *any ? nfa_split(&nfa, start, way) : way;
        *any = true;
        free(text);
    }
    enum sol_status status = *any ? dfa_from_nfa(&nfa, start, &dfa) : SOL_OK;
    nfa_free(&nfa);
    return *any && status == SOL_OK ? program_dfa(s->program, &dfa, next, out) : status;
}

enum sol_status schema_values(struct schema *s, const json_t *values, unsigned types, uint32_t next,
                              uint32_t *out)
{
    size_t mark = schema_enter(s, "enum", NULL), n = json_array_size(values);
    bool any;
    if (!json_is_array(values)) return status_set(SOL_E_FORMAT, "must be a list of values");
    uint32_t *ways = malloc((n + 1) * sizeof *ways), n_ways = 0;
    if (!ways) return no_memory();
    enum sol_status status = scalar_values(s, values, types, next, &ways[0], &any);
    if (any) n_ways = 1;
    for (size_t i = 0; i < n && status == SOL_OK; i++) {
        const json_t *value = json_array_get(values, i);
        if (!json_is_object(value) && !json_is_array(value)) continue;
        if (schema_type_of(value) & types)
            status = compile_literal(s, value, 0, next, &ways[n_ways++]);
    }
    if (status == SOL_OK) status = program_split(s->program, ways, n_ways, out);
    free(ways);
    if (status == SOL_OK) schema_leave(s, mark);
    return status;
}
