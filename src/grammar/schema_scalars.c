/* Strings and numbers. */
#include <stdlib.h>
#include <string.h>

#include "grammar/number.h"
#include "grammar/regex.h"
#include "grammar/schema_private.h"

/* ---- formats ---- */

/* Days that exist, leap years too, from the year 1 on (RFC 3339's full-date). */
#define YEAR "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
#define LEAP_YEAR                                                                                  \
    "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                       \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"                                \
    "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|" LEAP_YEAR "-02-29)"
#define TIME                                                                                       \
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?"                                     \
    "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST  LABEL "(?:\\." LABEL ")*"
#define ATOM  "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4  OCTET "\\." OCTET "\\." OCTET "\\." OCTET
#define H16   "[0-9A-Fa-f]{1,4}"
#define LS32  "(?:" H16 ":" H16 "|" IPV4 ")"
/* The nine lines of RFC 3986. */
#define IPV6                                                                                       \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32      \
    "|(?:(?:" H16 ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16             \
    ")?::(?:" H16 ":){2}" LS32 "|(?:(?:" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16       \
    ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16   \
    ")?::)"
/* Appendix A of RFC 3339. */
#define DURATION_TIME "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
#define DURATION                                                                                   \
    "P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"                  \
    "(?:" DURATION_TIME ")?|" DURATION_TIME ")"
#define HEX4 "[0-9A-Fa-f]{4}"
/* Of a path, query and fragment, without the rarer signs. */
#define URI_CHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date-time", "^" DATE "T" TIME "$"},
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"duration", "^" DURATION "$"},
    {"email", "^" ATOM "(?:\\." ATOM ")*@" HOST "$"},
    {"hostname", "^" HOST "$"},
    {"ipv4", "^" IPV4 "$"},
    {"ipv6", "^" IPV6 "$"},
    {"uuid", "^" HEX4 HEX4 "-" HEX4 "-" HEX4 "-" HEX4 "-" HEX4 HEX4 HEX4 "$"},
    {"uri", "^[A-Za-z][A-Za-z0-9+.-]*:(?://" HOST "(?::[0-9]{1,5})?(?:[/?#]" URI_CHAR
            "*)?|/?[A-Za-z0-9]" URI_CHAR "*)$"},
};

static enum sol_status compile_format(struct schema *s, const char *name, struct dfa *out)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0)
            return regex_compile(formats[i].pattern, strlen(formats[i].pattern), &s->steps, out);
    return status_set(SOL_E_UNSUPPORTED,
                      "the format '%.100s' is not supported; these are: date-time, date, time, "
                      "duration, email, hostname, ipv4, ipv6, uuid, uri",
                      name);
}

/* ---- strings ---- */

/* What is accepted so far and by one more; `have` tells whether there is something so far. */
static enum sol_status restrict_to(struct schema *s, struct dfa *so_far, bool *have,
                                   struct dfa *more)
{
    struct dfa both = {0};
    enum sol_status status = SOL_OK;
    if (*have) {
        status = dfa_combine(so_far, more, false, &s->steps, &both);
        dfa_free(more);
        dfa_free(so_far);
    } else {
        both = *more;
    }
    *so_far = both;
    *have = true;
    return status;
}

/* What an automaton accepts, of min to max characters: its state, that within a character and the
 * characters so far in one number. */
struct counted {
    const struct dfa *dfa, *character;
    int64_t min, max;
};

static uint64_t counted_step(const void *arg, uint64_t state, uint8_t byte)
{
    const struct counted *c = arg;
    int64_t count = (int64_t)(state >> 32);
    uint32_t within = state & 0xffff;
    if (within == 1 && count == c->max) return DFA_NONE;
    uint64_t next = dfa_next(c->dfa, state >> 16 & 0xffff, byte);
    within = dfa_next(c->character, within, byte);
    if (!next || !within) return DFA_NONE;
    if (c->character->accepts[within]) {
        within = 1;
        if (c->max != UNBOUNDED || count < c->min) count++;
    }
    return (uint64_t)count << 32 | next << 16 | within;
}

static bool counted_accepts(const void *arg, uint64_t state)
{
    const struct counted *c = arg;
    return (state & 0xffff) == 1 && c->dfa->accepts[state >> 16 & 0xffff] &&
           (int64_t)(state >> 32) >= c->min;
}

static enum sol_status limit_length(struct schema *s, int64_t min, int64_t max, struct dfa *dfa)
{
    struct dfa out;
    SOL_TRY(schema_characters(s));
    const struct counted counted = {dfa, &s->character, min, max};
    struct dfa_source source = {.step = counted_step,
                                .accepts = counted_accepts,
                                .arg = &counted,
                                .work = &s->steps,
                                .start = dfa_is_empty(dfa) ? DFA_NONE : 1 << 16 | 1};
    for (int i = 1; i < 256; i++)
        source.same[i] = dfa->class_of[i] == dfa->class_of[i - 1] &&
                         s->character.class_of[i] == s->character.class_of[i - 1];
    enum sol_status status = dfa_explore(&source, &out);
    if (status == SOL_E_UNSUPPORTED)
        status_prefix(status, "a pattern or format together with minLength or maxLength");
    dfa_free(dfa);
    *dfa = out;
    return status;
}

static enum sol_status add_pattern(struct schema *s, const json_t *schema, const char *keyword,
                                   struct dfa *so_far, bool *have)
{
    const json_t *value = json_object_get(schema, keyword);
    struct dfa dfa;
    if (!value) return SOL_OK;
    size_t mark = schema_enter(s, keyword, NULL);
    if (!json_is_string(value)) return status_set(SOL_E_FORMAT, "must be a string");
    if (strcmp(keyword, "format") == 0)
        SOL_TRY(compile_format(s, json_string_value(value), &dfa));
    else
        SOL_TRY(
            regex_compile(json_string_value(value), json_string_length(value), &s->steps, &dfa));
    SOL_TRY(restrict_to(s, so_far, have, &dfa));
    schema_leave(s, mark);
    return SOL_OK;
}

static enum sol_status read_lengths(const json_t *schema, int64_t *min, int64_t *max)
{
    SOL_TRY(schema_whole_number(schema, "minLength", min));
    SOL_TRY(schema_whole_number(schema, "maxLength", max));
    if (*min < 0) *min = 0;
    if (*max < 0) *max = UNBOUNDED;
    return SOL_OK;
}

/* With a pattern or a format: one automaton for all. */
static enum sol_status patterned(struct schema *s, const json_t *schema, struct dfa *out)
{
    int64_t min, max;
    struct dfa so_far = {0};
    bool have = false;
    enum sol_status status = read_lengths(schema, &min, &max);
    if (status == SOL_OK) status = add_pattern(s, schema, "pattern", &so_far, &have);
    if (status == SOL_OK) status = add_pattern(s, schema, "format", &so_far, &have);
    if (status == SOL_OK && (min || max != UNBOUNDED)) status = limit_length(s, min, max, &so_far);
    if (status == SOL_OK) status = dfa_close(&so_far, '"', &s->steps, out);
    dfa_free(&so_far);
    return status;
}

enum sol_status schema_string(struct schema *s, const json_t *schema, uint32_t next, uint32_t *out)
{
    int64_t min, max;
    uint32_t inside;
    if (json_object_get(schema, "pattern") || json_object_get(schema, "format")) {
        struct dfa dfa;
        SOL_TRY(patterned(s, schema, &dfa));
        SOL_TRY(program_dfa(s->program, &dfa, next, &inside));
    } else {
        SOL_TRY(read_lengths(schema, &min, &max));
        SOL_TRY(program_string(s->program, (uint32_t)min, (uint32_t)max, next, &inside));
    }
    return schema_text(s, "\"", inside, out);
}

/* ---- numbers ---- */

static enum sol_status read_number(const json_t *schema, const char *keyword, const json_t **out)
{
    *out = json_object_get(schema, keyword);
    if (*out && !json_is_number(*out))
        return status_set(SOL_E_FORMAT, "'%s' must be a number", keyword);
    return SOL_OK;
}

/* The stricter of `word` and its exclusive form, which draft 4 had as true beside the bound. */
static enum sol_status read_bound(const json_t *schema, const char *word, const char *exclusive,
                                  bool low, struct number_bound *out)
{
    const json_t *value = json_object_get(schema, exclusive);
    SOL_TRY(read_number(schema, word, &out->value));
    if (!value || json_is_false(value)) return SOL_OK;
    if (json_is_true(value)) {
        out->exclusive = true;
        return SOL_OK;
    }
    SOL_TRY(read_number(schema, exclusive, &value));
    double strict = json_number_value(value), bound = json_number_value(out->value);
    if (!out->value || (low ? strict >= bound : strict <= bound))
        *out = (struct number_bound){value, true};
    return SOL_OK;
}

static enum sol_status read_rules(struct schema *s, const json_t *schema, bool integer,
                                  struct number_rules *rules)
{
    *rules = (struct number_rules){.integer = integer, .work = &s->steps};
    SOL_TRY(read_bound(schema, "minimum", "exclusiveMinimum", true, &rules->low));
    SOL_TRY(read_bound(schema, "maximum", "exclusiveMaximum", false, &rules->high));
    return read_number(schema, "multipleOf", &rules->multiple);
}

enum sol_status schema_number(struct schema *s, const json_t *schema, bool integer, uint32_t next,
                              uint32_t *out)
{
    struct number_rules rules;
    struct dfa dfa;
    SOL_TRY(read_rules(s, schema, integer, &rules));
    SOL_TRY(number_compile(&rules, &dfa));
    return program_dfa(s->program, &dfa, next, out);
}

/* ---- lists of values beside other keywords ---- */

/* What strings and numbers must be by the other keywords, made when the first of them comes. */
struct filter {
    struct dfa string, number;
    bool has_string, has_number, patterned;
    int64_t min, max;
};

static enum sol_status string_obeys(struct schema *s, const json_t *schema, struct filter *f,
                                    const json_t *value, bool *ok)
{
    if (!f->has_string) {
        SOL_TRY(read_lengths(schema, &f->min, &f->max));
        f->patterned = json_object_get(schema, "pattern") || json_object_get(schema, "format");
        if (f->patterned) SOL_TRY(patterned(s, schema, &f->string));
        f->has_string = true;
    }
    int64_t characters = 0;
    for (const char *c = json_string_value(value); *c; c++) characters += (*c & 0xc0) != 0x80;
    *ok = characters >= f->min && characters <= f->max;
    if (!f->patterned) return SOL_OK;
    char *text = schema_spell(value, false);
    if (!text) return status_set(SOL_E_MEMORY, "no memory for a schema");
    *ok = dfa_matches(&f->string, text + 1, strlen(text) - 1); /* it ends with the quote */
    free(text);
    return SOL_OK;
}

static enum sol_status number_obeys(struct schema *s, const json_t *schema, struct filter *f,
                                    const json_t *value, bool *ok)
{
    if (!f->has_number) {
        struct number_rules rules;
        SOL_TRY(read_rules(s, schema, false, &rules));
        SOL_TRY(number_compile(&rules, &f->number));
        f->has_number = true;
    }
    char *text = schema_spell(value, false);
    if (!text) return status_set(SOL_E_MEMORY, "no memory for a schema");
    *ok = dfa_matches(&f->number, text, strlen(text));
    free(text);
    return SOL_OK;
}

static enum sol_status filter_values(struct schema *s, const json_t *schema, const json_t *values,
                                     struct filter *f, json_t *kept)
{
    for (size_t i = 0; i < json_array_size(values); i++) {
        json_t *value = json_array_get(values, i);
        bool ok = true;
        if (json_is_object(value) || json_is_array(value))
            return status_set(
                SOL_E_UNSUPPORTED,
                "objects and arrays in enum or const are supported beside 'type' only");
        if (json_is_string(value)) SOL_TRY(string_obeys(s, schema, f, value, &ok));
        if (json_is_number(value)) SOL_TRY(number_obeys(s, schema, f, value, &ok));
        if (ok && json_array_append(kept, value) != 0)
            return status_set(SOL_E_MEMORY, "no memory for a schema");
    }
    return SOL_OK;
}

enum sol_status schema_filter(struct schema *s, const json_t *schema, const json_t **values)
{
    static const char *const alone[] = {"type", "enum", "const", "nullable"};
    const char *word;
    json_t *value;
    bool others = false;
    json_object_foreach((json_t *)schema, word, value)
    {
        bool one = schema_decides(word);
        for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
            if (strcmp(word, alone[i]) == 0) one = false;
        others |= one;
    }
    if (!others) return SOL_OK;
    struct filter f = {0};
    json_t *kept = json_array();
    enum sol_status status = kept && json_array_append_new(s->made, kept) == 0
                                 ? filter_values(s, schema, *values, &f, kept)
                                 : status_set(SOL_E_MEMORY, "no memory for a schema");
    dfa_free(&f.string);
    dfa_free(&f.number);
    *values = kept;
    return status;
}
