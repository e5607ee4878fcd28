#include "report/run_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/ends_with.h"
#include "base/names.h"

enum { SHOWN_WIDTH = 72, LABEL_WIDTH = 20 }; /* characters */

static const double unknown = (double)NAN;

/* ---- metrics ---- */

static bool same_test(json_t *test, json_t *record)
{
    static const char *const keys[] = {"n_prompt", "n_gen", "n_depth", "n_parallel"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_integer_value(json_object_get(test, keys[i])) !=
            json_integer_value(json_object_get(record, keys[i])))
            return false;
    return json_object_get(test, "n_prompt") != NULL;
}

static json_t *records_of(const struct run_data *d)
{
    return json_object_get(d->payload, "records");
}

static void *copy_text(struct run_data *d, const char *text)
{
    return text ? arena_strndup(d->arena, text, strlen(text)) : NULL;
}

static enum sol_status add_metrics(struct run_data *d)
{
    d->n_metrics = d->record->n_metrics;
    d->metrics = ARENA_NEW(d->arena, struct run_metric, d->n_metrics + 1);
    if (!d->metrics) return SOL_E_MEMORY;
    for (size_t i = 0; i < d->n_metrics; i++) {
        struct run_metric *m = &d->metrics[i];
        *m = (struct run_metric){.metric = &d->record->metrics[i]};
        SOL_TRY(metric_figure_of(m->metric, &m->figure));
        d->n_speed += m->figure.speed && m->figure.stored.count;
        const char *text = m->metric->test_json;
        json_t *test = text ? json_loads(text, 0, NULL) : NULL, *record;
        size_t index;
        m->stopped = copy_text(d, json_string_value(json_object_get(test, "stopped")));
        json_array_foreach(records_of(d), index, record)
        {
            if (!m->figure.speed || !same_test(test, record)) continue;
            m->rating = json_string_value(json_object_get(record, "rating"));
            m->rated_against = json_object_get(record, "rated_against");
        }
        json_decref(test);
    }
    return SOL_OK;
}

/* ---- kernels ---- */

static bool same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

static double add_known(double sum, double value)
{
    return isnan(value) ? sum : isnan(sum) ? value : sum + value;
}

static const char *first_text(const char *a, const char *b, const char *c)
{
    return a && *a ? a : b && *b ? b : c;
}

/* Records of one group that are one kernel: the same op, variant and name, of any layer. */
static int by_kernel(const void *a, const void *b)
{
    const struct store_kernel *x = *(const struct store_kernel *const *)a,
                              *y = *(const struct store_kernel *const *)b;
    const char *const left[] = {x->metric, x->phase, x->op, x->name, x->variant, x->numerics};
    const char *const right[] = {y->metric, y->phase, y->op, y->name, y->variant, y->numerics};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        int order = strcmp(left[i] ? left[i] : "", right[i] ? right[i] : "");
        if (order) return order;
    }
    return 0;
}

static int by_time(const void *a, const void *b)
{
    const struct run_kernel *x = a, *y = b;
    double left = isnan(x->ns) ? -1 : x->ns, right = isnan(y->ns) ? -1 : y->ns;
    return left != right ? (left < right) - (left > right) : strcmp(x->name, y->name);
}

/* A kernel that never ran takes no time, whatever a token is. */
static bool counts_per_token(const struct store_kernel *k)
{
    return k->calls == 0 || (k->calls > 0 && k->calls_per_token > 0);
}

static const struct run_metric *find_metric(const struct run_data *d, const char *name)
{
    for (size_t i = 0; i < d->n_metrics; i++)
        if (same_text(d->metrics[i].metric->name, name)) return &d->metrics[i];
    return NULL;
}

/* Adds one record to the kernel that it belongs to. */
static void merge(struct run_kernel *into, const struct store_kernel *k, double part)
{
    into->ns = add_known(into->ns, k->total_ns * part);
    into->bytes = add_known(into->bytes, k->bytes * part);
    into->flops = add_known(into->flops, k->flops * part);
    into->limit_ns = add_known(into->limit_ns, k->limit_ns * part);
    into->calls = into->calls < 0 ? k->calls : into->calls + (k->calls < 0 ? 0 : k->calls);
    into->expected =
        into->expected < 0 ? k->expected : into->expected + (k->expected < 0 ? 0 : k->expected);
    into->wrong_count |= k->calls >= 0 && k->expected >= 0 && k->calls != k->expected;
    into->merged++;
}

/* What is not short among all of the group; equal just where the names are. */
static enum sol_status shorten(struct run_data *d, struct run_group *g, size_t width, bool label)
{
    const char **names = ARENA_NEW(d->arena, const char *, g->n_kernels + 1);
    char **out = calloc(g->n_kernels + 1, sizeof *out);
    enum sol_status status = names && out ? SOL_OK : SOL_E_MEMORY;
    for (size_t i = 0; i < g->n_kernels && status == SOL_OK; i++)
        names[i] = label ? g->kernels[i].label : g->kernels[i].name;
    if (status == SOL_OK) status = names_shorten(names, g->n_kernels, width, out);
    for (size_t i = 0; i < g->n_kernels && status == SOL_OK; i++) {
        const char *copy = copy_text(d, out[i]);
        if (!copy) status = SOL_E_MEMORY;
        *(label ? &g->kernels[i].label : &g->kernels[i].shown) = copy;
    }
    for (size_t i = 0; out && i < g->n_kernels; i++) free(out[i]);
    free(out);
    return status;
}

/* The list is still in the order of names. */
static enum sol_status label_kernels(struct run_data *d, struct run_group *g)
{
    for (size_t i = 0; i < g->n_kernels; i++) {
        struct run_kernel *k = &g->kernels[i];
        bool shared = (i && same_text(k[-1].name, k->name)) ||
                      (i + 1 < g->n_kernels && same_text(k[1].name, k->name));
        k->label = shared && *k->detail ? k->detail : k->name;
    }
    SOL_TRY(shorten(d, g, SHOWN_WIDTH, false));
    return shorten(d, g, LABEL_WIDTH, true);
}

/* What one of all its steps is like the median one: kernels were counted over all of them, and
 * their times are to add up to the figure that the metric has. */
static double share_of_step(const struct run_metric *m)
{
    double sum = 0;
    for (size_t i = 0; i < m->metric->n_samples; i++)
        if (!(m->metric->samples[i].flags & STORE_WARMUP)) sum += m->metric->samples[i].value;
    return m->figure.stored.value / sum;
}

static double number_at(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : unknown;
}

/* A trace's figures are of a step, and a group's of a token where it is known how many that has. */
static void read_traced(const json_t *json, double tokens, struct run_group *g)
{
    struct communication_figure *f = &g->communication;
    if (!communication_figure_read(json, f) || !(tokens > 0) || !same_text(g->per, "a token"))
        return;
    double *const times[] = {&f->collectives, &f->window_ns, &f->total_ns, &f->exposed_ns,
                             &f->waiting_ns};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) *times[i] /= tokens;
}

static void join_ranks(const struct run_data *d, struct run_group *g)
{
    const json_t *steady = json_object_get(d->payload, "steady"), *record;
    size_t i;
    if (same_text(g->metric, json_string_value(json_object_get(steady, "metric"))))
        read_traced(json_object_get(d->payload, "communication"),
                    number_at(json_object_get(d->payload, "steady"), "tokens"), g);
    json_array_foreach(records_of(d), i, record)
    {
        if (same_text(g->metric, json_string_value(json_object_get(record, "metric"))))
            communication_figure_read(json_object_get(record, "communication"), &g->communication);
    }
}

static enum sol_status fill_group(struct run_data *d, const struct store_kernel *const *list,
                                  size_t n, struct run_group *g)
{
    *g = (struct run_group){.metric = list[0]->metric,
                            .phase = list[0]->phase,
                            .limit_ns = unknown,
                            .measured_ns = unknown,
                            .metric_limit_ns = unknown};
    g->kernels = ARENA_NEW(d->arena, struct run_kernel, n);
    if (!g->kernels) return SOL_E_MEMORY;
    bool tokens = true, ran = false;
    const struct run_metric *m = find_metric(d, g->metric);
    for (size_t i = 0; i < n; i++) {
        tokens = tokens && counts_per_token(list[i]);
        ran = ran || list[i]->calls > 0;
    }
    /* A profile's metric "step" has one sample a step, and its kernels are of all of them. */
    bool steps = m && m->figure.stored.count && same_text(g->metric, "step") &&
                 same_text(m->metric->unit, "ns");
    g->per = tokens && ran ? "a token" : steps ? "a step" : NULL;
    for (size_t i = 0; i < n; i++) {
        const struct store_kernel *k = list[i];
        if (i == 0 || by_kernel(&list[i - 1], &list[i]) != 0)
            g->kernels[g->n_kernels++] = (struct run_kernel){
                .name = first_text(k->name, k->op, "(no name)"),
                .detail = k->op && *k->op ? first_text(k->variant, NULL, "") : "",
                .category = first_text(k->category, NULL, "other"),
                .numerics = first_text(k->numerics, NULL, ""),
                .calls = -1,
                .expected = -1,
                .ns = unknown,
                .bytes = unknown,
                .flops = unknown,
                .limit_ns = unknown,
            };
        double part = !g->per            ? 1
                      : !(tokens && ran) ? share_of_step(m)
                      : k->calls > 0     ? k->calls_per_token / (double)k->calls
                                         : 0;
        merge(&g->kernels[g->n_kernels - 1], k, part);
    }
    SOL_TRY(label_kernels(d, g));
    for (size_t i = 0; i < g->n_kernels; i++) {
        const struct run_kernel *k = &g->kernels[i];
        g->ns = add_known(g->ns, k->ns);
        g->untimed += isnan(k->ns);
        g->wrong_counts += k->wrong_count;
        g->limit_ns = add_known(g->limit_ns, k->limit_ns);
        if (isnan(k->limit_ns)) g->unlimited_ns = add_known(g->unlimited_ns, k->ns);
    }
    join_ranks(d, g);
    qsort(g->kernels, g->n_kernels, sizeof *g->kernels, by_time);
    return SOL_OK;
}

/* The metric's own time and limit stand beside the kernels' when all of them are in this group. */
static void join_metric(const struct run_data *d, struct run_group *g)
{
    size_t phases = 0;
    for (size_t i = 0; i < d->n_groups; i++) phases += same_text(d->groups[i].metric, g->metric);
    const struct run_metric *m = find_metric(d, g->metric);
    bool token = same_text(g->per, "a token");
    if (!g->per || phases != 1 || !m || !m->figure.stored.count || (token && !m->figure.speed))
        return;
    g->measured_ns = m->figure.stored.value;
    if (m->metric->limit > 0) g->metric_limit_ns = m->metric->limit;
}

static int by_place(const void *a, const void *b)
{
    const struct run_group *x = a, *y = b;
    if (x->headline != y->headline) return x->headline ? -1 : 1;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    return strcmp(x->phase ? x->phase : "", y->phase ? y->phase : "");
}

/* The first test of each phase comes first and is shown in full; the others keep their order. */
static void order_groups(struct run_data *d)
{
    size_t n = d->n_groups, headlines = 0;
    for (size_t i = 0; i < n; i++) {
        const struct run_metric *m = find_metric(d, d->groups[i].metric);
        d->groups[i].place = m ? (size_t)(m - d->metrics) : d->n_metrics;
    }
    if (n) qsort(d->groups, n, sizeof *d->groups, by_place);
    for (size_t i = 0; i < n; i++) {
        bool first = headlines < RUN_HEADLINES_MAX;
        for (size_t j = 0; j < i && first; j++)
            first = !d->groups[j].headline || !same_text(d->groups[j].phase, d->groups[i].phase);
        d->groups[i].headline = first;
        headlines += first;
    }
    if (n) qsort(d->groups, n, sizeof *d->groups, by_place);
}

static enum sol_status add_groups(struct run_data *d)
{
    size_t n = d->record->n_kernels, begin = 0;
    const struct store_kernel **list = ARENA_NEW(d->arena, const struct store_kernel *, n + 1);
    d->groups = ARENA_NEW(d->arena, struct run_group, n + 1);
    if (!list || !d->groups) return SOL_E_MEMORY;
    for (size_t i = 0; i < n; i++) list[i] = &d->record->kernels[i];
    if (n) qsort(list, n, sizeof *list, by_kernel);
    for (size_t i = 1; i <= n; i++) {
        if (i < n && same_text(list[i]->metric, list[begin]->metric) &&
            same_text(list[i]->phase, list[begin]->phase))
            continue;
        SOL_TRY(fill_group(d, list + begin, i - begin, &d->groups[d->n_groups++]));
        begin = i;
    }
    order_groups(d);
    for (size_t i = 0; i < d->n_groups; i++) join_metric(d, &d->groups[i]);
    return SOL_OK;
}

/* ---- what the payload adds ---- */

static void add_ceilings(struct run_data *d, json_t *limits)
{
    static const struct {
        const char *suffix;
        bool memory;
        double factor;
    } kinds[] = {{"_gb_s", true, 1e9}, {"_gflop_s", false, 1e9}, {"_tflop_s", false, 1e12}};
    const char *key;
    json_t *value;
    if (d->n_ceilings) return;
    json_object_foreach(limits, key, value)
    {
        double rate =
            json_number_value(json_is_object(value) ? json_object_get(value, "best") : value);
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            if (rate <= 0 || d->n_ceilings == RUN_CEILINGS_MAX || !ends_with(key, kinds[i].suffix))
                continue;
            struct run_ceiling *c = &d->ceilings[d->n_ceilings++];
            c->memory = kinds[i].memory;
            c->rate = rate * kinds[i].factor;
            snprintf(c->name, sizeof c->name, "%.*s", (int)(strlen(key) - strlen(kinds[i].suffix)),
                     key);
            for (char *at = c->name; *at; at++)
                if (*at == '_') *at = ' ';
        }
    }
}

static void add_gaps(struct run_data *d)
{
    json_t *time = json_object_get(d->payload, "device_time"), *gap;
    size_t index;
    d->span_ns = number_at(time, "span_ns");
    d->busy_ns = number_at(time, "busy_ns");
    d->gap_ns = number_at(time, "gap_ns");
    d->tracer_ns = number_at(time, "tracer_ns");
    d->gap_max_ns = number_at(time, "gap_max_ns");
    d->gap_count = json_is_integer(json_object_get(time, "gaps"))
                       ? json_integer_value(json_object_get(time, "gaps"))
                       : -1;
    json_array_foreach(json_object_get(d->payload, "gap_list"), index, gap)
    {
        double ns = number_at(gap, "ns");
        if (!(ns > 0) || d->n_gaps == RUN_GAPS_MAX) continue;
        d->gaps[d->n_gaps++] =
            (struct run_gap){ns, json_string_value(json_object_get(gap, "before")),
                             json_string_value(json_object_get(gap, "after")),
                             json_string_value(json_object_get(gap, "cause"))};
    }
}

enum sol_status run_data_create(const struct store_record *record, struct run_data **out)
{
    *out = NULL;
    struct run_data *d = calloc(1, sizeof *d);
    if (!d) return status_set(SOL_E_MEMORY, "no memory for a report");
    enum sol_status status = arena_create((size_t)1 << 16, &d->arena);
    if (status != SOL_OK) goto fail;
    d->record = record;
    /* What does not parse is as good as not there: the store checked it when it was written. */
    if (record->run.payload_json) d->payload = json_loads(record->run.payload_json, 0, NULL);
    if (record->environment_json) d->environment = json_loads(record->environment_json, 0, NULL);
    if ((status = add_metrics(d)) != SOL_OK || (status = add_groups(d)) != SOL_OK) goto fail;
    json_t *item;
    size_t index;
    json_array_foreach(records_of(d), index, item) add_ceilings(d, json_object_get(item, "limits"));
    add_ceilings(d, json_object_get(d->payload, "limits"));
    add_ceilings(d, json_object_get(d->environment, "limits"));
    add_gaps(d);
    *out = d;
    return SOL_OK;
fail:
    run_data_destroy(d);
    return status;
}

void run_data_destroy(struct run_data *data)
{
    if (!data) return;
    json_decref(data->payload);
    json_decref(data->environment);
    arena_destroy(data->arena);
    free(data);
}
