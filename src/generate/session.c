#include "generate/session_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/progress.h"
#include "base/status.h"
#include "ops/batch.h"

/* ---- life ---- */

/* A snapshot shares its pages with the sequence but for the last one, which each may need for
 * itself. */
static int64_t positions_wanted(int64_t context)
{
    int64_t pages = (context + KV_PAGE - 1) / KV_PAGE;
    return (pages + SESSION_SNAPSHOTS + 1) * KV_PAGE;
}

void session_engine_params(struct engine_params *p)
{
    p->sequences = 1;
    p->max_outputs = 1;
    p->snapshots = SESSION_SNAPSHOTS + 1;
    p->cache_positions = positions_wanted(p->context);
}

enum sol_status session_create(struct engine *engine, struct session **out)
{
    const struct engine_params *p = engine_params_of(engine);
    *out = NULL;
    if (p->snapshots <= SESSION_SNAPSHOTS ||
        engine_free_positions(engine) < positions_wanted(p->context))
        return status_set(SOL_E_ARGUMENT,
                          "a session needs an engine with %d snapshots and %lld positions of cache",
                          SESSION_SNAPSHOTS + 1, (long long)positions_wanted(p->context));
    struct session *s = calloc(1, sizeof *s);
    if (!s) goto fail;
    s->engine = engine;
    s->context = p->context;
    s->step = p->max_run;
    for (int32_t i = 0; i < SESSION_SNAPSHOTS; i++) s->slots[i] = i;
    s->tokens = malloc((size_t)s->context * sizeof *s->tokens);
    s->rows = malloc((size_t)s->step * sizeof *s->rows);
    if (!s->tokens || !s->rows) goto fail;
    *out = s;
    return SOL_OK;
fail:
    session_destroy(s);
    return status_set(SOL_E_MEMORY, "no memory for a session of %lld tokens",
                      (long long)p->context);
}

void session_destroy(struct session *s)
{
    if (!s) return;
    session_reset(s);
    free(s->rows);
    free(s->tokens);
    free(s);
}

/* ---- snapshots ---- */

static void drop_point(struct session *s, int at)
{
    const int32_t slot = s->slots[at];
    engine_drop_snapshot(s->engine, slot);
    for (int i = at; i + 1 < s->n_points; i++) {
        s->points[i] = s->points[i + 1];
        s->slots[i] = s->slots[i + 1];
    }
    s->slots[--s->n_points] = slot;
}

/* The one without which least would be computed again, by who wants to go back there. */
static int least_useful(const struct session *s)
{
    int least = 0;
    int64_t lost = s->points[0];
    for (int i = 1; i < s->n_points; i++) {
        if (s->points[i] - s->points[i - 1] >= lost) continue;
        lost = s->points[i] - s->points[i - 1];
        least = i;
    }
    return least;
}

/* At a position that the last step passed, behind all others. */
static enum sol_status add_point(struct session *s, int64_t position)
{
    if (s->n_points && s->points[s->n_points - 1] >= position) return SOL_OK;
    if (s->n_points == SESSION_SNAPSHOTS) drop_point(s, least_useful(s));
    SOL_TRY(engine_snapshot(s->engine, 0, position, s->slots[s->n_points]));
    s->points[s->n_points++] = position;
    return SOL_OK;
}

/* To the last snapshot at `most` or before it, or the beginning. Later ones go: what is computed
 * anew in other steps may differ from them in the last bits. */
static enum sol_status go_back(struct session *s, int64_t most)
{
    while (s->n_points && s->points[s->n_points - 1] > most) drop_point(s, s->n_points - 1);
    if (s->n_points) return engine_restore(s->engine, s->slots[s->n_points - 1], 0);
    engine_reset(s->engine, 0);
    return SOL_OK;
}

/* ---- state ---- */

const int32_t *session_tokens(const struct session *s, size_t *n)
{
    *n = (size_t)engine_position(s->engine, 0);
    return s->tokens;
}

int64_t session_context(const struct session *s)
{
    return s->context;
}

int64_t session_snapshots(const struct session *s, int64_t positions[SESSION_SNAPSHOTS])
{
    memcpy(positions, s->points, (size_t)s->n_points * sizeof *positions);
    return s->n_points;
}

void session_reset(struct session *s)
{
    while (s->n_points) drop_point(s, s->n_points - 1);
    engine_reset(s->engine, 0);
}

/* ---- prompts ---- */

enum sol_status session_append(struct session *s, const int32_t *tokens, int64_t n,
                               const float **logits)
{
    const int64_t at = engine_position(s->engine, 0);
    for (int64_t i = 0; i < n; i++)
        s->rows[i] = (struct engine_row){.token = tokens[i], .output = logits && i == n - 1};
    memcpy(s->tokens + at, tokens, (size_t)n * sizeof *tokens);
    return engine_eval(s->engine, s->rows, n, NULL, NULL, logits);
}

static int64_t shared(const struct session *s, const int32_t *tokens, int64_t n)
{
    const int64_t held = engine_position(s->engine, 0);
    int64_t same = 0;
    while (same < held && same < n && s->tokens[same] == tokens[same]) same++;
    return same;
}

/* Steps do not end at points: how a text is cut changes its bits. */
static enum sol_status compute(struct session *s, const int32_t *tokens, int64_t n,
                               const int64_t *points, size_t n_points, const float **logits)
{
    int64_t at = engine_position(s->engine, 0), first = at;
    struct progress progress;
    enum sol_status status = SOL_OK;
    progress_start(&progress, "prompt", "tokens", (uint64_t)(n - first));
    while (at < n && status == SOL_OK) {
        const int64_t step = n - at < s->step ? n - at : s->step, end = at + step;
        status = session_append(s, tokens + at, step, end == n ? logits : NULL);
        for (size_t i = 0; i < n_points && status == SOL_OK; i++) {
            const int64_t point = points[i] < n ? points[i] : n - 1;
            if (point > 0 && point >= at && point <= end) status = add_point(s, point);
        }
        at = end;
        progress_update(&progress, (uint64_t)(at - first));
    }
    progress_end(&progress);
    return status;
}

enum sol_status session_prompt(struct session *s, const int32_t *tokens, int64_t n,
                               const int64_t *points, size_t n_points, const float **logits,
                               int64_t *cached)
{
    *logits = NULL;
    if (cached) *cached = 0;
    if (n < 1 || n > s->context)
        return status_set(SOL_E_ARGUMENT,
                          "a prompt of %lld tokens does not fit the context of %lld; shorten the "
                          "conversation, or raise the context",
                          (long long)n, (long long)s->context);
    int64_t same = shared(s, tokens, n);
    if (same == n) same--; /* the logits of the last are wanted */
    if (same < engine_position(s->engine, 0)) SOL_TRY(go_back(s, same));
    if (cached) *cached = engine_position(s->engine, 0);
    return compute(s, tokens, n, points, n_points, logits);
}
