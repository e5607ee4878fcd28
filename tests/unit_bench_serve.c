/* sol bench --serve: the reader of event streams, the events, lengths and arrivals, figures. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/rng.h"
#include "bench/serve_chunk.h"
#include "bench/serve_figures.h"
#include "bench/serve_load.h"
#include "bench/serve_prompt.h"
#include "bench/serve_sse.h"

/* ---- event streams ---- */

struct heard {
    char text[4096];
    size_t length;
    int events, most;
};

static bool hear(void *arg, const char *data, size_t length)
{
    struct heard *h = arg;
    if (h->length + length + 2 < sizeof h->text) {
        if (length) memcpy(h->text + h->length, data, length);
        h->length += length;
        h->text[h->length++] = '|';
        h->text[h->length] = '\0';
    }
    h->events++;
    return h->events != h->most;
}

static const struct {
    const char *stream, *events;
} streams[] = {
    {"data: a\n\ndata: b\n\n", "a|b|"},
    {"data: a\r\n\r\ndata:b\r\rdata: c\n\n", "a|b|c|"},
    {"data: a\ndata:\ndata:  b\n\n", "a\n\n b|"},
    {"data: a\r\ndata: b\r\n\r\n", "a\nb|"},
    {"data: a\rdata: b\r\r", "a\nb|"},
    {": comment\n\nevent: x\nid: 3\ndata: {\"a\": \"b: c\"}\nretry: 5\n\n", "{\"a\": \"b: c\"}|"},
    {"\n\n\ndata\n\n", "|"},
    {"data: never ends", ""},
    {"data: nor does this\n", ""},
    {"\xef\xbb\xbf"
     "data: a\n\n",
     "a|"},
    {"\xef\xbb"
     "data: a\n\n",
     ""}, /* no mark, so a field of another name */
    {"dat: a\ndatax: b\n data: c\ndata: d\n\n", "d|"},
    {"data: a\r\r\n\ndata: b\r\n\r", "a|b|"},
    {"data: \xf0\x9f\x8c\x9e\n\n", "\xf0\x9f\x8c\x9e|"},
    {"event: message\n\ndata: x\n\n", "x|"},
};

/* Whole, byte by byte, and cut at random: the same events. */
static void events_do_not_depend_on_pieces(void **state)
{
    (void)state;
    struct sse_reader reader = {.seen = 0};
    struct rng rng;
    rng_seed(&rng, 5);
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++)
        for (int round = 0; round < 60; round++) {
            const char *at = streams[i].stream;
            size_t left = strlen(at);
            struct heard h = {.events = 0};
            sse_restart(&reader);
            while (left) {
                size_t n = round == 0 ? left : round == 1 ? 1 : (size_t)rng_range(&rng, 0, 7);
                if (n > left) n = left;
                char *piece = malloc(n + 1); /* so that reading beyond it is noticed */
                memcpy(piece, at, n);
                assert_int_equal(sse_read(&reader, piece, n, hear, &h), SSE_FINE);
                free(piece);
                at += n;
                left -= n;
            }
            if (strcmp(h.text, streams[i].events) != 0)
                fail_msg("stream %zu, round %d: '%s' instead of '%s'", i, round, h.text,
                         streams[i].events);
        }
    sse_free(&reader);
}

static void events_are_bounded_and_can_be_stopped(void **state)
{
    (void)state;
    struct sse_reader reader = {.seen = 0};
    struct heard h = {.most = 2};
    static const char three[] = "data: 1\n\ndata: 2\n\ndata: 3\n\n";
    assert_int_equal(sse_read(&reader, three, sizeof three - 1, hear, &h), SSE_STOPPED);
    assert_int_equal(h.events, 2);
    sse_restart(&reader);
    enum sse_result result = SSE_FINE;
    size_t fed = 0;
    char block[4096];
    memset(block, 'x', sizeof block);
    while (result == SSE_FINE && fed < 4u * SSE_EVENT_MAX) {
        result = sse_read(&reader, block, sizeof block, hear, &h);
        fed += sizeof block;
    }
    assert_int_equal(result, SSE_TOO_LONG);
    assert_true(fed <= SSE_EVENT_MAX + sizeof block);
    sse_restart(&reader); /* an event of many lines */
    for (fed = 0, result = SSE_FINE; result == SSE_FINE && fed < 4u * SSE_EVENT_MAX;) {
        result = sse_read(&reader, "data: ", 6, hear, &h);
        if (result == SSE_FINE) result = sse_read(&reader, block, sizeof block, hear, &h);
        if (result == SSE_FINE) result = sse_read(&reader, "\n", 1, hear, &h);
        fed += sizeof block;
    }
    assert_int_equal(result, SSE_TOO_LONG);
    sse_free(&reader);
}

/* ---- events ---- */

static struct serve_chunk chunk_of(const char *text)
{
    struct serve_chunk c;
    if (!serve_chunk_read(text, strlen(text), &c)) fail_msg("no event: %s", text);
    return c;
}

static void events_say_what_they_hold(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}",
        "{\"choices\":[{\"delta\":{\"content\":null,\"reasoning\":\"a\"}}]}",
        "{\"choices\":[{\"delta\":{\"reasoning_content\":\"a\"}}]}",
        "{\"choices\":[{\"text\":\"a\"}]}",
        "{\"choices\":[{\"text\":\"\\u0000\"}]}",
        "{\"choices\":[{\"delta\":{}},{\"delta\":{\"content\":\"b\"}}]}",
        "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}}]}",
    };
    static const char *const none[] = {
        "{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}",
        "{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null}}]}",
        "{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}",
        "{\"choices\":[]}",
        "{\"choices\":{\"a\":[]},\"usage\":[]}",
        "{}",
        "{\"choices\":[null,3,[],{\"delta\":7,\"text\":8}]}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!chunk_of(texts[i]).text) fail_msg("text in %s", texts[i]);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (chunk_of(none[i]).text) fail_msg("no text in %s", none[i]);
    assert_true(chunk_of("[DONE]").done);
    assert_true(chunk_of(none[2]).finished);
    assert_false(chunk_of(none[0]).finished);
    struct serve_chunk c =
        chunk_of("{\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":9,"
                 "\"prompt_tokens_details\":{\"cached_tokens\":3}}}");
    assert_int_equal(c.prompt_tokens, 7);
    assert_int_equal(c.output_tokens, 9);
    assert_int_equal(c.cached_tokens, 3);
    c = chunk_of("{\"usage\":null}");
    assert_int_equal(c.output_tokens, -1);
    c = chunk_of("{\"error\":{\"message\":\"too\\nlong\",\"code\":400}}");
    assert_true(c.failed);
    assert_string_equal(c.error, "too long");
    assert_true(chunk_of("{\"error\":\"x\"}").failed);
    assert_false(chunk_of("{\"error\":null}").failed);
    assert_false(serve_chunk_read("[1]", 3, &c));
    assert_false(serve_chunk_read("", 0, &c));
    assert_false(serve_chunk_read("{\"a\":", 5, &c));
}

static void errors_are_one_line(void **state)
{
    (void)state;
    char text[CHUNK_ERROR];
    assert_string_equal(serve_error_text("{\"detail\":\"a\"}", 14, text), "a");
    assert_string_equal(serve_error_text("no\r\njson", 8, text), "no  json");
    assert_string_equal(serve_error_text(NULL, 0, text), "");
    char *large = malloc(5000);
    memset(large, 'y', 5000);
    assert_int_equal(strlen(serve_error_text(large, 5000, text)), CHUNK_ERROR - 1);
    free(large);
}

/* ---- lengths ---- */

static void lengths_are_read(void **state)
{
    (void)state;
    static const char *const good[] = {"random:1024,128", "random:10,20,0.25", "prefix:100,8,16",
                                       "sharegpt"};
    static const char *const bad[] = {"",
                                      "random",
                                      "random:",
                                      "random:5",
                                      "random:5,",
                                      "random:0,5",
                                      "random:5,0",
                                      "random:5,5,1",
                                      "random:5,5,-0.1",
                                      "random:5,5,0.1,3",
                                      "random:1.5,5",
                                      "random:1e9,5",
                                      "random:nan,5",
                                      "random:5,5 ",
                                      "prefix:5,5",
                                      "prefix:5,5,5,5",
                                      "ShareGPT",
                                      "sharegpt:5"};
    struct serve_lengths l;
    char text[SERVE_LENGTHS_TEXT];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(serve_lengths_parse(good[i], &l), SOL_OK);
        assert_string_equal(serve_lengths_text(&l, text), good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (serve_lengths_parse(bad[i], &l) == SOL_OK) fail_msg("--lengths '%s' is wrong", bad[i]);
}

static void lengths_are_drawn_from_their_range(void **state)
{
    (void)state;
    struct serve_lengths l;
    int64_t least = INT64_MAX, most = 0;
    double sum = 0;
    enum { N = 20000 };
    assert_int_equal(serve_lengths_parse("random:100,7,0.2", &l), SOL_OK);
    for (uint64_t i = 0; i < N; i++) {
        const struct serve_size s = serve_size_of(&l, 3, i), again = serve_size_of(&l, 3, i);
        assert_true(s.prompt == again.prompt && s.output == again.output);
        assert_true(s.output >= 6 && s.output <= 8);
        least = s.prompt < least ? s.prompt : least;
        most = s.prompt > most ? s.prompt : most;
        sum += (double)s.prompt;
    }
    assert_int_equal(least, 80);
    assert_int_equal(most, 120);
    assert_true(fabs(sum / N - 100) < 0.5);
    assert_int_equal(serve_lengths_parse("prefix:100,8,16", &l), SOL_OK);
    assert_int_equal(serve_size_of(&l, 1, 1).prompt, 108);
}

/* The published means, the cuts, and a spread: 18 % of the prompts have fewer than 50 tokens. */
static void sharegpt_has_its_means(void **state)
{
    (void)state;
    struct serve_lengths l;
    double prompts = 0, answers = 0, below = 0;
    enum { N = 40000 };
    assert_int_equal(serve_lengths_parse("sharegpt", &l), SOL_OK);
    for (uint64_t i = 0; i < N; i++) {
        const struct serve_size s = serve_size_of(&l, 11, i);
        assert_true(s.prompt >= 4 && s.output >= 4 && s.prompt <= 1024);
        assert_true(s.prompt + s.output <= 2048);
        prompts += (double)s.prompt;
        answers += (double)s.output;
        below += s.prompt < 50;
    }
    assert_true(fabs(prompts / N - 215) < 8);
    assert_true(fabs(below / N - 0.175) < 0.015);
    assert_true(fabs(answers / N - 186) < 8);
}

/* ---- arrivals ---- */

/* Mean and deviation of the times between them, how they are distributed (Kolmogorov and Smirnov),
 * and as many in a second as Poisson's law says. */
static void arrivals_are_poisson(void **state)
{
    (void)state;
    enum { N = 20000 };
    const double rate = 7.5;
    static double gaps[N];
    struct serve_arrivals a, b;
    double before = 0, sum = 0, squares = 0, worst = 0;
    serve_arrivals_begin(&a, rate, 42);
    serve_arrivals_begin(&b, rate, 42);
    for (int i = 0; i < N; i++) {
        const double at = serve_arrivals_next(&a);
        assert_true(at == serve_arrivals_next(&b));
        assert_true(at >= before);
        gaps[i] = at - before;
        before = at;
        sum += gaps[i];
        squares += gaps[i] * gaps[i];
    }
    const double mean = sum / N, sd = sqrt(squares / N - mean * mean);
    assert_true(fabs(mean * rate - 1) < 0.03);
    assert_true(fabs(sd * rate - 1) < 0.05);
    for (int i = 0; i < N; i++) /* the empirical distribution at each gap, by counting */
        if (i % 200 == 0) {
            int below = 0;
            for (int k = 0; k < N; k++) below += gaps[k] <= gaps[i];
            worst = fmax(worst, fabs((double)below / N - (1 - exp(-rate * gaps[i]))));
        }
    assert_true(worst < 1.95 / sqrt(N)); /* exceeded once in 1000 seeds */
    const int windows = (int)before;
    double counts = 0, spread = 0;
    serve_arrivals_begin(&a, rate, 42);
    double at = serve_arrivals_next(&a);
    for (int w = 0; w < windows; w++) {
        int n = 0;
        for (; at < w + 1; at = serve_arrivals_next(&a)) n++;
        counts += n;
        spread += (double)n * n;
    }
    const double average = counts / windows, variance = spread / windows - average * average;
    assert_true(fabs(variance / average - 1) < 0.1); /* Poisson's variance is its mean */
    serve_arrivals_begin(&b, rate, 43);
    assert_true(serve_arrivals_next(&b) != gaps[0]);
}

/* ---- bodies ---- */

static size_t words_in(const json_t *content)
{
    size_t n = 1;
    for (const char *c = json_string_value(content); *c; c++) n += *c == ' ';
    return n;
}

static json_t *body_of(const struct serve_prompts *p, struct serve_size size, int64_t prefix,
                       uint64_t index)
{
    struct text_buffer text = {0};
    assert_int_equal(serve_prompts_body(p, size, prefix, index, &text), SOL_OK);
    json_t *body = json_loadb(text.data, text.length, JSON_REJECT_DUPLICATES, NULL);
    text_buffer_free(&text);
    assert_non_null(body);
    return body;
}

static const json_t *prompt_in(const json_t *body)
{
    const json_t *chat = json_array_get(json_object_get(body, "messages"), 0);
    return chat ? json_object_get(chat, "content") : json_object_get(body, "prompt");
}

static void bodies_ask_for_lengths(void **state)
{
    (void)state;
    struct serve_prompts *p;
    assert_int_equal(
        serve_prompts_create(SERVE_CHAT, "a \"model\"", "{\"temperature\": 0.5}", 9, NULL, &p),
        SOL_OK);
    serve_prompts_measure(p, 10, 34, 110, 184); /* 1.5 tokens a word, 19 around them */
    const struct serve_size size = {.prompt = 619, .output = 33};
    json_t *body = body_of(p, size, 0, 1);
    assert_string_equal(json_string_value(json_object_get(body, "model")), "a \"model\"");
    assert_int_equal(json_integer_value(json_object_get(body, "max_tokens")), 33);
    assert_int_equal(json_integer_value(json_object_get(body, "min_tokens")), 33);
    assert_true(json_is_true(json_object_get(body, "ignore_eos")));
    assert_true(json_real_value(json_object_get(body, "temperature")) == 0.5);
    assert_int_equal(words_in(prompt_in(body)), 400);
    json_t *other = body_of(p, size, 0, 2), *same = body_of(p, size, 0, 1);
    assert_false(json_equal(body, other));
    assert_true(json_equal(body, same));
    json_decref(other);
    json_decref(same);
    json_decref(body);
    p->style = 2;
    body = body_of(p, size, 0, 1);
    assert_null(json_object_get(body, "ignore_eos"));
    assert_int_equal(json_integer_value(json_object_get(body, "max_completion_tokens")), 33);
    json_decref(body);
    serve_prompts_destroy(p);
    const char *own = "{\"ignore_eos\": false, \"max_tokens\": 5}"; /* counts, and comes once */
    assert_int_equal(serve_prompts_create(SERVE_CHAT, NULL, own, 9, NULL, &p), SOL_OK);
    body = body_of(p, size, 0, 1);
    assert_true(json_is_false(json_object_get(body, "ignore_eos")));
    assert_int_equal(json_integer_value(json_object_get(body, "max_tokens")), 5);
    json_decref(body);
    serve_prompts_destroy(p);
    assert_int_equal(serve_prompts_create(SERVE_CHAT, NULL, "[1]", 9, NULL, &p), SOL_E_ARGUMENT);
    assert_null(p);
}

static void prefixes_are_shared(void **state)
{
    (void)state;
    struct serve_prompts *p;
    assert_int_equal(serve_prompts_create(SERVE_COMPLETIONS, NULL, NULL, 9, NULL, &p), SOL_OK);
    json_t *a = body_of(p, (struct serve_size){60, 1}, 50, 1);
    json_t *b = body_of(p, (struct serve_size){60, 1}, 50, 2);
    const char *x = json_string_value(prompt_in(a)), *y = json_string_value(prompt_in(b));
    size_t same = 0, words = 0;
    for (; x[same] && x[same] == y[same]; same++) words += x[same] == ' ';
    assert_true(words >= 50 && words < 60);
    assert_int_equal(words_in(prompt_in(a)), 60);
    assert_null(json_object_get(a, "model"));
    json_decref(a);
    json_decref(b);
    serve_prompts_destroy(p);
}

/* ---- figures ---- */

/* A level of requests made up: one answered after `ttft` ms with `tokens` tokens, `itl` ms apart,
 * several in a chunk. */
static void add_answer(struct serve_log *log, double ttft, double itl, int64_t tokens, int64_t each)
{
    log->requests = realloc(log->requests, (log->count + 1) * sizeof *log->requests);
    struct serve_request *r = &log->requests[log->count++];
    const uint64_t start = 1000000000 + log->count * 1000;
    const int64_t chunks = (tokens + each - 1) / each;
    *r = (struct serve_request){.asked = {50, tokens},
                                .at_s = -1,
                                .begun = true,
                                .start_ns = start,
                                .first_ns = start + (uint64_t)(ttft * 1e6),
                                .chunks = chunks,
                                .prompt_tokens = 50,
                                .output_tokens = tokens,
                                .cached_tokens = -1,
                                .gap_median_ns = chunks > 1 ? itl * 1e6 : (double)NAN};
    r->last_ns = r->first_ns + (uint64_t)(chunks - 1) * (uint64_t)(itl * 1e6);
    for (int64_t i = 0; i + 1 < chunks; i++) {
        log->gaps_ns = realloc(log->gaps_ns, (log->n_gaps + 1) * sizeof(double));
        log->gaps_ns[log->n_gaps++] = itl * 1e6;
    }
}

static void add_failure(struct serve_log *log, enum serve_outcome outcome)
{
    add_answer(log, 1, 1, 5, 1);
    log->n_gaps -= 4;
    log->requests[log->count - 1].outcome = outcome;
}

static bool near(double got, double wanted)
{
    return fabs(got - wanted) <= 1e-9 * fabs(wanted);
}

static void figures_are_of_what_ended_well(void **state)
{
    (void)state;
    struct serve_level l = {.load = 2, .complete = true};
    const struct serve_limits limits = {.ttft_ms = 45, .itl_ms = 6};
    for (int i = 1; i <= 7; i++) add_answer(&l.log, 10 * i, i == 2 ? 8 : 4, 11, 1);
    add_failure(&l.log, SERVE_CLOSED);
    add_failure(&l.log, SERVE_BUSY);
    add_answer(&l.log, 1, 1, 9, 1);
    l.log.requests[l.log.count - 1].begun = false; /* interrupted */
    l.log.wall_s = 2;
    l.log.cpu_s = 0.5;
    l.log.peak = 3;
    assert_int_equal(serve_figures(&l, &limits), SOL_OK);
    assert_int_equal(l.sent, 9);
    assert_int_equal(l.fine, 7);
    assert_int_equal(l.outcomes[SERVE_CLOSED] + l.outcomes[SERVE_BUSY], 2);
    assert_true(near(l.ttft.median.value, 40e6) && near(l.ttft.median.low, 10e6));
    assert_true(near(l.ttft.p90, 64e6) && near(l.ttft.most, 70e6) && near(l.ttft.mean, 40e6));
    assert_true(near(l.itl.median.value, 4e6) && near(l.itl.most, 8e6));
    assert_true(near(l.tpot.median.value, 4e6) && near(l.total.median.value, 90e6));
    assert_true(near(l.output_per_s, 77 / 2.0) && near(l.total_per_s, (77 + 350) / 2.0));
    assert_true(near(l.requests_per_s, 3.5) && near(l.cpu_share, 0.25));
    assert_true(near(l.good, 3.0 / 9) && near(l.good_per_s, 1.5)); /* 10, 30 and 40 ms */
    assert_true(near(l.tokens_per_chunk, 1) && l.counted && isnan(l.late_p99_ns));
    assert_string_equal(l.invalid, "");
    serve_level_free(&l);
}

static void several_tokens_a_chunk_are_known_by_usage(void **state)
{
    (void)state;
    struct serve_level l = {.load = 1};
    for (int i = 0; i < 6; i++) add_answer(&l.log, 10, 8, 33, 4); /* 9 chunks */
    l.log.wall_s = 1;
    assert_int_equal(serve_figures(&l, &(struct serve_limits){0}), SOL_OK);
    assert_true(near(l.tokens_per_chunk, 33.0 / 9));
    assert_true(near(l.itl.median.value, 8e6) && near(l.tpot.median.value, 2e6));
    assert_true(isnan(l.good));
    serve_level_free(&l);
}

/* One that takes a core, one that sends late, one that fails always. */
static void clients_in_the_way_are_said(void **state)
{
    (void)state;
    struct serve_level l = {.arrival = SERVE_POISSON, .load = 1};
    for (int i = 0; i < 6; i++) {
        add_answer(&l.log, 10, 8, 3, 1);
        l.log.requests[i].at_s = 0;
    }
    l.log.begun_ns = 980000000;
    l.log.wall_s = 1;
    l.log.cpu_s = 0.95;
    assert_int_equal(serve_figures(&l, &(struct serve_limits){0}), SOL_OK);
    assert_non_null(strstr(l.invalid, "95 %"));
    assert_non_null(strstr(l.noise, "20 ms late"));
    serve_level_free(&l);
    l = (struct serve_level){.load = 1};
    add_failure(&l.log, SERVE_REFUSED);
    l.log.cut = true;
    l.log.wall_s = 1;
    assert_int_equal(serve_figures(&l, &(struct serve_limits){0}), SOL_OK);
    assert_non_null(strstr(l.invalid, "all failed"));
    assert_true(isnan(l.ttft.median.value) && isnan(l.itl.p99) && l.output_per_s == 0);
    serve_level_free(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_do_not_depend_on_pieces),
        cmocka_unit_test(events_are_bounded_and_can_be_stopped),
        cmocka_unit_test(events_say_what_they_hold),
        cmocka_unit_test(errors_are_one_line),
        cmocka_unit_test(lengths_are_read),
        cmocka_unit_test(lengths_are_drawn_from_their_range),
        cmocka_unit_test(sharegpt_has_its_means),
        cmocka_unit_test(arrivals_are_poisson),
        cmocka_unit_test(bodies_ask_for_lengths),
        cmocka_unit_test(prefixes_are_shared),
        cmocka_unit_test(figures_are_of_what_ended_well),
        cmocka_unit_test(several_tokens_a_chunk_are_known_by_usage),
        cmocka_unit_test(clients_in_the_way_are_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
