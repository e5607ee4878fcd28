#include "report/steps.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "profile/kept.h"
#include "report/figures.h"
#include "report/page.h"
#include "report/svg.h"
#include "trace/category.h"
#include "trace/window.h"

enum { STREAMS_MAX = 4, RANK_STREAMS_MAX = 2, THREADS_MAX = 2, TRACKS_MAX = 256 };

const char *step_class_name(enum step_class class)
{
    static const char *const names[STEP_CLASSES] = {"matmul",
                                                    "attention",
                                                    "mixture of experts",
                                                    "norm and elementwise",
                                                    "copy or set",
                                                    "other kernels",
                                                    "gap",
                                                    "call into the driver",
                                                    "wait for the device",
                                                    "communication",
                                                    "wait for a slower rank"};
    return (unsigned)class < STEP_CLASSES ? names[class] : "?";
}

/* ---- classes ---- */

static enum step_class kernel_class(const char *name)
{
    switch (category_of(name)) {
    case CATEGORY_GEMM:
        return STEP_MATMUL;
    case CATEGORY_ATTENTION:
    case CATEGORY_SOFTMAX:
        return STEP_ATTENTION;
    case CATEGORY_MOE:
        return STEP_MOE;
    case CATEGORY_NORM:
    case CATEGORY_ROPE:
    case CATEGORY_ELEMENTWISE:
    case CATEGORY_REDUCE:
        return STEP_ELEMENTWISE;
    case CATEGORY_COPY:
        return STEP_COPY;
    case CATEGORY_COMMUNICATION:
        return STEP_COMMUNICATION;
    default:
        return STEP_OTHER;
    }
}

static enum step_class class_of(const struct timeline *t, const struct trace_event *e)
{
    const char *name = timeline_text(t, e->name);
    if (e->kind == EVENT_COPY || e->kind == EVENT_SET) return STEP_COPY;
    if (e->kind == EVENT_KERNEL) return kernel_class(name);
    if (e->kind == EVENT_GRAPH) return STEP_OTHER;
    return e->kind == EVENT_SYNC || strstr(name, "Synchronize") ? STEP_WAIT : STEP_CALL;
}

/* ---- lanes ---- */

/* What happened on one stream or thread. */
struct track {
    uint64_t key;
    uint32_t number;
    uint16_t device;
    bool host;
    double busy;
    size_t count;
};

struct maker {
    const struct timeline *t;
    int64_t begin, end;
    uint16_t device;
    const struct trace_communication *ranks; /* NULL: only the device */
    struct step *step;
    struct track tracks[TRACKS_MAX];
    size_t n_tracks;
};

static bool is_host(const struct trace_event *e)
{
    return e->kind == EVENT_API || e->kind == EVENT_SYNC || e->kind == EVENT_LOAD;
}

/* Place among the ranks; SIZE_MAX: none. */
static size_t rank_place(const struct maker *m, uint16_t device)
{
    const struct trace_rank *rank = m->ranks ? trace_rank_of(m->ranks, device) : NULL;
    return rank ? (size_t)(rank - m->ranks->ranks) : SIZE_MAX;
}

/* Waits carry the stream that they wait for, so they are told by their call alone where there is
 * one; those without have a thread of their own. */
static bool belongs(const struct maker *m, const struct trace_event *e)
{
    if (e->end <= m->begin || e->start >= m->end || e->end == e->start) return false;
    if (event_on_device(e->kind))
        return m->ranks ? rank_place(m, e->device) < STEP_RANKS_MAX : e->device == m->device;
    return is_host(e) && e->kind != EVENT_SYNC;
}

static uint64_t key_of(const struct trace_event *e)
{
    bool host = is_host(e);
    return (uint64_t)host << 63 | (uint64_t)(e->process & 0x7fff) << 48 |
           (uint64_t)(host ? 0 : e->context) << 32 | e->track;
}

static double part_in(const struct maker *m, const struct trace_event *e)
{
    int64_t begin = e->start > m->begin ? e->start : m->begin;
    int64_t end = e->end < m->end ? e->end : m->end;
    return (double)(end - begin);
}

static void count_event(struct maker *m, const struct trace_event *e)
{
    uint64_t key = key_of(e);
    size_t at = 0;
    enum step_class class = class_of(m->t, e);
    if (is_host(e) || e->device == m->device) {
        m->step->sums[class].count++;
        m->step->sums[class].ns += part_in(m, e);
        if (!is_host(e)) m->step->works++;
    }
    while (at < m->n_tracks && (m->tracks[at].key != key || m->tracks[at].device != e->device))
        at++;
    if (at == TRACKS_MAX) return;
    if (at == m->n_tracks)
        m->tracks[m->n_tracks++] =
            (struct track){.key = key, .number = e->track, .device = e->device, .host = is_host(e)};
    m->tracks[at].busy += part_in(m, e);
    m->tracks[at].count++;
}

/* The host first; then what did most. */
static int by_work(const void *a, const void *b)
{
    const struct track *x = a, *y = b;
    if (x->host != y->host) return x->host ? -1 : 1;
    if (x->busy != y->busy) return x->busy < y->busy ? 1 : -1;
    return (x->key > y->key) - (x->key < y->key);
}

static void name_lane(const struct maker *m, struct step_lane *lane, const char *what)
{
    if (m->ranks)
        snprintf(lane->name, sizeof lane->name, "%zu: %s", rank_place(m, lane->device), what);
    else
        snprintf(lane->name, sizeof lane->name, "%s", what);
}

static void add_lane(struct maker *m, const struct track *track, size_t place)
{
    struct step_lane *lane = &m->step->lanes[m->step->n_lanes++];
    char what[24];
    lane->key = track->key;
    lane->device = track->device;
    if (!track->host) {
        snprintf(what, sizeof what, "stream %u", track->number);
        name_lane(m, lane, what);
    } else if (place == 0) {
        snprintf(lane->name, sizeof lane->name, "host");
    } else {
        snprintf(lane->name, sizeof lane->name, "host, thread %zu", place + 1);
    }
}

/* Of the host (`device`: TRACE_NO_DEVICE), or of a device with a lane for its gaps. */
static void choose_lanes_of(struct maker *m, uint16_t device, size_t most, size_t *others)
{
    const bool host = device == TRACE_NO_DEVICE;
    size_t n = 0;
    for (size_t i = 0; i < m->n_tracks; i++) {
        const struct track *track = &m->tracks[i];
        if (track->host != host || (!host && track->device != device)) continue;
        if (n == most)
            ++*others;
        else
            add_lane(m, track, n++);
    }
    if (host || n == 0) return;
    struct step_lane *gaps = &m->step->lanes[m->step->n_lanes++];
    gaps->device = device;
    gaps->key = UINT64_MAX;
    name_lane(m, gaps, "gaps");
}

static void choose_lanes(struct maker *m)
{
    struct step *s = m->step;
    if (m->n_tracks) qsort(m->tracks, m->n_tracks, sizeof *m->tracks, by_work);
    choose_lanes_of(m, TRACE_NO_DEVICE, THREADS_MAX, &s->other_threads);
    if (!m->ranks) {
        choose_lanes_of(m, m->device, STREAMS_MAX, &s->other_streams);
        return;
    }
    for (size_t i = 0; i < m->ranks->n_ranks; i++) {
        if (i < STEP_RANKS_MAX)
            choose_lanes_of(m, m->ranks->ranks[i].device, RANK_STREAMS_MAX, &s->other_streams);
        ++*(i < STEP_RANKS_MAX ? &s->ranks : &s->other_ranks);
    }
}

static enum sol_status add_piece(struct step_lane *lane, const struct step_piece *piece)
{
    SOL_TRY(array_grow(&lane->pieces, lane->count, &lane->room, sizeof *lane->pieces,
                       "the pieces of a step"));
    lane->pieces[lane->count++] = *piece;
    return SOL_OK;
}

/* A collective in two: until the last rank had come, and from then on. */
static enum sol_status add_event(struct maker *m, size_t index)
{
    const struct trace_event *e = &m->t->events[index];
    const struct trace_collective *c = m->ranks ? trace_collective_of(m->ranks, index) : NULL;
    struct step *s = m->step;
    uint64_t key = key_of(e);
    for (size_t i = 0; i < s->n_lanes; i++) {
        struct step_lane *lane = &s->lanes[i];
        if (lane->key != key || (!is_host(e) && lane->device != e->device)) continue;
        double begin = e->start > m->begin ? (double)(e->start - m->begin) : 0;
        const double end = begin + part_in(m, e);
        double moved = c ? fmin((double)(c->arrived - m->begin), end) : begin;
        if (moved > begin)
            SOL_TRY(add_piece(lane, &(struct step_piece){begin, moved, TRACE_NONE, STEP_LATE}));
        if (moved > begin && e->device == m->device) {
            s->sums[STEP_LATE].count++;
            s->sums[STEP_LATE].ns += moved - begin;
            s->sums[STEP_COMMUNICATION].ns -= moved - begin;
        }
        begin = fmax(begin, moved);
        return begin < end
                   ? add_piece(lane, &(struct step_piece){begin, end, e->name, class_of(m->t, e)})
                   : SOL_OK;
    }
    return SOL_OK;
}

/* When no stream of the device has work, those without a lane included. */
static enum sol_status add_gaps(struct maker *m, struct step_lane *lane)
{
    struct step *s = m->step;
    int64_t done = m->begin;
    for (size_t i = 0; i <= m->t->count; i++) {
        bool end = i == m->t->count;
        const struct trace_event *e = end ? NULL : &m->t->events[i];
        if (!end && (!event_on_device(e->kind) || e->device != lane->device || !belongs(m, e)))
            continue;
        int64_t start = end ? m->end : e->start;
        if (start > done) {
            SOL_TRY(add_piece(lane, &(struct step_piece){(double)(done - m->begin),
                                                         (double)(start - m->begin), TRACE_NONE,
                                                         STEP_GAP}));
            s->sums[STEP_GAP].count += lane->device == m->device;
            s->sums[STEP_GAP].ns += lane->device == m->device ? (double)(start - done) : 0;
        }
        if (!end && e->end > done) done = e->end;
    }
    return SOL_OK;
}

enum sol_status step_make(const struct timeline *t, const struct trace_communication *ranks,
                          uint16_t device, int64_t begin, int64_t end, struct step *out)
{
    struct maker *m = calloc(1, sizeof *m);
    *out = (struct step){.t = t, .span_ns = (double)(end - begin)};
    if (!m) return status_set(SOL_E_MEMORY, "no memory for a step");
    *m = (struct maker){.t = t, .begin = begin, .end = end, .device = device, .step = out};
    if (ranks && ranks->n_ranks > 1 && trace_rank_of(ranks, device)) m->ranks = ranks;
    enum sol_status status = SOL_OK;
    for (size_t i = 0; i < t->count; i++)
        if (belongs(m, &t->events[i])) count_event(m, &t->events[i]);
    choose_lanes(m);
    for (size_t i = 0; i < t->count && status == SOL_OK; i++)
        if (belongs(m, &t->events[i])) status = add_event(m, i);
    for (size_t i = 0; i < out->n_lanes && status == SOL_OK; i++)
        if (out->lanes[i].key == UINT64_MAX) status = add_gaps(m, &out->lanes[i]);
    free(m);
    return status;
}

void step_free(struct step *step)
{
    for (size_t i = 0; i < STEP_LANES_MAX; i++) free(step->lanes[i].pieces);
    *step = (struct step){.n_lanes = 0};
}

/* ---- what a run kept ---- */

struct kept_step {
    struct timeline *t;
    struct trace_window_set windows;
    struct trace_communication ranks;
    uint16_t device; /* that the step's sums are of */
    struct step step;
    char why[240]; /* it cannot be shown; else "" */
};

/* Of the first work; a trace without steps has no better one. */
static uint16_t first_device(const struct timeline *t)
{
    for (size_t i = 0; i < t->count; i++)
        if (event_on_device(t->events[i].kind)) return t->events[i].device;
    return TRACE_NO_DEVICE;
}

static enum sol_status find_step(struct kept_step *k)
{
    SOL_TRY(trace_windows_find(k->t, NULL, &k->windows));
    SOL_TRY(trace_communicate(k->t, &k->windows, &k->ranks));
    k->device = k->windows.count ? k->windows.device : first_device(k->t);
    if (k->windows.count == 0) return step_make(k->t, &k->ranks, k->device, 0, k->t->end, &k->step);
    const struct trace_window *w = &k->windows.windows[k->windows.typical];
    return step_make(k->t, &k->ranks, k->device, w->begin, w->end, &k->step);
}

enum sol_status kept_step_load(const struct store *store, const struct store_record *record,
                               struct kept_step **out)
{
    *out = NULL;
    if (!store || !record->n_artifacts) return SOL_OK;
    struct kept_step *k = calloc(1, sizeof *k);
    if (!k) return status_set(SOL_E_MEMORY, "no memory for a report");
    enum sol_status status = profile_kept_timeline(store, record, true, &k->t);
    if (status == SOL_OK && k->t) status = find_step(k);
    if (status != SOL_OK && status != SOL_E_MEMORY) {
        snprintf(k->why, sizeof k->why, "%s", sol_last_error());
        status = SOL_OK;
    }
    if (status == SOL_OK && (*k->why || k->step.works))
        *out = k;
    else
        kept_step_destroy(k);
    return status;
}

void kept_step_destroy(struct kept_step *kept)
{
    if (!kept) return;
    step_free(&kept->step);
    trace_windows_free(&kept->windows);
    trace_communication_free(&kept->ranks);
    timeline_destroy(kept->t);
    free(kept);
}

/* ---- the section ---- */

static void show_key(struct html *html, const struct step *s)
{
    html_raw(html, "<ul class=\"key\">");
    for (int i = 0; i < STEP_CLASSES; i++) {
        if (s->sums[i].count == 0) continue;
        html_print(
            html,
            "<li><svg viewBox=\"0 0 14 14\" aria-hidden=\"true\"><rect class=\"k%d\" y=\"2\" "
            "width=\"14\" height=\"10\"/></svg>%s</li>",
            i, step_class_name((enum step_class)i));
    }
    html_raw(html, "</ul>\n");
}

/* The figures of the drawing, for who does not see it. */
static void show_sums(struct html *html, const struct step *s)
{
    char text[FIGURE_SIZE];
    page_table_begin(html, "What the step is made of", "part|>how often|>time|=of the step");
    for (int i = 0; i < STEP_CLASSES; i++) {
        double part = s->sums[i].ns / s->span_ns;
        if (s->sums[i].count == 0) continue;
        html_print(html, "<tr><th scope=\"row\">%s</th>", step_class_name((enum step_class)i));
        page_number_cell(html, figure_count((int64_t)s->sums[i].count, text));
        page_number_cell(html, figure_time(s->sums[i].ns, text));
        page_share_cells(html, figure_percent(part, text), part);
        html_raw(html, "</tr>\n");
    }
    page_table_end(html);
    page_note(html, "What runs at the same time counts in full, so that shares may add up to more "
                    "than the step.");
}

static void show_caption(struct html *html, const struct kept_step *k)
{
    static const char *const found[WINDOW_METHOD_COUNT] = {
        [WINDOW_MARKER] = "by a range that the program marked",
        [WINDOW_GRAPH] = "by the runs of a CUDA graph",
        [WINDOW_SEQUENCE] = "by the kernels that repeat"};
    const struct step *s = &k->step;
    char time[FIGURE_SIZE], count[FIGURE_SIZE];
    html_raw(html, "<p class=\"note\">");
    if (k->windows.count)
        html_print(html, "Step %zu of the %zu that were kept, the one of median length, found %s",
                   k->windows.typical + 1, k->windows.count, found[k->windows.method]);
    else
        html_raw(html, "No step repeats in the trace that was kept; this is all of it");
    html_print(html, ". It takes %s, with %s pieces of work of the device.",
               figure_time(s->span_ns, time), figure_count((int64_t)s->works, count));
    if (s->ranks)
        html_print(
            html,
            " %zu ranks share the work: lanes are named rank: stream, on one clock; the table "
            "is of rank %zu.",
            s->ranks + s->other_ranks,
            (size_t)(trace_rank_of(&k->ranks, k->device) - k->ranks.ranks));
    if (s->other_ranks) html_print(html, " %zu of them are not drawn.", s->other_ranks);
    if (s->other_streams) html_print(html, " %zu more streams are not drawn.", s->other_streams);
    if (s->other_threads)
        html_print(html, " %zu more threads of the host are not drawn.", s->other_threads);
    html_raw(html, "</p>\n");
}

void steps_section(struct html *html, const struct kept_step *k)
{
    if (!k) return;
    page_section(html, "step", "Time line of a step");
    if (*k->why) {
        html_print(html, "<p class=\"note\">The trace that was kept cannot be read: %s.</p>\n",
                   k->why);
        return;
    }
    show_caption(html, k);
    show_key(html, &k->step);
    svg_figure(html, chart_step, &k->step, NULL);
    show_sums(html, &k->step);
}
