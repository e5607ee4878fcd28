#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "report/charts.h"
#include "report/figures.h"
#include "report/html.h"
#include "report/page.h"
#include "report/report.h"
#include "report/run_data.h"
#include "support/report_fixture.h"
#include "support/report_pages.h"
#include "support/temp_folder.h"

extern const char sol_report_style[];

static int make_store(void **state)
{
    if (temp_folder_make(state) != 0) return -1;
    return report_fixture_write(temp_folder()) == SOL_OK ? 0 : -1;
}

/* ---- escaping ---- */

/* Moves the text of `html` into `out`. */
static void take(struct html *html, char *out, size_t size)
{
    struct html_text text;
    assert_int_equal(html_finish(html, &text), SOL_OK);
    assert_int_equal(strlen(text.data), text.size);
    snprintf(out, size, "%s", text.data);
    html_destroy(html);
}

static void expect_text(const char *input, const char *expected)
{
    struct html *html;
    char out[400];
    assert_int_equal(html_create(&html), SOL_OK);
    html_text(html, input);
    take(html, out, sizeof out);
    assert_string_equal(out, expected);
}

static void test_escape(void **state)
{
    (void)state;
    expect_text(NULL, "");
    expect_text("a<b>&\"c'", "a&lt;b&gt;&amp;&quot;c&#39;");
    expect_text("\xc2\xb5s \xe2\x82\xac \xf0\x9f\x98\x80\n",
                "\xc2\xb5s \xe2\x82\xac \xf0\x9f\x98\x80\n");
    expect_text("\x01\x7f\xc2\x85", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    /* Cut off, overlong, surrogate, beyond Unicode: each byte for itself. */
    expect_text("\xc3", "\xef\xbf\xbd");
    expect_text("\xc0\xbc", "\xef\xbf\xbd\xef\xbf\xbd");
    expect_text("\xe0\x80\xbc", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    expect_text("\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    expect_text("\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    expect_text("a\xe2\x80\xae"
                "b",
                "a\xef\xbf\xbd"
                "b"); /* right-to-left override */
}

static void test_print(void **state)
{
    (void)state;
    struct html *html;
    char out[400];
    assert_int_equal(html_create(&html), SOL_OK);
    html_print(html, "<b c=\"%s\">%d|%5.1f|%lld|%zu|%c|%%|%.3s|%.*s|%x</b>", "\"<", -7, 2.25,
               (long long)1 << 40, (size_t)9, '<', "abcdef", 2,
               "\xc2\xb5"
               "x",
               255u);
    take(html, out, sizeof out);
    assert_string_equal(out,
                        "<b c=\"&quot;&lt;\">-7|  2.2|1099511627776|9|&lt;|%|abc|\xc2\xb5|ff</b>");
}

static void test_command(void **state)
{
    (void)state;
    struct html *html;
    char out[400];
    assert_int_equal(html_create(&html), SOL_OK);
    assert_true(page_command(html, "[\"bench\", \"-p\", \"512\", \"it's <x>\", \"\"]"));
    assert_false(page_command(html, "7"));
    assert_false(page_command(html, NULL));
    take(html, out, sizeof out);
    assert_string_equal(out,
                        "sol bench -p 512 &#39;it&#39;\\&#39;&#39;s &lt;x&gt;&#39; &#39;&#39;");
}

/* ---- figures ---- */

static void test_figures(void **state)
{
    (void)state;
    char t[FIGURE_SIZE];
#define NB "\xc2\xa0"
    assert_string_equal(figure_number(12345.6, t), "12,346");
    assert_string_equal(figure_number(0.0123456, t), "0.0123");
    assert_string_equal(figure_number(115.64, t), "115.6");
    assert_string_equal(figure_number((double)NAN, t), "\xe2\x80\x93");
    assert_string_equal(figure_time(999.96e3, t), "1.00" NB "ms");
    assert_string_equal(figure_time(2.5e9, t), "2.50" NB "s");
    assert_string_equal(figure_time(0, t), "0" NB "ns");
    assert_string_equal(figure_si(142.5e9, "B/s", t), "142" NB "GB/s");
    assert_string_equal(figure_bytes(12109565632.0, t), "11.3" NB "GiB");
    assert_string_equal(figure_percent(0.714, t), "71" NB "%");
    assert_string_equal(figure_percent(0.0714, t), "7.1" NB "%");
    assert_string_equal(figure_change(-0.031, t), "\xe2\x88\x92"
                                                  "3.1" NB "%");
    assert_string_equal(figure_change(0.052, t), "+5.2" NB "%");
    assert_string_equal(figure_count(1234567, t), "1,234,567");
    assert_string_equal(figure_count(-1, t), "\xe2\x80\x93");
    assert_string_equal(figure_date(1792800000LL * 1000000000, t), "24 Oct 2026, 00:00" NB "UTC");
    assert_string_equal(figure_value(2.5e6, "ns/step", t), "2.50" NB "ms/step");
    assert_string_equal(figure_trim(strcpy(t, "2.50" NB "ms")), "2.5" NB "ms");
    assert_string_equal(figure_trim(strcpy(t, "10.0" NB "T")), "10" NB "T");
    const double all[] = {1e300, -1e300, 1e-300, INFINITY, -0.0, 5e-324};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_true(strlen(figure_number(all[i], t)) < FIGURE_SIZE - 1);
        assert_true(strlen(figure_time(all[i], t)) < FIGURE_SIZE - 1);
        assert_true(strlen(figure_percent(all[i], t)) < FIGURE_SIZE - 1);
        assert_true(strlen(figure_change(all[i], t)) < FIGURE_SIZE - 1);
    }
}

/* ---- scales ---- */

static void expect_round(bool log, double low, double high, double wanted_low, double wanted_high)
{
    struct svg_scale s = {.log = log, .low = low, .high = high, .to = 100};
    struct svg_ticks ticks;
    svg_scale_round(&s, 5);
    assert_float_equal(s.low, wanted_low, 1e-9 * fabs(wanted_low) + 1e-12);
    assert_float_equal(s.high, wanted_high, 1e-9 * fabs(wanted_high));
    svg_ticks(&s, 5, &ticks);
    assert_in_range(ticks.count, 2, SVG_TICKS_MAX);
    /* Both ends carry a number. */
    assert_float_equal(ticks.values[0], s.low, 1e-6 * (s.high - s.low));
    if (!log) assert_float_equal(ticks.values[ticks.count - 1], s.high, 1e-6 * (s.high - s.low));
}

static void test_scales(void **state)
{
    (void)state;
    expect_round(false, 0.3, 9.7, 0, 10);
    expect_round(false, 112.3, 117.9, 112, 118);
    expect_round(false, -0.032, 0.06, -0.04, 0.06);
    expect_round(false, 5, 5, 4.996, 5.004);
    expect_round(false, 0, 0, 0, 0.5);
    expect_round(true, 0.3, 700, 0.1, 1000);
    expect_round(true, 10, 10, 10, 100);
    struct svg_scale log = {.log = true, .low = 1, .high = 100, .from = 10, .to = 30};
    assert_float_equal(svg_at(&log, 10), 20, 1e-9);
}

static void test_fit(void **state)
{
    (void)state;
    char out[64];
    assert_string_equal(svg_text_fit("short", 200, 13, out, sizeof out), "short");
    svg_text_fit("a_very_long_name_that_goes_on", 80, 13, out, sizeof out);
    assert_true(svg_text_width(out, 13) <= 80);
    assert_string_equal(out + strlen(out) - 3, "\xe2\x80\xa6");
    svg_text_fit("\xc2\xb5\xc2\xb5\xc2\xb5\xc2\xb5\xc2\xb5", 30, 13, out, 8); /* whole characters */
    assert_true(html_utf8_length(out) > 1 && strlen(out) < 8 && strlen(out) % 2 == 1);
}

/* ---- what is worked out of a run ---- */

static struct store_record *read_run(const char *label)
{
    struct store *store;
    struct store_record *record;
    char id[STORE_ID_SIZE];
    assert_int_equal(store_open(temp_folder(), &store), SOL_OK);
    assert_int_equal(store_find(store, label, NULL, id), SOL_OK);
    assert_int_equal(store_record_read(store, id, &record), SOL_OK);
    store_close(store);
    return record;
}

static void test_run_data(void **state)
{
    (void)state;
    struct store_record *record = read_run("good");
    struct run_data *d;
    assert_int_equal(run_data_create(record, &d), SOL_OK);
    assert_int_equal(d->n_speed, 3);
    const struct run_metric *m = &d->metrics[0];
    const struct figure *f = &m->figure.shown;
    assert_string_equal(m->figure.unit, "t/s");
    assert_string_equal(m->rating, "good");
    assert_string_equal(m->stopped, "precision");
    assert_int_equal(f->count, 12);
    assert_int_equal(m->figure.warmups, 2);
    assert_int_equal(m->figure.outliers, 1);
    assert_int_equal(m->figure.repeated, 1);
    assert_true(f->low < f->value && f->high > f->value && f->low > 0.98 * f->value);
    assert_float_equal(f->reached, 4.9e6 / m->figure.stored.value, 1e-12);
    assert_string_equal(d->metrics[1].figure.unit, "GiB");
    assert_int_equal(d->n_ceilings, 5);
    assert_true(d->ceilings[0].memory && d->ceilings[0].rate == 142.5e9);
    assert_string_equal(d->ceilings[0].name, "memory read");
    assert_int_equal(d->n_groups, 2);
    const struct run_group *g = &d->groups[1];
    assert_string_equal(g->phase, "decode");
    assert_string_equal(g->per, "a token");
    assert_string_equal(g->kernels[0].name, "moe_up");
    assert_float_equal(g->kernels[0].ns, 9.8e6, 1);
    assert_true(g->headline && g->measured_ns == d->metrics[2].figure.stored.value);

    struct waterfall w;
    assert_true(waterfall_make(g, &w));
    double sum = 0;
    for (size_t i = 0; i + 1 < w.n_steps; i++) sum += w.steps[i].ns;
    assert_float_equal(sum, g->measured_ns, 1); /* it closes */
    assert_true(w.steps[0].total && w.steps[w.n_steps - 1].total);
    assert_float_equal(w.steps[0].ns, 16.2e6, 1);
    run_data_destroy(d);
    store_record_destroy(record);
}

static void test_steps_of_a_profile(void **state)
{
    (void)state;
    struct store_record *record = read_run("trace");
    struct run_data *d;
    struct waterfall w;
    assert_int_equal(run_data_create(record, &d), SOL_OK);
    assert_string_equal(d->groups[0].per, "a step");
    /* A step like the median one, not the mean one. */
    assert_float_equal(d->groups[0].kernels[0].ns, 610e3, 0.02 * 610e3);
    assert_true(waterfall_make(&d->groups[0], &w));
    assert_false(w.steps[0].total); /* no limit to start from */
    assert_true(d->n_gaps == 2 && d->gap_count == 5120);
    run_data_destroy(d);
    store_record_destroy(record);
}

/* ---- whole reports ---- */

/* Tags are closed in order, text is UTF-8 without controls, and there is nothing that runs. */
static void check_markup(const struct html_text *text)
{
    static const char *const empty[] = {"meta", "path", "rect", "circle", "wbr", "!doctype"};
    char stack[64][16];
    size_t depth = 0;
    for (const char *s = text->data; *s;) {
        size_t length = html_utf8_length(s);
        assert_true(length > 0 && ((unsigned char)*s >= 32 || *s == '\n' || *s == '\t'));
        if (*s != '<') {
            s += length;
            continue;
        }
        bool closing = s[1] == '/';
        size_t n = strcspn(s + 1 + closing, " >/\n");
        const char *name = s + 1 + closing, *end = strchr(s, '>');
        assert_non_null(end);
        assert_true(n > 0 && n < sizeof stack[0]);
        bool alone = end[-1] == '/';
        for (size_t i = 0; i < sizeof empty / sizeof *empty; i++)
            alone = alone || (strlen(empty[i]) == n && strncmp(empty[i], name, n) == 0);
        assert_int_not_equal(strncmp(name, "script", 6), 0);
        if (closing) {
            assert_true(depth > 0);
            depth--;
            assert_true(strlen(stack[depth]) == n && strncmp(stack[depth], name, n) == 0);
        } else if (!alone) {
            assert_in_range(depth, 0, 63);
            snprintf(stack[depth++], sizeof stack[0], "%.*s", (int)n, name);
        }
        s = end + 1;
    }
    assert_int_equal(depth, 0);
    assert_null(strstr(text->data, "=\"nan"));
    assert_null(strstr(text->data, "Mnan"));
    assert_null(strstr(text->data, "\"inf"));
}

static void test_runs(void **state)
{
    (void)state;
    static const char *const labels[] = {"good",   "invalid", "bare",      "hostile", "large",
                                         "trace",  "change",  "one",       "fifty",   "long",
                                         "layers", "evil",    REPORT_LABEL};
    struct store *store;
    assert_int_equal(store_open(temp_folder(), &store), SOL_OK);
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
        struct store_record *record = read_run(labels[i]);
        struct html *html;
        struct html_text text;
        assert_int_equal(report_run(store, record, &html), SOL_OK);
        assert_int_equal(html_finish(html, &text), SOL_OK);
        check_markup(&text);
        assert_null(strstr(text.data, " onx=1>")); /* of an element of theirs */
        assert_true(text.size < 1000000);
        assert_int_equal(strstr(text.data, "<title>INVALID") != NULL, i == 1);
        assert_int_equal(strstr(text.data, "ran more or less often") != NULL, i == 1 || i == 3);
        html_destroy(html);
        store_record_destroy(record);
    }
    store_close(store);
}

static void test_history(void **state)
{
    (void)state;
    struct store *store;
    struct html *html;
    struct html_text text;
    struct string_list metrics = {.values = {"tg128", "none"}, .count = 2};
    struct report_history options = {.metrics = &metrics, .label = "good"};
    assert_int_equal(store_open(temp_folder(), &store), SOL_OK);
    assert_int_equal(report_history(store, &options, &html), SOL_OK);
    assert_int_equal(html_finish(html, &text), SOL_OK);
    assert_non_null(strstr(text.data, "One run makes no history"));
    html_destroy(html);
    options.label = NULL;
    options.model = "gpt-oss-20b.gguf";
    assert_int_equal(report_history(store, &options, &html), SOL_OK);
    assert_int_equal(html_finish(html, &text), SOL_OK);
    check_markup(&text);
    assert_non_null(strstr(text.data, "No run has this metric."));
    assert_non_null(strstr(text.data, "Split long key ranges over the threads"));
    html_destroy(html);
    store_close(store);
}

/* ---- contrast ---- */

static double luminance(unsigned rgb)
{
    static const double weights[] = {0.2126, 0.7152, 0.0722};
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        double c = (double)(rgb >> (16 - 8 * i) & 255) / 255;
        sum += weights[i] * (c <= 0.04045 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4));
    }
    return sum;
}

static unsigned rgb_of(const char *scheme, const char *name)
{
    char key[32];
    snprintf(key, sizeof key, "--%s:#", name);
    const char *at = strstr(scheme, key);
    assert_non_null(at);
    return (unsigned)strtoul(at + strlen(key), NULL, 16);
}

static double colour(const char *scheme, const char *name)
{
    return luminance(rgb_of(scheme, name));
}

static double mixed(const char *scheme, const char *first, const char *second, double part)
{
    unsigned a = rgb_of(scheme, first), b = rgb_of(scheme, second), mix = 0;
    for (int shift = 16; shift >= 0; shift -= 8)
        mix |= (unsigned)lround(part * (a >> shift & 255) + (1 - part) * (b >> shift & 255))
               << shift;
    return luminance(mix);
}

static void test_contrast(void **state)
{
    (void)state;
    static const char *const starts[] = {":root{", "(prefers-color-scheme:dark){:root{",
                                         "@media print{:root{"};
    static const char *const text[] = {"ink", "soft", "accent", "good", "warn", "bad"};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        const char *scheme = strstr(sol_report_style, starts[i]);
        assert_non_null(scheme);
        for (size_t j = 0; j < sizeof text / sizeof *text; j++) {
            double a = colour(scheme, text[j]), b = colour(scheme, "paper");
            double ratio = (fmax(a, b) + 0.05) / (fmin(a, b) + 0.05);
            if (ratio < 4.5)
                fail_msg("%s on paper: contrast %.2f in %s", text[j], ratio, starts[i]);
        }
        /* Texts in the pieces of a time line; a wait has ink on it. */
        static const char *const pieces[] = {"k0", "k1", "k2", "k3", "k4", "k5", "k7", "k9", "k8"};
        for (size_t j = 0; j < sizeof pieces / sizeof *pieces; j++) {
            double a = colour(scheme, pieces[j]), b = colour(scheme, j == 8 ? "ink" : "paper");
            if ((fmax(a, b) + 0.05) / (fmin(a, b) + 0.05) < 4.5)
                fail_msg("text on %s in %s", pieces[j], starts[i]);
        }
        /* The strongest shade of a table of layers, mixed as browsers do it. */
        const char *strongest = strstr(sol_report_style, ".h9{--h:");
        assert_non_null(strongest);
        double part = atof(strongest + strlen(".h9{--h:")) / 100;
        double shade = mixed(scheme, "accent", "paper", part), ink = colour(scheme, "ink");
        assert_true((fmax(shade, ink) + 0.05) / (fmin(shade, ink) + 0.05) >= 4.5);
        double a = colour(scheme, "ink"), b = colour(scheme, "badwash");
        assert_true((fmax(a, b) + 0.05) / (fmin(a, b) + 0.05) >= 4.5);
    }
}

int main(int argc, char **argv)
{
    /* For tests/cli_report.sh. */
    if (argc == 3 && strcmp(argv[1], "--fixture") == 0)
        return report_fixture_write(argv[2]) == SOL_OK ? 0 : 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_escape),   cmocka_unit_test(test_print),
        cmocka_unit_test(test_command),  cmocka_unit_test(test_figures),
        cmocka_unit_test(test_scales),   cmocka_unit_test(test_fit),
        cmocka_unit_test(test_run_data), cmocka_unit_test(test_steps_of_a_profile),
        cmocka_unit_test(test_runs),     cmocka_unit_test(test_history),
        cmocka_unit_test(test_contrast),
    };
    return cmocka_run_group_tests(tests, make_store, temp_folder_remove);
}
