/* Changes are read, matched with the works of a schedule, and replayed one by one and together. A
 * stored run without a trace becomes a time line first: its kernels in their order, each for the
 * time that it takes of a token, and what the test took beyond them as idle time behind. */
#include "advise/whatif.h"

#include <ctype.h>
#include <math.h>
#include <regex.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/status.h"
#include "stats/metric.h"
#include "trace/category.h"
#include "trace/replay.h"
#include "trace/role.h"

/* Kernels of a prefill may take less than a ns of a token. */
static const double row_scale = 1000;

enum { NAMES_MAX = 8, TEXT_SIZE = 512 };

enum what { WHAT_SCALE, WHAT_GAP, WHAT_GAP_HOST, WHAT_GAP_LAUNCH, WHAT_FUSE, WHAT_OVERLAP };

struct wanted {
    char text[TEXT_SIZE];
    regex_t regex;
};

struct change {
    const char *text;
    enum what what;
    double factor;
    struct wanted names[NAMES_MAX];
    size_t n;
};

/* What is asked about. */
struct subject {
    const struct timeline *t;
    const struct store_kernel *rows; /* of the events, in their order; NULL: a trace */
    struct schedule *schedule;
    enum kernel_role *roles; /* [n_works] */
    double *base;            /* [n_works] ns */
    double *least;           /* [n_works] ns that the work's bytes need; 0 unknown; NULL: a trace */
    double scale;            /* of the time line's ns */
    double measured, replayed, rest; /* ns: of a step; its replay; not of the time line */
    size_t steps;
};

static enum sol_status no_memory(void)
{
    return status_set(SOL_E_MEMORY, "out of memory for a what-if");
}

/* ---- reading changes ---- */

static enum sol_status bad(const char *text, const char *fmt, ...) SOL_PRINTF(2, 3);
static enum sol_status bad(const char *text, const char *fmt, ...)
{
    char why[TEXT_SIZE];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    return status_set(SOL_E_ARGUMENT, "--what-if '%.200s': %s", text, why);
}

static enum sol_status add_name(struct change *c, const char *name, size_t length)
{
    if (c->n == NAMES_MAX) return bad(c->text, "more than %d names", NAMES_MAX);
    struct wanted *w = &c->names[c->n];
    if (length == 0) return bad(c->text, "a name is missing");
    if (length >= sizeof w->text) return bad(c->text, "a name is too long");
    memcpy(w->text, name, length);
    w->text[length] = '\0';
    int failed = regcomp(&w->regex, w->text, REG_EXTENDED | REG_NOSUB | REG_ICASE);
    if (failed) {
        char why[100];
        regerror(failed, &w->regex, why, sizeof why);
        return bad(c->text, "'%.100s' is no expression: %s", w->text, why);
    }
    c->n++;
    return SOL_OK;
}

static enum sol_status read_names(struct change *c, const char *at)
{
    for (at += strspn(at, " "); *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        SOL_TRY(add_name(c, at, length));
        at += length;
    }
    return c->n >= 2 ? SOL_OK : bad(c->text, "name two kernels, one behind the other");
}

static enum sol_status read_factor(struct change *c, const char *text)
{
    char *end;
    c->factor = strtod(text, &end);
    if (end == text || *end || isspace((unsigned char)*text) ||
        !(c->factor >= 0 && c->factor <= 1000))
        return bad(c->text, "'%.60s' is no factor from 0 to 1000", text);
    return SOL_OK;
}

static enum sol_status read_change(struct change *c, const char *text)
{
    static const char *const gaps[] = {"gap", "gap.host", "gap.launch"};
    const char *equals = strrchr(text, '=');
    c->text = text;
    if (strncmp(text, "fuse ", 5) == 0 || strncmp(text, "overlap ", 8) == 0) {
        c->what = *text == 'f' ? WHAT_FUSE : WHAT_OVERLAP;
        return read_names(c, strchr(text, ' '));
    }
    if (!equals) return bad(text, "write NAME=FACTOR, gap=FACTOR, 'fuse A B' or 'overlap A B'");
    SOL_TRY(read_factor(c, equals + 1));
    size_t length = (size_t)(equals - text);
    for (size_t i = 0; i < sizeof gaps / sizeof *gaps; i++)
        if (strlen(gaps[i]) == length && strncmp(gaps[i], text, length) == 0) {
            c->what = (enum what)(WHAT_GAP + i);
            return SOL_OK;
        }
    return add_name(c, text, length);
}

static void free_changes(struct change *changes, size_t n)
{
    for (size_t i = 0; changes && i < n; i++)
        for (size_t k = 0; k < changes[i].n; k++) regfree(&changes[i].names[k].regex);
    free(changes);
}

static enum sol_status read_changes(const char *const *texts, size_t n, struct change **out)
{
    enum sol_status status = SOL_OK;
    *out = NULL;
    if (n < 1 || n > WHATIF_CHANGES_MAX)
        return status_set(SOL_E_ARGUMENT, "--what-if takes 1 to %d changes", WHATIF_CHANGES_MAX);
    struct change *changes = calloc(n, sizeof *changes);
    if (!changes) return no_memory();
    for (size_t i = 0; i < n && status == SOL_OK; i++) status = read_change(&changes[i], texts[i]);
    if (status == SOL_OK)
        *out = changes;
    else
        free_changes(changes, n);
    return status;
}

/* ---- which works a name means ---- */

static const struct store_kernel *row_of(const struct subject *s, size_t work)
{
    return s->rows ? &s->rows[s->schedule->works[work].event] : NULL;
}

static const char *kernel_name(const struct subject *s, size_t work)
{
    return timeline_text(s->t, s->t->events[s->schedule->works[work].event].name);
}

static bool same(const char *a, const char *b)
{
    return a && b && strcasecmp(a, b) == 0;
}

/* A stored run's category for products is "matmul", a trace's "gemm". */
static const char *category_word(const struct subject *s, size_t work)
{
    const struct trace_event *e = &s->t->events[s->schedule->works[work].event];
    if (s->rows) return row_of(s, work)->category;
    if (e->kind == EVENT_COPY || e->kind == EVENT_SET) return category_name(CATEGORY_COPY);
    return e->kind == EVENT_GRAPH ? category_name(CATEGORY_GRAPH)
                                  : category_name(category_of(kernel_name(s, work)));
}

/* "attn_in" of "attn_in/gemm". */
static bool is_parent(const char *name, const char *text)
{
    const char *slash = name ? strchr(name, '/') : NULL;
    return slash && strlen(text) == (size_t)(slash - name) &&
           strncasecmp(name, text, strlen(text)) == 0;
}

/* Of all works of that name alike. */
static bool is_word(const struct subject *s, size_t work, const char *text)
{
    const struct store_kernel *row = row_of(s, work);
    if (row && (same(row->op, text) || same(row->variant, text) || same(row->name, text) ||
                is_parent(row->name, text)))
        return true;
    if (same(kernel_name(s, work), text)) return true;
    const char *category = category_word(s, work);
    return same(category, text) || (same(category, "gemm") && same(text, "matmul"));
}

enum seen { SEEN_NOT, SEEN_NO, SEEN_YES };

/* Roles, ops and categories; where none is called so, kernels. Each name is looked at once. */
static enum sol_status match(const struct subject *s, const struct wanted *w, bool *out)
{
    size_t n = s->schedule->n_works, strings = timeline_string_count(s->t);
    uint8_t *words = calloc(2 * (strings + 1), 1);
    bool any = false;
    if (!words) return no_memory();
    uint8_t *names = words + strings + 1;
    for (int pass = 0; pass < 2 && !any; pass++)
        for (size_t i = 0; i < n; i++) {
            uint32_t name = s->t->events[s->schedule->works[i].event].name;
            uint8_t *seen = (pass ? names : words) + (name == TRACE_NONE ? strings : name);
            if (*seen == SEEN_NOT) {
                bool yes = pass ? regexec(&w->regex, kernel_name(s, i), 0, NULL, 0) == 0
                                : is_word(s, i, w->text);
                *seen = yes ? SEEN_YES : SEEN_NO;
            }
            out[i] = *seen == SEEN_YES || (!pass && same(role_name(s->roles[i]), w->text));
            any = any || out[i];
        }
    free(words);
    return SOL_OK;
}

static bool any_of(const bool *marks, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (marks[i]) return true;
    return false;
}

/* The roles that are there, for who asked for something else. */
static enum sol_status none_matches(const struct subject *s, const struct change *c,
                                    const char *name)
{
    char there[300] = "";
    bool seen[ROLE_COUNT] = {false};
    for (size_t i = 0; i < s->schedule->n_works; i++) {
        size_t length = strlen(there);
        enum kernel_role role = s->roles[i];
        if (seen[role]) continue;
        seen[role] = true;
        snprintf(there + length, sizeof there - length, "%s%s", length ? ", " : "",
                 role_name(role));
    }
    return bad(c->text, "no role, op, category or kernel '%.100s' here; roles: %s", name, there);
}

/* ---- changes to a schedule ---- */

struct plan {
    const struct subject *s;
    struct replay_change change;
    bool *touched; /* [n_works] */
    bool *marks;   /* [NAMES_MAX * n_works] */
    bool gaps;     /* only gaps were changed */
};

static void plan_free(struct plan *p)
{
    free(p->change.times);
    free(p->change.gone);
    free(p->change.beside);
    free(p->touched);
    free(p->marks);
}

static enum sol_status plan_make(struct plan *p, const struct subject *s)
{
    size_t n = s->schedule->n_works;
    *p = (struct plan){.s = s, .change = {.host_gaps = 1, .other_gaps = 1}, .gaps = true};
    p->change.times = malloc(n * sizeof(double));
    p->change.gone = calloc(n, sizeof(bool));
    p->change.beside = malloc(n * sizeof(uint32_t));
    p->touched = calloc(n, sizeof(bool));
    p->marks = calloc(n * NAMES_MAX, sizeof(bool));
    bool room = p->change.times && p->change.gone && p->change.beside && p->touched && p->marks;
    for (size_t i = 0; i < n && room; i++) {
        p->change.times[i] = s->base[i];
        p->change.beside[i] = TRACE_NONE;
    }
    return room ? SOL_OK : no_memory();
}

/* Two at once: as long as the longer one, but both have to be read. */
static double both(const struct plan *p, size_t a, size_t b)
{
    const double *times = p->change.times;
    double longer = fmax(times[a], times[b]), sum = times[a] + times[b];
    double least = p->s->least ? p->s->least[a] + p->s->least[b] : 0;
    return fmin(sum, fmax(longer, least));
}

static size_t next_of_stream(const struct schedule *s, size_t i)
{
    size_t next = i + 1;
    while (next < s->n_works && s->works[next].stream != s->works[i].stream) next++;
    return next;
}

/* The works of one stream that follow each other as the names do become one. */
static size_t fuse(struct plan *p, const struct change *c)
{
    const struct schedule *s = p->s->schedule;
    size_t found = 0;
    for (size_t i = 0; i < s->n_works; i++) {
        size_t works[NAMES_MAX] = {i}, n = 0;
        for (size_t at = i; n < c->n && at < s->n_works; at = next_of_stream(s, at)) {
            if (!p->marks[n * s->n_works + at] || p->change.gone[at]) break;
            works[n++] = at;
        }
        if (n < c->n) continue;
        for (size_t k = 1; k < n; k++) {
            p->change.times[i] = both(p, i, works[k]);
            p->change.gone[works[k]] = true;
            p->touched[works[k]] = true;
        }
        p->touched[i] = true;
        found++;
        i = works[n - 1];
    }
    return found;
}

/* Each later name's work starts with the work of the first name before it. */
static size_t overlap(struct plan *p, const struct change *c)
{
    const struct schedule *s = p->s->schedule;
    size_t found = 0, first = s->n_works;
    uint32_t used = 0; /* a bit for each name that runs beside `first` already */
    for (size_t i = 0; i < s->n_works; i++) {
        for (size_t k = 1; k < c->n; k++) {
            if (!p->marks[k * s->n_works + i] || first == s->n_works || (used & 1u << k)) continue;
            p->change.beside[i] = (uint32_t)first;
            p->change.times[i] = both(p, i, first);
            p->touched[i] = p->touched[first] = true;
            used |= 1u << k;
            found++;
            break;
        }
        if (p->marks[i] && p->change.beside[i] == TRACE_NONE) {
            first = i;
            used = 0;
        }
    }
    return found;
}

static size_t scale(struct plan *p, const struct change *c)
{
    size_t found = 0;
    for (size_t i = 0; i < p->s->schedule->n_works; i++) {
        if (!p->marks[i]) continue;
        p->change.times[i] *= c->factor;
        p->touched[i] = true;
        found++;
    }
    return found;
}

static enum sol_status apply_gap(struct plan *p, const struct change *c)
{
    if (p->s->rows && c->what != WHAT_GAP)
        return bad(c->text, "this run has no time line that says whose the gaps are; use gap=");
    if (c->what != WHAT_GAP_LAUNCH) p->change.host_gaps *= c->factor;
    if (c->what != WHAT_GAP_HOST) p->change.other_gaps *= c->factor;
    return SOL_OK;
}

static enum sol_status apply(struct plan *p, const struct change *c)
{
    size_t n = p->s->schedule->n_works, found;
    if (c->n == 0) return apply_gap(p, c);
    p->gaps = false;
    for (size_t k = 0; k < c->n; k++) {
        SOL_TRY(match(p->s, &c->names[k], p->marks + k * n));
        if (!any_of(p->marks + k * n, n)) return none_matches(p->s, c, c->names[k].text);
    }
    found = c->what == WHAT_FUSE      ? fuse(p, c)
            : c->what == WHAT_OVERLAP ? overlap(p, c)
                                      : scale(p, c);
    if (found) return SOL_OK;
    return bad(c->text, "these never run one right behind the other, so there is nothing to %s",
               c->what == WHAT_FUSE ? "fuse" : "overlap");
}

/* ---- answers ---- */

static enum sol_status answer(const struct plan *p, const char *text, struct whatif_result *out)
{
    const struct subject *s = p->s;
    double replayed, calls = 0, time = 0;
    SOL_TRY(replay_run(s->schedule, &p->change, &replayed));
    for (size_t i = 0; i < s->schedule->n_works; i++) {
        if (!p->touched[i]) continue;
        calls += s->rows ? row_of(s, i)->calls_per_token : 1;
        time += s->base[i];
    }
    double steps = (double)s->steps;
    *out = (struct whatif_result){.change = text,
                                  .kernels = p->gaps ? (double)NAN : calls / steps,
                                  .kernels_ns = p->gaps ? (double)NAN : time / steps / s->scale};
    /* A trace's step in proportion; kernels of a stored run and what is not of them. */
    if (s->rows)
        out->step_ns = replayed / s->scale + s->rest * p->change.other_gaps;
    else
        out->step_ns = s->replayed > 0 ? s->measured * replayed / s->replayed : s->measured;
    return SOL_OK;
}

static enum sol_status ask(const struct subject *s, const struct change *changes, size_t first,
                           size_t last, const char *text, struct whatif_result *out)
{
    struct plan p;
    enum sol_status status = plan_make(&p, s);
    for (size_t i = first; i < last && status == SOL_OK; i++) status = apply(&p, &changes[i]);
    if (status == SOL_OK) status = answer(&p, text, out);
    plan_free(&p);
    return status;
}

static enum sol_status ask_all(const struct subject *s, const struct change *changes, size_t n,
                               struct whatif_steps *out)
{
    out->measured_ns = s->measured;
    for (size_t i = 0; i < n; i++)
        SOL_TRY(ask(s, changes, i, i + 1, changes[i].text, &out->results[out->n_results++]));
    if (n > 1) SOL_TRY(ask(s, changes, 0, n, "all together", &out->results[out->n_results++]));
    return SOL_OK;
}

static enum sol_status new_steps(struct whatif_report *out, const char *metric, bool per_token,
                                 struct whatif_steps **steps)
{
    struct whatif_steps *grown = realloc(out->steps, (out->n_steps + 1) * sizeof *grown);
    if (!grown) return no_memory();
    out->steps = grown;
    *steps = &grown[out->n_steps];
    **steps = (struct whatif_steps){.metric = strdup(metric), .per_token = per_token};
    if (!(*steps)->metric) return no_memory();
    out->n_steps++;
    return SOL_OK;
}

/* ---- a trace ---- */

static void subject_free(struct subject *s)
{
    schedule_destroy(s->schedule);
    free(s->roles);
    free(s->base);
    free(s->least);
}

static enum sol_status subject_make(struct subject *s, const struct trace_window_set *windows)
{
    SOL_TRY(schedule_create(s->t, windows, &s->schedule));
    size_t n = s->schedule->n_works;
    s->roles = calloc(n, sizeof *s->roles);
    s->base = malloc(n * sizeof *s->base);
    if (!s->roles || !s->base) return no_memory();
    for (size_t i = 0; i < n; i++)
        s->base[i] = (double)(s->schedule->works[i].end - s->schedule->works[i].start);
    s->steps = s->schedule->n_steps;
    return replay_measured(s->schedule, &s->replayed);
}

/* Step by step, since a step is what roles are told from; what lies between steps has none. */
static enum sol_status find_roles(struct subject *s)
{
    const struct schedule *c = s->schedule;
    uint32_t *events = malloc((c->n_works + 1) * sizeof *events);
    if (!events) return no_memory();
    for (size_t i = 0; i < c->n_works; i++) {
        events[i] = c->works[i].event;
        s->roles[i] = ROLE_NOT_PLACED;
    }
    enum sol_status status = SOL_OK;
    for (size_t k = 0; k < c->n_steps && status == SOL_OK; k++) {
        const struct schedule_step *step = &c->steps[k];
        status = role_of_events(s->t, events + step->first, step->last - step->first,
                                s->roles + step->first);
    }
    free(events);
    return status;
}

enum sol_status whatif_of_timeline(const struct timeline *t, const struct trace_window_set *windows,
                                   const char *const *changes, size_t n, struct whatif_report *out)
{
    struct change *list;
    struct subject s = {.t = t, .scale = 1};
    struct whatif_steps *steps;
    bool found = windows && windows->count;
    *out = (struct whatif_report){.gpu = true};
    for (size_t i = 0; i < t->n_devices; i++)
        if (t->devices[i].cpu) out->gpu = false;
    SOL_TRY(read_changes(changes, n, &list));
    enum sol_status status = subject_make(&s, windows);
    if (status == SOL_OK) status = find_roles(&s);
    if (status == SOL_OK) status = new_steps(out, found ? "step" : "span", false, &steps);
    if (status == SOL_OK) {
        const struct trace_window *w = found ? &windows->windows[windows->typical] : NULL;
        s.measured = w ? (double)(w->end - w->begin) : s.replayed;
        steps->count = s.steps;
        status = ask_all(&s, list, n, steps);
    }
    subject_free(&s);
    free_changes(list, n);
    return status;
}

/* ---- kernels of a stored run ---- */

static bool is_part(const struct store_kernel *row, const char *metric, const char *phase)
{
    return row->metric && strcmp(row->metric, metric) == 0 && row->total_ns >= 0 &&
           (!phase || same(row->phase, phase));
}

/* The rows that are of this metric, with times of a token; never longer together than the test:
 * kernels of a GPU overlap in it and were timed apart. */
static enum sol_status rows_of(const struct store_record *record, const char *phase,
                               const struct store_metric *m, struct store_kernel **rows, size_t *n)
{
    double sum = 0, whole = metric_figure_value(m);
    *n = 0;
    *rows = malloc((record->n_kernels + 1) * sizeof **rows);
    if (!*rows) return no_memory();
    for (size_t i = 0; i < record->n_kernels; i++) {
        struct store_kernel row = record->kernels[i];
        if (!is_part(&row, m->name, phase)) continue;
        double tokens = metric_row_tokens(&row);
        row.total_ns /= tokens;
        row.limit_ns = row.limit_ns > 0 ? fmin(row.limit_ns / tokens, row.total_ns) : 0;
        if (!(row.calls_per_token > 0)) row.calls_per_token = (double)row.calls;
        sum += row.total_ns;
        (*rows)[(*n)++] = row;
    }
    for (size_t i = 0; i < *n && sum > whole && whole > 0; i++) {
        (*rows)[i].total_ns *= whole / sum;
        (*rows)[i].limit_ns *= whole / sum;
    }
    return SOL_OK;
}

static enum sol_status row_timeline(const struct store_kernel *rows, size_t n, struct timeline *t)
{
    struct trace_event e = {.kind = EVENT_KERNEL, .detail = TRACE_NONE};
    struct trace_device device = {.name = TRACE_NONE};
    SOL_TRY(timeline_add_process(t, &(struct trace_process){.command = TRACE_NONE}, &e.process));
    SOL_TRY(timeline_add_device(t, &device, &e.device));
    for (size_t i = 0; i < n; i++) {
        char name[TEXT_SIZE];
        const char *variant = rows[i].variant ? rows[i].variant : "";
        snprintf(name, sizeof name, "%s%s%s", rows[i].name ? rows[i].name : "", *variant ? " " : "",
                 variant);
        SOL_TRY(timeline_string(t, name, strlen(name), &e.name));
        e.start = e.end;
        /* At least 1, so that the order is that of the rows. */
        e.end += 1 + (int64_t)(rows[i].total_ns * row_scale);
        SOL_TRY(timeline_add(t, &e));
    }
    return timeline_finish(t);
}

/* "attn_in" for "attn_in/gemm". */
static enum kernel_role row_role(const struct store_kernel *row)
{
    char parent[TEXT_SIZE];
    if (!row->op) return ROLE_NOT_PLACED;
    snprintf(parent, sizeof parent, "%s", row->name ? row->name : "");
    parent[strcspn(parent, "/")] = '\0';
    return role_of_op(parent, row->op);
}

static enum sol_status ask_rows(struct subject *s, const struct timeline *t, size_t n,
                                const struct change *changes, size_t n_changes,
                                struct whatif_steps *out)
{
    s->t = t;
    SOL_TRY(subject_make(s, NULL));
    s->least = malloc(n * sizeof *s->least);
    if (!s->least) return no_memory();
    for (size_t i = 0; i < n; i++) {
        s->roles[i] = row_role(&s->rows[i]);
        s->least[i] = s->rows[i].limit_ns * row_scale;
    }
    s->rest = fmax(0, s->measured - s->replayed / row_scale);
    return ask_all(s, changes, n_changes, out);
}

static enum sol_status ask_metric(const struct store_record *record, const char *phase,
                                  const struct store_metric *m, const struct change *changes,
                                  size_t n_changes, struct whatif_report *out)
{
    struct store_kernel *rows;
    struct timeline *t = NULL;
    struct whatif_steps *steps;
    size_t n;
    SOL_TRY(rows_of(record, phase, m, &rows, &n));
    struct subject s = {.rows = rows, .scale = row_scale, .measured = metric_figure_value(m)};
    enum sol_status status = n ? timeline_create(&t) : SOL_OK;
    if (n && status == SOL_OK) status = row_timeline(rows, n, t);
    bool token = same(m->unit, "ns/token");
    if (n && status == SOL_OK) status = new_steps(out, m->name, token, &steps);
    if (n && status == SOL_OK) status = ask_rows(&s, t, n, changes, n_changes, steps);
    subject_free(&s);
    timeline_destroy(t);
    free(rows);
    return status;
}

enum sol_status whatif_of_record(const struct store_record *record, const char *phase,
                                 const char *const *changes, size_t n, struct whatif_report *out)
{
    struct change *list;
    *out = (struct whatif_report){.gpu = record->run.backend &&
                                         strncmp(record->run.backend, "cuda", 4) == 0};
    SOL_TRY(read_changes(changes, n, &list));
    enum sol_status status = SOL_OK;
    for (size_t i = 0; i < record->n_metrics && status == SOL_OK; i++)
        status = ask_metric(record, phase, &record->metrics[i], list, n, out);
    free_changes(list, n);
    if (status == SOL_OK && out->n_steps == 0)
        return status_set(SOL_E_ARGUMENT,
                          "run %s (%s) has no times of kernels%s%s; make one with sol profile, or "
                          "sol bench --ops",
                          record->run.id, record->run.kind, phase ? " in " : "",
                          phase ? phase : "");
    return status;
}

void whatif_report_free(struct whatif_report *report)
{
    for (size_t i = 0; i < report->n_steps; i++) free(report->steps[i].metric);
    free(report->steps);
    *report = (struct whatif_report){0};
}
