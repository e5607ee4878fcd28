/* One schema of several that must all hold: allOf, and what stands beside anyOf, oneOf and $ref. */
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_private.h"

static enum sol_status no_memory(void)
{
    return status_set(SOL_E_MEMORY, "no memory for a schema");
}

/* Keeps a new value for as long as the schema is compiled. */
static enum sol_status keep(struct schema *s, json_t *made)
{
    return made && json_array_append_new(s->made, made) == 0 ? SOL_OK : no_memory();
}

enum sol_status schema_without(struct schema *s, const json_t *schema, const char *keyword,
                               const json_t **out)
{
    const char *word;
    json_t *value, *copy;
    bool decides = false;
    *out = NULL;
    json_object_foreach((json_t *)schema, word, value) decides =
        decides || (strcmp(word, keyword) != 0 && schema_decides(word));
    if (!decides) return SOL_OK;
    copy = json_copy((json_t *)schema);
    SOL_TRY(keep(s, copy));
    json_object_del(copy, keyword);
    *out = copy;
    return SOL_OK;
}

/* ---- keyword by keyword ---- */

/* A schema that demands both. NULL without memory. */
static json_t *both(json_t *a, json_t *b)
{
    if (!a || json_is_true(a) || (b && json_equal(a, b))) return b ? json_incref(b) : json_true();
    if (!b || json_is_true(b)) return json_incref(a);
    if (json_is_false(a) || json_is_false(b)) return json_false();
    return json_pack("{s:[O,O]}", "allOf", a, b);
}

/* Puts into `out` what the properties of `a` are, beside another schema with properties and
 * additionalProperties of its own. */
static bool merge_properties(json_t *out, json_t *a, json_t *other, json_t *other_rest)
{
    const char *name;
    json_t *value;
    json_object_foreach(a, name, value)
    {
        json_t *there = json_object_get(other, name);
        if (json_object_get(out, name)) continue;
        if (json_object_set_new(out, name, both(value, there ? there : other_rest)) != 0)
            return false;
    }
    return true;
}

static bool merge_object(json_t *out, const json_t *a, const json_t *b)
{
    json_t *rest_a = json_object_get(a, "additionalProperties");
    json_t *rest_b = json_object_get(b, "additionalProperties");
    json_t *in_a = json_object_get(a, "properties"), *in_b = json_object_get(b, "properties");
    if (in_a || in_b) {
        json_t *all = json_object();
        if (!all || json_object_set_new(out, "properties", all) != 0) return false;
        if (!merge_properties(all, in_a, in_b, rest_b)) return false;
        if (!merge_properties(all, in_b, in_a, rest_a)) return false;
    }
    if (!rest_a && !rest_b) return true;
    return json_object_set_new(out, "additionalProperties", both(rest_a, rest_b)) == 0;
}

static bool contains(const json_t *list, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_array_get(list, i), value)) return true;
    return false;
}

/* What both lists have, or with `all` what one of them has. */
static json_t *merge_lists(const json_t *a, const json_t *b, bool all)
{
    json_t *out = json_array();
    for (size_t i = 0; out && i < json_array_size(a); i++)
        if (all || contains(b, json_array_get(a, i))) json_array_append(out, json_array_get(a, i));
    for (size_t i = 0; out && all && i < json_array_size(b); i++)
        if (!contains(a, json_array_get(b, i))) json_array_append(out, json_array_get(b, i));
    return out;
}

static bool has_type(const json_t *type, const char *name)
{
    if (json_is_string(type)) return strcmp(json_string_value(type), name) == 0;
    for (size_t i = 0; i < json_array_size(type); i++) {
        const char *one = json_string_value(json_array_get(type, i));
        if (one && strcmp(one, name) == 0) return true;
    }
    return false;
}

/* The types that both name; every integer is a number. An empty list allows nothing. */
static json_t *merge_types(const json_t *a, const json_t *b)
{
    static const char *const names[] = {"null",   "boolean", "integer", "number",
                                        "string", "array",   "object"};
    json_t *out = json_array();
    for (size_t i = 0; out && i < sizeof names / sizeof *names; i++) {
        bool integer = strcmp(names[i], "integer") == 0;
        bool in_a = has_type(a, names[i]) || (integer && has_type(a, "number"));
        bool in_b = has_type(b, names[i]) || (integer && has_type(b, "number"));
        if (in_a && in_b) json_array_append_new(out, json_string(names[i]));
    }
    return out;
}

/* The stricter of two bounds, or NULL where the keyword is none. */
static json_t *stricter(const char *word, json_t *a, json_t *b)
{
    bool low = strncmp(word, "min", 3) == 0 || strcmp(word, "exclusiveMinimum") == 0;
    bool high = strncmp(word, "max", 3) == 0 || strcmp(word, "exclusiveMaximum") == 0;
    if ((!low && !high) || !json_is_number(a) || !json_is_number(b)) return NULL;
    bool a_larger = json_number_value(a) > json_number_value(b);
    return json_incref(a_larger == low ? a : b);
}

/* What a keyword of both schemas becomes; NULL where it cannot be said. */
static json_t *merge_word(const char *word, json_t *a, json_t *b)
{
    if (json_equal(a, b) || !schema_decides(word)) return json_incref(a);
    if (strcmp(word, "required") == 0) return merge_lists(a, b, true);
    if (strcmp(word, "enum") == 0) return merge_lists(a, b, false);
    if (strcmp(word, "type") == 0) return merge_types(a, b);
    if (strcmp(word, "items") == 0) return both(a, b);
    return stricter(word, a, b);
}

enum sol_status schema_merge(struct schema *s, const json_t *a, const json_t *b, const json_t **out)
{
    const char *word;
    json_t *value, *merged = json_object();
    SOL_TRY(keep(s, merged));
    if (++s->work > SCHEMA_WORK_MAX)
        return status_set(SOL_E_UNSUPPORTED, "the schema is too large");
    if (!merge_object(merged, a, b)) return no_memory();
    json_object_foreach((json_t *)a, word, value)
    {
        json_t *other = json_object_get(b, word);
        if (json_object_get(merged, word)) continue;
        json_t *one = other ? merge_word(word, value, other) : json_incref(value);
        if (!one)
            return status_set(SOL_E_UNSUPPORTED,
                              "'%s' stands in schemas that must hold together, with different "
                              "values",
                              word);
        if (json_object_set_new(merged, word, one) != 0) return no_memory();
    }
    json_object_foreach(
        (json_t *)b, word,
        value) if (!json_object_get(merged, word)) if (json_object_set(merged, word, value) !=
                                                       0) return no_memory();
    *out = merged;
    return SOL_OK;
}

enum sol_status schema_merge_all(struct schema *s, const json_t *schema, const json_t **out)
{
    const json_t *list = json_object_get(schema, "allOf"), *target;
    const json_t *ref = json_object_get(schema, "$ref");
    if (!json_is_object(schema)) { /* true, false, or a fault that others tell */
        *out = schema;
        return SOL_OK;
    }
    *out = schema;
    if (!list && !ref) return SOL_OK;
    if (list && (!json_is_array(list) || json_array_size(list) == 0))
        return status_set(SOL_E_FORMAT, "allOf must be a list of at least one schema");
    if (++s->depth > GRAMMAR_NESTING_MAX)
        return status_set(SOL_E_UNSUPPORTED, "schemas are nested more than %d deep",
                          GRAMMAR_NESTING_MAX);
    json_t *rest = json_copy((json_t *)schema);
    SOL_TRY(keep(s, rest));
    json_object_del(rest, "allOf");
    json_object_del(rest, "$ref");
    *out = rest;
    for (size_t i = 0; i < json_array_size(list) + (ref != NULL); i++) {
        const json_t *part = json_array_get(list, i);
        if (i == json_array_size(list)) {
            if (!json_is_string(ref)) return status_set(SOL_E_FORMAT, "$ref must be a string");
            SOL_TRY(schema_resolve(s, json_string_value(ref), &target));
            part = target;
        }
        SOL_TRY(schema_merge_all(s, part, &part));
        if (json_is_true(part)) continue;
        if (json_is_false(part)) { /* nothing can hold */
            *out = part;
            break;
        }
        if (!json_is_object(part))
            return status_set(SOL_E_FORMAT, "a schema must be an object, true or false");
        SOL_TRY(schema_merge(s, *out, part, out));
    }
    s->depth--;
    return SOL_OK;
}

/* ---- oneOf ---- */

static const json_t *follow(struct schema *s, const json_t *schema)
{
    for (int i = 0; i < 8 && json_is_object(schema); i++) {
        const json_t *ref = json_object_get(schema, "$ref");
        if (!ref) break;
        if (!json_is_string(ref) || schema_resolve(s, json_string_value(ref), &schema) != SOL_OK)
            return NULL;
    }
    return schema;
}

/* The values that it is limited to: an array, to be released; NULL where there is no such list. */
static json_t *values_of(const json_t *schema)
{
    json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    if (one) return json_pack("[O]", one);
    return json_is_array(list) ? json_incref(list) : NULL;
}

static unsigned types_of(const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    unsigned types = 0;
    json_t *values = values_of(schema);
    for (size_t i = 0; i < json_array_size(values); i++)
        types |= schema_type_of(json_array_get(values, i));
    if (values) {
        json_decref(values);
        return types;
    }
    if (!type || json_is_true(json_object_get(schema, "nullable"))) return TYPE_ANY;
    static const struct {
        const char *name;
        unsigned type;
    } names[] = {{"null", TYPE_NULL},     {"boolean", TYPE_BOOLEAN}, {"integer", TYPE_NUMBER},
                 {"number", TYPE_NUMBER}, {"string", TYPE_STRING},   {"array", TYPE_ARRAY},
                 {"object", TYPE_OBJECT}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (has_type(type, names[i].name)) types |= names[i].type;
    return types;
}

static bool different_values(const json_t *a, const json_t *b)
{
    json_t *in_a = values_of(a), *in_b = values_of(b);
    bool different = in_a && in_b;
    for (size_t i = 0; different && i < json_array_size(in_a); i++)
        different = !contains(in_b, json_array_get(in_a, i));
    json_decref(in_a);
    json_decref(in_b);
    return different;
}

/* A property that both require, of which no value is possible in both. */
static bool told_apart(struct schema *s, const json_t *a, const json_t *b)
{
    const char *name;
    json_t *in_a, *required_a = json_object_get(a, "required");
    json_t *required_b = json_object_get(b, "required"), *properties_b;
    properties_b = json_object_get(b, "properties");
    json_object_foreach(json_object_get(a, "properties"), name, in_a)
    {
        json_t *in_b = json_object_get(properties_b, name);
        json_t *key = in_b ? json_string(name) : NULL;
        bool required = key && contains(required_a, key) && contains(required_b, key);
        json_decref(key);
        if (required && different_values(follow(s, in_a), follow(s, in_b))) return true;
    }
    return false;
}

bool schema_disjoint(struct schema *s, const json_t *list)
{
    size_t n = json_array_size(list);
    if (n > 64) return false;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < i; j++) {
            const json_t *a = follow(s, json_array_get(list, i));
            const json_t *b = follow(s, json_array_get(list, j));
            if (!json_is_object(a) || !json_is_object(b)) return false;
            unsigned common = types_of(a) & types_of(b);
            if (common == 0 || different_values(a, b)) continue;
            if (common != TYPE_OBJECT || !told_apart(s, a, b)) return false;
        }
    }
    return true;
}
