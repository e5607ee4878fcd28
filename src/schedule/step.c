/* What a step is made of. Rows are claimed for requests first, with the pages that they take, and
 * written when all is known: who is preempted meanwhile gives back what was claimed.
 *
 * Rank: who was preempted for whom is decided by priority, then by who came first. The one that
 * ranks highest always gets what it needs, so that there is always somebody who goes on. */
#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "infer/kv_pages.h"
#include "ops/batch.h"
#include "schedule/scheduler_private.h"

/* ---- requests ---- */

static int64_t left_of(const struct request *r)
{
    return r->n_tokens - r->done;
}

/* Whether its next rows are a prompt's. With steps of fixed shapes what was drawn before somebody
 * was preempted is computed again as it was: a token a step. */
static bool in_prompt(const struct scheduler *s, const struct request *r)
{
    return s->fixed ? r->done < r->result.prompt : left_of(r) > 1;
}

static bool outranks(const struct request *a, const struct request *b)
{
    if (a->asked.priority != b->asked.priority) return a->asked.priority > b->asked.priority;
    return a->id < b->id;
}

/* ---- pages ---- */

static int64_t pages_for(const struct request *r, int64_t rows)
{
    return kv_pages_for(r->done + rows) - kv_pages_for(r->done);
}

/* Whether so many pages are free beside those that are claimed; snapshots are given up for it, if
 * that helps. */
static bool has_room(struct scheduler *s, int64_t pages)
{
    int64_t positions = (s->claimed + pages) * KV_PAGE + s->pad_positions;
    if (engine_free_positions(s->engine) >= positions) return true;
    if (engine_possible_positions(s->engine) < positions) return false;
    return prefix_cache_make_room(s->cache, positions);
}

static void preempt(struct scheduler *s, struct request *r)
{
    s->claimed -= pages_for(r, r->share);
    r->share = 0;
    request_release(s, r);
    list_add(&s->waiting, r);
    r->prefill = r->n_tokens;
    r->result.preemptions++;
    s->counts.preemptions++;
}

/* Rows for a request that runs. Those that it outranks are preempted for it; one that runs alone
 * and has no room ends. false: it gets none. */
static bool claim(struct scheduler *s, struct request *r, int64_t rows)
{
    const int64_t pages = pages_for(r, rows);
    while (!has_room(s, pages)) {
        struct request *victim = queue_victim(s);
        if (victim == r && s->running.n == 1) {
            request_end(s, r, SCHEDULE_CONTEXT, SOL_OK, "");
            return false;
        }
        s->preempted = true;
        if (victim == r && in_prompt(s, r)) return false; /* it waits where it is */
        preempt(s, victim);
        if (victim == r) return false;
    }
    s->claimed += pages;
    r->share += rows;
    return true;
}

/* ---- beginning ---- */

/* Pages that prompts which have begun have yet to take. */
static int64_t promised(const struct scheduler *s)
{
    int64_t pages = 0;
    for (int64_t i = 0; i < s->running.n; i++) {
        const struct request *r = s->running.at[i];
        if (in_prompt(s, r)) pages += pages_for(r, left_of(r)) - pages_for(r, r->share);
    }
    return pages;
}

/* Somebody of a lower priority makes way. */
static bool displace(struct scheduler *s, const struct request *r)
{
    struct request *victim = queue_victim(s);
    if (!victim || victim->asked.priority >= r->asked.priority) return false;
    preempt(s, victim);
    return true;
}

static void note_begin(struct scheduler *s, struct request *r)
{
    s->counts.prompt_tokens += r->began ? 0 : r->result.prompt;
    s->counts.cached_tokens += r->began ? 0 : r->done;
    if (r->began) return;
    r->began = true;
    r->result.cached = r->done;
    r->result.queued = (double)(clock_ns() - r->submitted) * 1e-9;
}

/* Whether there is a sequence, and room for all that it has so far behind `done`. */
static bool has_place(struct scheduler *s, const struct request *r, int64_t done)
{
    const int64_t pages = kv_pages_for(r->n_tokens) - done / KV_PAGE;
    while (!s->n_free_sequences || !has_room(s, pages + promised(s)))
        if (!displace(s, r)) return false;
    return true;
}

/* From the longest snapshot. Where nobody else runs and there is no room beside that, without it;
 * and a text that has outgrown the cache ends. `*begun`: it runs. */
static enum sol_status begin(struct scheduler *s, struct request *r, bool *begun)
{
    const int64_t n = s->fixed ? r->result.prompt : r->n_tokens;
    int32_t slot = prefix_cache_find(s->cache, r->asked.salt, r->tokens, n, n - 1);
    int64_t done = slot < 0 ? 0 : engine_snapshot_position(s->engine, slot);
    *begun = has_place(s, r, done);
    if (!*begun && slot >= 0) {
        prefix_cache_unpin(s->cache, slot, false);
        slot = -1;
        done = 0;
        if (!s->running.n) *begun = has_place(s, r, done);
    }
    if (!*begun && !s->running.n) request_end(s, r, SCHEDULE_CONTEXT, SOL_OK, "");
    if (!*begun) return SOL_OK;
    r->sequence = s->free_sequences[--s->n_free_sequences];
    list_remove(&s->waiting, r);
    list_add(&s->running, r);
    r->done = done;
    note_begin(s, r);
    if (slot < 0) return SOL_OK;
    prefix_cache_unpin(s->cache, slot, true);
    return engine_restore(s->engine, slot, r->sequence);
}

/* Prompts that have begun fill `rows`; but one that is much longer lets short ones pass. */
static bool is_full(const struct scheduler *s, int64_t rows, const struct request *next)
{
    int64_t all = 0, brief = 0;
    for (int64_t i = 0; i < s->running.n; i++) {
        const struct request *r = s->running.at[i];
        if (!in_prompt(s, r)) continue;
        all += left_of(r);
        if (left_of(r) <= rows / 2) brief += left_of(r);
    }
    return all >= rows && (next->n_tokens > rows / 2 || brief >= rows / 2);
}

static enum sol_status admit(struct scheduler *s, int64_t rows)
{
    bool begun = true;
    while (begun && !s->preempted) {
        struct request *next = queue_first(s);
        if (!next || is_full(s, rows, next)) break;
        SOL_TRY(begin(s, next, &begun));
    }
    return SOL_OK;
}

/* ---- order ---- */

static int by_turn(const void *a, const void *b)
{
    const struct request *x = *(struct request *const *)a, *y = *(struct request *const *)b;
    if (x->stepped != y->stepped) return x->stepped < y->stepped ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static int by_piece(const void *a, const void *b)
{
    const struct request *x = *(struct request *const *)a, *y = *(struct request *const *)b;
    if (x->asked.priority != y->asked.priority)
        return x->asked.priority > y->asked.priority ? -1 : 1;
    return by_turn(a, b);
}

static int by_rank(const void *a, const void *b)
{
    return outranks(*(struct request *const *)a, *(struct request *const *)b) ? -1 : 1;
}

/* Those who are in their prompts, or are not; how many. */
static int64_t list_running(struct scheduler *s, bool prompts,
                            int (*order)(const void *, const void *))
{
    int64_t n = 0;
    for (int64_t i = 0; i < s->running.n; i++)
        if (in_prompt(s, s->running.at[i]) == prompts) s->order[n++] = s->running.at[i];
    if (n) qsort(s->order, (size_t)n, sizeof(*s->order), order);
    return n;
}

/* A token of each who is not in a prompt, at most `most`: whoever waited longest for it first. How
 * many. */
static int64_t claim_texts(struct scheduler *s, int64_t most)
{
    int64_t n = list_running(s, false, by_turn), taken = 0;
    for (int64_t i = 0; i < n && taken < most; i++)
        if (s->order[i]->sequence >= 0 && claim(s, s->order[i], 1)) taken++;
    taken = 0; /* some were preempted for others */
    for (int64_t i = 0; i < n; i++) taken += s->order[i]->share > 0;
    return taken;
}

/* ---- mixed steps ---- */

/* As many of `rows` as pages are there for; with none at all others make way. */
static int64_t claim_prompt(struct scheduler *s, struct request *r, int64_t rows)
{
    while (rows > 0 && !has_room(s, pages_for(r, r->share + rows) - pages_for(r, r->share))) {
        int64_t end = (kv_pages_for(r->done + r->share + rows) - 1) * KV_PAGE;
        rows = end - r->done - r->share; /* a page less */
    }
    if (rows <= 0 && !r->share) return claim(s, r, 1) ? 1 : 0;
    if (rows <= 0) return 0;
    s->claimed += pages_for(r, r->share + rows) - pages_for(r, r->share);
    r->share += rows;
    return rows;
}

static bool others_are_brief(const struct scheduler *s, int64_t n, const struct request *r,
                             int64_t rows)
{
    for (int64_t i = 0; i < n; i++) {
        const struct request *other = s->order[i];
        if (other != r && other->sequence >= 0 && left_of(other) - other->share <= rows)
            return true;
    }
    return false;
}

/* The first by rank takes all, or half where short ones wait beside it; a second round deals out
 * what is left. */
static void claim_prompts(struct scheduler *s, int64_t rows, int64_t outputs)
{
    int64_t n = list_running(s, true, by_rank), most = engine_params_of(s->engine)->max_run;
    for (int round = 0; round < 2; round++)
        for (int64_t i = 0; i < n && rows > 0; i++) {
            struct request *r = s->order[i];
            int64_t wanted = left_of(r) - r->share;
            if (r->sequence < 0 || wanted <= 0) continue;
            if (wanted > rows) wanted = rows;
            if (wanted > most - r->share) wanted = most - r->share;
            if (!round && wanted > rows / 2 && others_are_brief(s, n, r, rows / 2))
                wanted = rows / 2;
            if (r->share + wanted == left_of(r) && outputs < 1) wanted--;
            if (wanted > 0) rows -= claim_prompt(s, r, wanted);
            outputs -= r->share == left_of(r);
        }
}

static enum sol_status form_mixed(struct scheduler *s)
{
    const struct engine_params *e = engine_params_of(s->engine);
    int64_t most = e->max_outputs < e->max_batch ? e->max_outputs : e->max_batch;
    int64_t texts = claim_texts(s, most), rows = e->max_batch - texts;
    if (texts && rows > s->params.prompt_rows) rows = s->params.prompt_rows;
    if (rows > 0) SOL_TRY(admit(s, rows));
    if (rows > 0) claim_prompts(s, rows, e->max_outputs - texts);
    return SOL_OK;
}

/* ---- steps of fixed shapes ---- */

static int64_t piece_of(const struct scheduler *s, const struct request *r)
{
    int64_t piece = s->params.chunk - r->done % s->params.chunk, left = r->result.prompt - r->done;
    return piece < left ? piece : left;
}

/* One prompt's piece, or running texts: each of these has its turn before the next piece. */
static enum sol_status form_fixed(struct scheduler *s)
{
    SOL_TRY(admit(s, s->params.chunk));
    int64_t texts = list_running(s, false, by_turn), n = 0;
    if (s->decode_steps * s->params.decode_rows >= texts) n = list_running(s, true, by_piece);
    for (int64_t i = 0; i < n; i++) {
        struct request *r = s->order[i];
        if (r->sequence < 0 || !claim(s, r, piece_of(s, r))) continue;
        s->decode_steps = 0;
        return SOL_OK;
    }
    s->decode_steps++;
    claim_texts(s, s->params.decode_rows);
    return SOL_OK;
}

/* ---- rows ---- */

static void add_output(struct scheduler *s, struct request *r, struct sampler *sampler)
{
    s->drawing[s->n_outputs] = r;
    s->samplers[s->n_outputs++] = sampler;
}

static void add_rows(struct scheduler *s, struct request *r)
{
    const bool last = r->share == left_of(r);
    for (int64_t i = 0; i < r->share; i++)
        s->rows[s->n_rows++] =
            (struct engine_row){.token = r->tokens[r->done + i],
                                .sequence = r->sequence,
                                .output = i == r->share - 1 && (last || s->fixed)};
    if (last || s->fixed) add_output(s, r, last ? r->asked.sampler : NULL);
}

/* Rows that nobody needs, so that the shape is the same. Those of texts have outputs, all of them.
 */
static void add_padding(struct scheduler *s, bool prompt)
{
    int64_t rows = prompt ? s->params.chunk : s->params.decode_rows;
    while (s->n_rows < rows) {
        s->rows[s->n_rows++] =
            (struct engine_row){.token = 0, .sequence = s->pad_sequence, .output = !prompt};
        s->n_padding++;
        if (!prompt) add_output(s, NULL, NULL);
    }
}

/* Texts first: a step of few rows more is the same to them. */
static void write_rows(struct scheduler *s)
{
    bool prompt = false;
    for (int prompts = 0; prompts < 2; prompts++)
        for (int64_t i = 0; i < s->running.n; i++) {
            struct request *r = s->running.at[i];
            if (!r->share || in_prompt(s, r) != (prompts == 1)) continue;
            prompt |= prompts == 1;
            add_rows(s, r);
        }
    if (s->n_rows && s->pad_sequence >= 0) add_padding(s, prompt);
}

enum sol_status step_form(struct scheduler *s)
{
    s->n_rows = s->n_outputs = s->n_padding = s->claimed = 0;
    s->preempted = false;
    for (int64_t i = 0; i < s->running.n; i++) s->running.at[i]->share = 0;
    SOL_TRY(s->fixed ? form_fixed(s) : form_mixed(s));
    write_rows(s);
    if (s->n_rows || !s->running.n) return SOL_OK;
    /* Nobody had room beside the others: whoever ranks highest has. */
    struct request *first = s->running.at[0];
    for (int64_t i = 1; i < s->running.n; i++)
        if (outranks(s->running.at[i], first)) first = s->running.at[i];
    if (claim(s, first, s->fixed && in_prompt(s, first) ? piece_of(s, first) : 1)) write_rows(s);
    return SOL_OK;
}

/* ---- behind a step ---- */

static bool is_point(const struct scheduler *s, const struct request *r, int64_t position)
{
    int64_t every = s->params.snapshot_every;
    if (every && position % every == 0) return true;
    for (int64_t i = 0; i < r->asked.n_points; i++)
        if (r->asked.points[i] == position) return true;
    return false;
}

/* With fixed shapes a text can go on only where a piece ended: a point counts for the end before
 * it.
 */
static bool ends_before_point(const struct scheduler *s, const struct request *r, int64_t position)
{
    int64_t chunk = s->params.chunk, every = s->params.snapshot_every;
    if (position % chunk) return false;
    if (every && (position % every == 0 || every < chunk)) return true;
    for (int64_t i = 0; i < r->asked.n_points; i++)
        if (r->asked.points[i] / chunk * chunk == position) return true;
    return false;
}

/* What the rows passed and is worth it. A cache that has no memory for more is no error. */
static void keep_points(struct scheduler *s, const struct request *r)
{
    for (int64_t p = r->done - r->share + 1; p <= r->done && p <= r->result.prompt; p++)
        if (s->fixed ? ends_before_point(s, r, p) : is_point(s, r, p))
            (void)prefix_cache_keep(s->cache, r->asked.salt, r->tokens, p, r->sequence);
}

void step_end_text(struct scheduler *s, struct request *r, enum schedule_end end)
{
    if (r->asked.keep_end && !s->fixed && r->sequence >= 0)
        (void)prefix_cache_keep(s->cache, r->asked.salt, r->tokens, r->done, r->sequence);
    request_end(s, r, end, SOL_OK, "");
}

static bool is_stop(const struct request *r, int32_t token)
{
    for (int64_t i = 0; i < r->asked.n_stops; i++)
        if (r->asked.stops[i] == token) return true;
    return false;
}

/* `now`: tokens of one step come at one time. */
static void take_token(struct scheduler *s, struct request *r, int32_t token, const float *logits,
                       uint64_t now)
{
    if (r->satisfied) return; /* it was told so while this was computed */
    if (token == ENGINE_NO_TOKEN) {
        request_end(s, r, SCHEDULE_FAILED, SOL_E_MISMATCH,
                    "nothing can be drawn: the logits of this text are not finite, or all tokens "
                    "are banned");
        return;
    }
    if (is_stop(r, token)) {
        r->result.stop = token;
        step_end_text(s, r, SCHEDULE_STOP);
        return;
    }
    r->latest = now;
    if (!r->first) r->first = r->latest;
    r->tokens[r->n_tokens++] = token;
    s->counts.generated_tokens++;
    int64_t count = r->n_tokens - r->result.prompt;
    if (r->asked.on_logits) r->asked.on_logits(r->asked.arg, token, logits);
    event_add(s, r, token, count);
    if (count == r->asked.limit)
        step_end_text(s, r, r->clipped ? SCHEDULE_CONTEXT : SCHEDULE_LENGTH);
}

void step_take(struct scheduler *s)
{
    s->steps++;
    s->counts.rows += s->n_rows;
    s->counts.padding += s->n_padding;
    for (int64_t i = 0; i < s->running.n; i++) {
        struct request *r = s->running.at[i];
        if (!r->share) continue;
        r->done += r->share;
        r->stepped = s->steps;
        admission_charge(s->admission, r->asked.key, r->share);
        keep_points(s, r);
    }
    const int64_t vocab = engine_model(s->engine)->config.vocab;
    const uint64_t now = clock_ns();
    for (int64_t i = 0; i < s->n_outputs; i++)
        if (s->drawing[i] && s->samplers[i])
            take_token(s, s->drawing[i], s->drawn[i], s->logits + i * vocab, now);
    if (s->pad_sequence >= 0) engine_reset(s->engine, s->pad_sequence);
}
