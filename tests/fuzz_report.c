/* Reports of runs whose names, numbers and notes are any bytes. What comes out is whole and holds
 * no markup that came in: every < begins a tag of ours. */
#include "report/report.h"

#include <string.h>

#include "support/fuzz.h"

struct input {
    const uint8_t *data;
    size_t size;
    char texts[4096];
    size_t used;
};

static uint8_t take_byte(struct input *in)
{
    if (in->size == 0) return 0;
    in->size--;
    return *in->data++;
}

/* Any double, NaN and infinities too. */
static double take_number(struct input *in)
{
    double value;
    uint8_t bytes[sizeof value];
    uint8_t kind = take_byte(in);
    if (kind < 128) return kind * 1e3;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = take_byte(in);
    memcpy(&value, bytes, sizeof value);
    return value;
}

/* Up to the next zero byte. "" when there is no room left, and NULL at times. */
static const char *take_text(struct input *in)
{
    size_t length = 0;
    while (length < in->size && in->data[length]) length++;
    if (length == 1 && in->data[0] == 'N') length = SIZE_MAX;
    char *text = in->texts + in->used;
    size_t kept = length == SIZE_MAX ? 0 : length;
    if (in->used + kept + 1 > sizeof in->texts) kept = 0;
    if (in->used + kept + 1 > sizeof in->texts) return "";
    if (kept) memcpy(text, in->data, kept);
    text[kept] = '\0';
    in->used += kept + 1;
    size_t step = (length == SIZE_MAX ? 1 : length) + 1;
    step = step < in->size ? step : in->size;
    in->data += step;
    in->size -= step;
    return length == SIZE_MAX ? NULL : text;
}

static void check(const char *text)
{
    for (const char *s = strchr(text, '<'); s; s = strchr(s + 1, '<')) {
        FUZZ_REQUIRE(s[1] == '/' || s[1] == '!' || (s[1] >= 'a' && s[1] <= 'z'));
        FUZZ_REQUIRE(strncmp(s, "<zz", 3) != 0); /* what the corpus tries to bring in */
    }
    for (const char *s = text; *s; s += html_utf8_length(s)) FUZZ_REQUIRE(html_utf8_length(s) > 0);
    FUZZ_REQUIRE(strlen(text) > 16 && strcmp(text + strlen(text) - 8, "</html>\n") == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {.data = data, .size = size};
    struct store_sample samples[4];
    struct store_metric metrics[2];
    struct store_kernel kernels[3];
    const char *const units[] = {"ns/token", "ns", "bytes", NULL};
    for (size_t i = 0; i < 4; i++)
        samples[i] = (struct store_sample){
            .value = take_number(&in), .flags = take_byte(&in) & 7u, .cause = take_text(&in)};
    for (size_t i = 0; i < 2; i++) {
        const char *unit = units[take_byte(&in) & 3], *name = take_text(&in), *own = take_text(&in);
        metrics[i] = (struct store_metric){.name = name ? name : "",
                                           .unit = unit  ? unit
                                                   : own ? own
                                                         : "",
                                           .limit = take_number(&in),
                                           .test_json = take_text(&in),
                                           .samples = samples,
                                           .n_samples = 4};
    }
    for (size_t i = 0; i < 3; i++)
        kernels[i] = (struct store_kernel){.metric = metrics[i & 1].name,
                                           .phase = take_text(&in),
                                           .layer = (int)i - 1,
                                           .op = take_text(&in),
                                           .variant = take_text(&in),
                                           .name = take_text(&in),
                                           .category = take_text(&in),
                                           .numerics = take_text(&in),
                                           .calls = take_byte(&in) - 1,
                                           .expected = take_byte(&in) - 1,
                                           .calls_per_token = take_number(&in),
                                           .total_ns = take_number(&in),
                                           .bytes = take_number(&in),
                                           .flops = take_number(&in),
                                           .limit_ns = take_number(&in)};
    const char *rule = take_text(&in), *kind = take_text(&in);
    struct store_advice advice = {rule ? rule : "", take_text(&in),   take_text(&in),
                                  take_text(&in),   take_number(&in), take_number(&in),
                                  take_number(&in)};
    const struct store_record record = {
        .run = {.id = "b12345678",
                .kind = kind ? kind : "",
                .label = take_text(&in),
                .state = take_byte(&in) % STORE_STATE_COUNT,
                .reason = take_text(&in),
                .argv_json = take_text(&in),
                .cwd = take_text(&in),
                .device = take_text(&in),
                .model = take_text(&in),
                .payload_json = take_text(&in)},
        .environment_json = take_text(&in),
        .metrics = metrics,
        .n_metrics = 2,
        .kernels = kernels,
        .n_kernels = 3,
        .advice = &advice,
        .n_advice = 1,
    };
    struct html *html;
    struct html_text text;
    FUZZ_REQUIRE(report_run(NULL, &record, &html) == SOL_OK);
    FUZZ_REQUIRE(html_finish(html, &text) == SOL_OK);
    check(text.data);
    html_destroy(html);
    return 0;
}
