/* What the files that compile schemas share. Each function adds ops that end in `next` and gives
 * the first of them. */
#ifndef GRAMMAR_SCHEMA_PRIVATE_H
#define GRAMMAR_SCHEMA_PRIVATE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/status.h"
#include "grammar/grammar.h"
#include "grammar/program.h"

enum {
    TYPE_NULL = 1 << 0,
    TYPE_BOOLEAN = 1 << 1,
    TYPE_INTEGER = 1 << 2,
    TYPE_NUMBER = 1 << 3, /* integers too */
    TYPE_STRING = 1 << 4,
    TYPE_ARRAY = 1 << 5,
    TYPE_OBJECT = 1 << 6,
    TYPE_ANY = TYPE_NULL | TYPE_BOOLEAN | TYPE_NUMBER | TYPE_STRING | TYPE_ARRAY | TYPE_OBJECT,

    SCHEMA_PATH_MAX = 512,
    SCHEMA_WORK_MAX = 1 << 16, /* schemas looked at */
};

/* A schema that others refer to. */
struct schema_rule {
    const json_t *target; /* NULL: any value */
    const char *pointer;  /* as it was written */
    uint32_t rule;
};

struct schema {
    const json_t *root;
    struct program *program;
    enum grammar_space space;
    char path[SCHEMA_PATH_MAX]; /* where we are, a JSON pointer */
    int depth;
    int work;
    uint64_t steps; /* that automata may still take */
    json_t *made;   /* an array that holds schemas made of others */
    struct schema_rule *rules;
    size_t n_rules, rules_capacity;
    struct dfa character, characters; /* one in our spelling, any number; made when first needed */
    uint32_t *slots;                  /* hash table over their targets: index + 1, 0 empty */
    size_t n_slots;
};

/* Goes down in the path, and back. An error leaves it where the fault is. */
size_t schema_enter(struct schema *s, const char *keyword, const char *name);
void schema_leave(struct schema *s, size_t mark);

/* Any schema. */
enum sol_status schema_value(struct schema *s, const json_t *schema, uint32_t next, uint32_t *out);
/* The schema that `keyword` of `schema` is; any value where it is missing. */
enum sol_status schema_member(struct schema *s, const json_t *schema, const char *keyword,
                              uint32_t next, uint32_t *out);
/* What is behind #/... in the document. */
enum sol_status schema_resolve(struct schema *s, const char *pointer, const json_t **out);

enum sol_status schema_object(struct schema *s, const json_t *schema, uint32_t next, uint32_t *out);
enum sol_status schema_array(struct schema *s, const json_t *schema, uint32_t next, uint32_t *out);
enum sol_status schema_string(struct schema *s, const json_t *schema, uint32_t next, uint32_t *out);
enum sol_status schema_number(struct schema *s, const json_t *schema, bool integer, uint32_t next,
                              uint32_t *out);
/* One of the values of an array, as far as they are of these types (TYPE_...). */
enum sol_status schema_values(struct schema *s, const json_t *values, unsigned types, uint32_t next,
                              uint32_t *out);

/* Makes s->character and s->characters. */
enum sol_status schema_characters(struct schema *s);

/* Of *values those that obey the schema's other keywords, types apart. */
enum sol_status schema_filter(struct schema *s, const json_t *schema, const json_t **values);

/* Perhaps a space. */
enum sol_status schema_gap(struct schema *s, uint32_t next, uint32_t *out);
enum sol_status schema_text(struct schema *s, const char *text, uint32_t next, uint32_t *out);
/* "text" as JSON, without the quotes if `inside`. NULL without memory. Free with free(). */
char *schema_spell(const json_t *value, bool inside);

/* A count that a keyword gives: -1 where it is missing. SOL_E_FORMAT where it is none. */
enum sol_status schema_whole_number(const json_t *schema, const char *keyword, int64_t *out);
unsigned schema_type_of(const json_t *value);

/* Puts allOf, and what stands beside anyOf and oneOf, together (schema_merge.c). *out is borrowed,
 * kept in s->made. */
/* A schema without one of its keywords; NULL where nothing of what is left decides anything. */
enum sol_status schema_without(struct schema *s, const json_t *schema, const char *keyword,
                               const json_t **out);
enum sol_status schema_merge(struct schema *s, const json_t *a, const json_t *b,
                             const json_t **out);
enum sol_status schema_merge_all(struct schema *s, const json_t *schema, const json_t **out);
bool schema_decides(const char *keyword); /* it may refuse values */
/* Whether no value can satisfy two of these. */
bool schema_disjoint(struct schema *s, const json_t *list);

#endif
