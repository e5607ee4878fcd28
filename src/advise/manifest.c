#include "advise/manifest.h"

#include <errno.h>
#include <math.h>
#include <regex.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/memory.h"
#include "base/status.h"

enum { VERSION = 1, SMALL_SHARE_PER_MILLE = 20, TEXT_SIZE = 512 };

enum gate_kind { GATE_EXPECT, GATE_FORBID, GATE_MAX_SHARE };

struct gate {
    enum gate_kind kind;
    const char *text; /* name or expression, as given */
    bool exact;
    regex_t regex;    /* unless exact */
    double count;     /* per token; NaN: any */
    double low, high; /* share of the time */
};

struct manifest {
    struct arena *arena;
    struct gate *gates;
    size_t count, room;
    struct arena *texts; /* of the violations */
    struct rules_violation *violations;
    size_t n_violations, violation_room;
};

enum sol_status manifest_create(struct manifest **out)
{
    *out = NULL;
    struct manifest *m = calloc(1, sizeof *m);
    if (!m || arena_create(4096, &m->arena) != SOL_OK) {
        manifest_destroy(m);
        return status_set(SOL_E_MEMORY, "out of memory for gates");
    }
    *out = m;
    return SOL_OK;
}

void manifest_destroy(struct manifest *m)
{
    if (!m) return;
    for (size_t i = 0; i < m->count; i++)
        if (!m->gates[i].exact) regfree(&m->gates[i].regex);
    free(m->gates);
    free(m->violations);
    arena_destroy(m->arena);
    arena_destroy(m->texts);
    free(m);
}

bool manifest_empty(const struct manifest *m)
{
    return m->count == 0;
}

/* ---- adding gates ---- */

static enum sol_status add_gate(struct manifest *m, struct gate gate, const char *text,
                                size_t length)
{
    SOL_TRY(array_grow(&m->gates, m->count, &m->room, sizeof *m->gates, "gates"));
    gate.text = arena_strndup(m->arena, text, length);
    if (!gate.text) return SOL_E_MEMORY;
    if (length == 0) return status_set(SOL_E_ARGUMENT, "a gate without a kernel name");
    if (!gate.exact) {
        int failed = regcomp(&gate.regex, gate.text, REG_EXTENDED | REG_NOSUB);
        if (failed) {
            char why[160];
            regerror(failed, &gate.regex, why, sizeof why);
            return status_set(SOL_E_ARGUMENT, "'%.200s' is no regular expression: %s", gate.text,
                              why);
        }
    }
    m->gates[m->count++] = gate;
    return SOL_OK;
}

/* A number with `unit` behind it and nothing else. */
static bool number_with(const char *text, const char *unit, double *out)
{
    char *end;
    if (!(*text >= '0' && *text <= '9') && *text != '.') return false;
    *out = strtod(text, &end);
    return strcmp(end, unit) == 0 && isfinite(*out);
}

enum sol_status manifest_expect(struct manifest *m, const char *text)
{
    const char *equals = strrchr(text, '=');
    double count = (double)NAN;
    size_t length = strlen(text);
    /* Template arguments hold '=' too: only one with a count behind it is ours. */
    if (equals && number_with(equals + 1, "/token", &count))
        length = (size_t)(equals - text);
    else if (equals && number_with(equals + 1, "", &count))
        return status_set(SOL_E_ARGUMENT, "--expect %.200s: a count is given as '=%s/token'", text,
                          equals + 1);
    return add_gate(m, (struct gate){.kind = GATE_EXPECT, .count = count, .high = 1}, text, length);
}

enum sol_status manifest_forbid(struct manifest *m, const char *regex)
{
    return add_gate(m, (struct gate){.kind = GATE_FORBID}, regex, strlen(regex));
}

enum sol_status manifest_max_share(struct manifest *m, const char *text)
{
    const char *equals = strrchr(text, '=');
    double percent;
    if (!equals || !number_with(equals + 1, "%", &percent) || percent > 100)
        return status_set(SOL_E_ARGUMENT, "--max-share %.200s: it is REGEX=PERCENT%%, such as %s",
                          text, "'quantize|transpose=10%'");
    return add_gate(m, (struct gate){.kind = GATE_MAX_SHARE, .high = percent / 100}, text,
                    (size_t)(equals - text));
}

/* ---- files ---- */

static enum sol_status bad(const char *name, const char *what, size_t index)
{
    return status_set(SOL_E_FORMAT, "%s: no manifest: %s %zu", name, what, index + 1);
}

static enum sol_status read_kernel(struct manifest *m, const json_t *item, const char *name,
                                   size_t index)
{
    const json_t *kernel = json_object_get(item, "kernel"), *match = json_object_get(item, "match");
    const json_t *count = json_object_get(item, "count"), *share = json_object_get(item, "share");
    const char *text = json_string_value(kernel ? kernel : match);
    struct gate gate = {
        .kind = GATE_EXPECT, .exact = kernel != NULL, .count = (double)NAN, .high = 1};
    if (!text || (count && !json_is_number(count))) return bad(name, "kernel", index);
    if (count) gate.count = json_number_value(count);
    if (share) {
        if (json_array_size(share) != 2 || !json_is_number(json_array_get(share, 0)) ||
            !json_is_number(json_array_get(share, 1)))
            return bad(name, "share of kernel", index);
        gate.low = json_number_value(json_array_get(share, 0));
        gate.high = json_number_value(json_array_get(share, 1));
    }
    enum sol_status status = add_gate(m, gate, text, strlen(text));
    return status == SOL_E_ARGUMENT ? status_prefix(SOL_E_FORMAT, "%s", name) : status;
}

static enum sol_status read_lists(struct manifest *m, const json_t *root, const char *name)
{
    size_t i;
    const json_t *item;
    const json_t *kernels = json_object_get(root, "kernels");
    if (strcmp(json_string_value(json_object_get(root, "format"))
                   ? json_string_value(json_object_get(root, "format"))
                   : "",
               "sol manifest") != 0)
        return status_set(SOL_E_FORMAT, "%s: no manifest: \"format\" is not \"sol manifest\"",
                          name);
    if (json_integer_value(json_object_get(root, "version")) != VERSION)
        return status_set(SOL_E_UNSUPPORTED, "%s: a manifest of another version; learn it again",
                          name);
    if (kernels && !json_is_array(kernels)) return bad(name, "kernels, member", 0);
    json_array_foreach(kernels, i, item) SOL_TRY(read_kernel(m, item, name, i));
    json_array_foreach(json_object_get(root, "forbid"), i, item)
    {
        if (!json_is_string(item)) return bad(name, "forbid", i);
        if (manifest_forbid(m, json_string_value(item)) != SOL_OK)
            return status_prefix(SOL_E_FORMAT, "%s", name);
    }
    json_array_foreach(json_object_get(root, "max_share"), i, item)
    {
        const char *match = json_string_value(json_object_get(item, "match"));
        const json_t *share = json_object_get(item, "share");
        if (!match || !json_is_number(share)) return bad(name, "max_share", i);
        struct gate gate = {.kind = GATE_MAX_SHARE, .high = json_number_value(share)};
        if (add_gate(m, gate, match, strlen(match)) != SOL_OK)
            return status_prefix(SOL_E_FORMAT, "%s", name);
    }
    return SOL_OK;
}

enum sol_status manifest_parse(struct manifest *m, const char *text, size_t size, const char *name)
{
    json_error_t error;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!root) return status_set(SOL_E_FORMAT, "%s:%d: no JSON: %s", name, error.line, error.text);
    enum sol_status status = json_is_object(root)
                                 ? read_lists(m, root, name)
                                 : status_set(SOL_E_FORMAT, "%s: no manifest: not an object", name);
    json_decref(root);
    return status;
}

enum sol_status manifest_read(struct manifest *m, const char *path)
{
    struct mapped_file file;
    SOL_TRY(mapped_file_open(path, &file));
    enum sol_status status = manifest_parse(m, file.data ? file.data : "", file.size, path);
    mapped_file_close(&file);
    return status;
}

static double total_time(const struct gate_kernel *kernels, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += kernels[i].time_ns > 0 ? kernels[i].time_ns : 0;
    return sum;
}

enum sol_status manifest_learn(const struct gate_kernel *kernels, size_t n, FILE *to)
{
    double total = total_time(kernels, n);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        const struct gate_kernel *k = &kernels[i];
        double share = total > 0 ? k->time_ns / total : 0;
        bool small = 1000 * share < SMALL_SHARE_PER_MILLE;
        json_t *item = json_pack("{s:s}", "kernel", k->name);
        if (!item) continue; /* a name that is no UTF-8 cannot be written, nor read again */
        if (isfinite(k->per_token)) json_object_set_new(item, "count", json_real(k->per_token));
        if (!small)
            json_object_set_new(item, "share",
                                json_pack("[f, f]", share / 2, 2 * share < 1 ? 2 * share : 1));
        json_array_append_new(list, item);
    }
    json_t *root = json_pack("{s:s, s:i, s:o, s:[], s:[{s:s, s:f}]}", "format", "sol manifest",
                             "version", VERSION, "kernels", list, "forbid", "max_share", "match",
                             "quantize|transpose", "share", 0.10);
    if (!root) return status_set(SOL_E_MEMORY, "out of memory for a manifest");
    enum { DIGITS = 6 };
    int failed = json_dumpf(root, to, JSON_INDENT(2) | JSON_REAL_PRECISION(DIGITS));
    json_decref(root);
    if (failed || fputs("\n", to) == EOF)
        return status_set(SOL_E_IO, "cannot write the manifest: %s", strerror(errno));
    return SOL_OK;
}

/* ---- checking ---- */

static enum sol_status violation(struct manifest *m, const char *subject, const char *fmt, ...)
    SOL_PRINTF(3, 4);
static enum sol_status violation(struct manifest *m, const char *subject, const char *fmt, ...)
{
    char text[TEXT_SIZE];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    SOL_TRY(array_grow(&m->violations, m->n_violations, &m->violation_room, sizeof *m->violations,
                       "violated gates"));
    const char *copy = arena_strndup(m->texts, text, strlen(text));
    if (!copy) return SOL_E_MEMORY;
    m->violations[m->n_violations++] = (struct rules_violation){subject, copy};
    return SOL_OK;
}

static bool matches(const struct gate *g, const struct gate_kernel *k)
{
    if (g->exact) return strcmp(g->text, k->name) == 0;
    if (regexec(&g->regex, k->name, 0, NULL, 0) == 0) return true;
    /* A category stands for its kernels where shares are concerned, so that "transpose" means all.
     */
    return g->kind == GATE_MAX_SHARE && k->category &&
           regexec(&g->regex, k->category, 0, NULL, 0) == 0;
}

static enum sol_status check_gate(struct manifest *m, const struct gate *g,
                                  const struct gate_kernel *kernels, size_t n, double total)
{
    double calls = 0, per_token = 0, time = 0;
    const char *first = NULL;
    for (size_t i = 0; i < n; i++) {
        const struct gate_kernel *k = &kernels[i];
        if (!matches(g, k)) continue;
        if (!first && k->calls > 0) first = k->name;
        calls += k->calls;
        per_token += k->per_token;
        time += k->time_ns > 0 ? k->time_ns : 0;
    }
    double share = total > 0 ? time / total : 0;
    if (g->kind == GATE_FORBID)
        return first ? violation(m, g->text, "forbidden kernel %.200s ran %.0f times", first, calls)
                     : SOL_OK;
    if (g->kind == GATE_EXPECT && !first)
        return violation(m, g->text, "expected kernel %.200s did not run", g->text);
    if (g->kind == GATE_EXPECT && !isnan(g->count)) {
        if (isnan(per_token))
            SOL_TRY(violation(m, g->text,
                              "%.200s: calls per token are not known, so %g cannot be checked",
                              g->text, g->count));
        /* A step at the edge of what was measured may be counted in part. */
        else if (fabs(per_token - g->count) > 0.005 * g->count + 1e-9)
            SOL_TRY(violation(m, g->text, "%.200s ran %.4g times per token, expected %g", g->text,
                              per_token, g->count));
    }
    if (share > g->high || share < g->low)
        return violation(m, g->text, "%.200s takes %.2f %% of kernel time, %s %.4g %%", g->text,
                         100 * share, share > g->high ? "more than" : "less than",
                         100 * (share > g->high ? g->high : g->low));
    return SOL_OK;
}

enum sol_status manifest_check(struct manifest *m, const struct gate_kernel *kernels, size_t n,
                               const struct rules_violation **violations, size_t *n_violations)
{
    double total = total_time(kernels, n);
    arena_destroy(m->texts);
    m->texts = NULL;
    m->n_violations = *n_violations = 0;
    SOL_TRY(arena_create(4096, &m->texts));
    for (size_t i = 0; i < m->count; i++) SOL_TRY(check_gate(m, &m->gates[i], kernels, n, total));
    *violations = m->violations;
    *n_violations = m->n_violations;
    return SOL_OK;
}

/* ---- kernels ---- */

enum sol_status gate_kernels_of_summary(const struct timeline *t, const struct trace_summary *s,
                                        double tokens, struct gate_kernel **out, size_t *n)
{
    *n = 0;
    *out = calloc(s->n_kernels + 1, sizeof **out);
    if (!*out) return status_set(SOL_E_MEMORY, "out of memory for gates");
    for (size_t i = 0; i < s->n_kernels; i++) {
        const struct kernel_row *row = &s->kernels[i];
        (*out)[(*n)++] = (struct gate_kernel){
            .name = timeline_text(t, row->name),
            .category = category_name(row->category),
            .calls = (double)row->count,
            .per_token = tokens > 0 ? (double)row->count / tokens : (double)NAN,
            .time_ns = (double)row->total,
        };
    }
    return SOL_OK;
}

enum sol_status gate_kernels_of_record(const struct store_kernel *kernels, size_t n_kernels,
                                       const char *phase, struct gate_kernel **out, size_t *n)
{
    *n = 0;
    *out = calloc(n_kernels + 1, sizeof **out);
    if (!*out) return status_set(SOL_E_MEMORY, "out of memory for gates");
    for (size_t i = 0; i < n_kernels; i++) {
        const struct store_kernel *k = &kernels[i];
        const char *name = k->name ? k->name : k->variant ? k->variant : k->op ? k->op : "?";
        if (phase && k->phase && strcmp(phase, k->phase) != 0) continue;
        size_t j = 0;
        while (j < *n && strcmp((*out)[j].name, name) != 0) j++;
        if (j == *n) (*out)[(*n)++] = (struct gate_kernel){.name = name, .category = k->category};
        (*out)[j].calls += k->calls > 0 ? (double)k->calls : 0;
        (*out)[j].per_token += k->calls_per_token;
        (*out)[j].time_ns += k->total_ns > 0 ? k->total_ns : 0;
    }
    return SOL_OK;
}
