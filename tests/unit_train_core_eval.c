/* CORE of a model: folders of tasks, and scores against nanochat's own code with transformers
 * (tests/data/core_scores.json, made by tools/core_scores.py), however the engine is cut. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/rng.h"
#include "ops/batch.h"
#include "support/effort.h"
#include "train/core_eval.h"
#include "train/core_score.h"

#define DATA SOL_SOURCE_DIR "/tests/data/"

static const double BOUND = 1e-4; /* nats per token */

static char folder[] = "/tmp/sol-core-eval-XXXXXX";
static struct model *model;

static void must(enum sol_status status)
{
    if (status != SOL_OK) fail_msg("%s", sol_last_error());
}

/* ---- an engine ---- */

struct shape {
    int64_t context, sequences, pages, batch, outputs; /* 0: as core_scorer_prepare has it */
};

static struct engine *make_engine(struct shape shape, struct engine_params *p)
{
    struct engine *engine;
    engine_params_init(p);
    p->kv_dtype = DTYPE_F32;
    p->chooser.loosest = NUMERICS_EXACT;
    if (shape.batch) p->max_batch = shape.batch;
    core_scorer_prepare(model, shape.context, p);
    if (shape.sequences) p->sequences = shape.sequences;
    if (shape.pages) p->cache_positions = shape.pages * KV_PAGE;
    if (shape.outputs) p->max_outputs = shape.outputs;
    must(engine_create(model, p, &engine));
    return engine;
}

/* ---- scores ---- */

struct seen {
    const json_t *items;
    size_t next, right;
    double worst;
};

static void on_scored(void *arg, size_t index, const struct core_example *e)
{
    struct seen *s = arg;
    const json_t *item = json_array_get(s->items, index), *losses = json_object_get(item, "losses");
    assert_int_equal(index, s->next++);
    assert_int_equal(json_array_size(losses), e->count);
    for (size_t i = 0; i < e->count; i++) {
        double wanted = json_real_value(json_array_get(losses, i));
        double apart = fabs(core_sequence_loss(&e->sequences[i]) - wanted);
        if (!(apart <= BOUND)) fail_msg("item %zu, answer %zu: %g apart", index, i, apart);
        if (apart > s->worst) s->worst = apart;
        assert_int_equal(e->sequences[i].likely,
                         json_is_true(json_array_get(json_object_get(item, "likely"), i)));
    }
    assert_int_equal(core_example_right(e), json_is_true(json_object_get(item, "right")));
    s->right += core_example_right(e);
}

static int64_t check_scores(struct shape shape)
{
    json_error_t error;
    struct engine_params params;
    struct core_bundle *bundle;
    struct core_scorer *scorer;
    struct engine *engine = make_engine(shape, &params);
    json_t *root = json_load_file(DATA "core_scores.json", 0, &error);
    const json_t *tasks = json_object_get(root, "tasks");
    double worst = 0;
    must(core_bundle_open(DATA "core_tasks", &bundle));
    must(core_scorer_create(engine, &params, &scorer));
    assert_int_equal(bundle->count, json_array_size(tasks));
    for (size_t i = 0; i < bundle->count; i++) {
        const struct core_entry *entry = &bundle->entries[i];
        const json_t *task = json_array_get(tasks, i);
        struct seen seen = {.items = json_object_get(task, "items")};
        struct core_task *t;
        assert_string_equal(entry->label, json_string_value(json_object_get(task, "label")));
        must(core_task_open(entry->path, &entry->options, &t));
        must(core_score_task(scorer, t, on_scored, &seen));
        assert_int_equal(seen.next, json_array_size(seen.items));
        worst = fmax(worst, seen.worst);
        core_task_close(t);
    }
    const int64_t rows = core_scorer_rows(scorer);
    print_message("%lld sequences, %lld pages, %lld rows a step: %lld rows, worst %.2g of %g\n",
                  (long long)params.sequences, (long long)shape.pages, (long long)params.max_batch,
                  (long long)rows, worst, BOUND);
    core_scorer_destroy(scorer);
    core_bundle_close(bundle);
    json_decref(root);
    engine_destroy(engine);
    return rows;
}

static void test_scores(void **state)
{
    (void)state;
    const int64_t rows = check_scores((struct shape){0});
    /* Several rounds for one question, then each answer alone: no beginning is shared. */
    assert_true(check_scores((struct shape){.sequences = 3}) > rows);
    const int64_t alone = check_scores((struct shape){.sequences = 1});
    assert_true(alone > 3 * rows / 2);
    /* Little room in each way; rings that are whole, and ones that are not. */
    static const struct shape shapes[] = {{.pages = 6, .sequences = 5, .batch = 37, .outputs = 2},
                                          {.batch = 7, .outputs = 1},
                                          {.batch = 2000}};
    const int64_t n = effort("shapes of an engine", sizeof shapes / sizeof *shapes, 1);
    for (int64_t i = 0; i < n; i++) check_scores(shapes[i]);
}

/* ---- copies ---- */

/* What follows a copy is what follows the original. */
static void test_copy(void **state)
{
    (void)state;
    enum { MOST = 400 };
    struct rng rng;
    rng_seed(&rng, 11);
    const int64_t rounds = effort("rounds", 12, 4);
    for (int64_t round = 0; round < rounds; round++) {
        struct engine_params params;
        struct engine *engine = make_engine(
            (struct shape){
                .context = MOST + 1, .sequences = 3, .batch = 1 + (int64_t)(rng_next(&rng) % 90)},
            &params);
        struct engine_row rows[MOST];
        const int64_t n = 1 + (int64_t)(rng_next(&rng) % MOST);
        const int64_t vocab = model->config.vocab;
        const float *logits;
        float *wanted = malloc((size_t)vocab * sizeof *wanted);
        for (int64_t i = 0; i < n; i++)
            rows[i] = (struct engine_row){(int32_t)(rng_next(&rng) % 256), 1, false};
        must(engine_eval(engine, rows, n, NULL, NULL, NULL));
        rows[0].sequence = 2; /* forgotten */
        must(engine_eval(engine, rows, 1, NULL, NULL, NULL));
        must(engine_copy(engine, 1, 2));
        assert_int_equal(engine_position(engine, 2), n);
        struct engine_row next = {65, 1, true};
        must(engine_eval(engine, &next, 1, NULL, NULL, &logits));
        memcpy(wanted, logits, (size_t)vocab * sizeof *wanted);
        next.sequence = 2;
        must(engine_eval(engine, &next, 1, NULL, NULL, &logits));
        assert_memory_equal(wanted, logits, (size_t)vocab * sizeof *wanted);
        free(wanted);
        engine_destroy(engine);
    }
}

static void test_copy_without_room(void **state)
{
    (void)state;
    struct engine_params params;
    struct engine *engine =
        make_engine((struct shape){.context = 300, .sequences = 2, .pages = 2}, &params);
    struct engine_row rows[200];
    for (int i = 0; i < 200; i++) rows[i] = (struct engine_row){i % 256, 0, false};
    must(engine_eval(engine, rows, 200, NULL, NULL, NULL));
    assert_int_equal(engine_copy(engine, 0, 1), SOL_E_MEMORY); /* the page that is not full */
    assert_int_equal(engine_position(engine, 1), 0);
    assert_int_equal(engine_position(engine, 0), 200);
    engine_destroy(engine);
}

/* ---- all together ---- */

static struct core_result evaluate(size_t max_per_task, int64_t context)
{
    struct engine_params params;
    struct core_result result;
    struct core_eval_params how = {.max_per_task = max_per_task};
    struct core_bundle *bundle;
    struct engine *engine = make_engine((struct shape){.context = context}, &params);
    must(core_bundle_open(DATA "core_tasks", &bundle));
    how.bundle = bundle;
    must(core_eval(engine, &params, &how, &result));
    assert_true(result.complete);
    assert_int_equal(result.count, bundle->count);
    for (size_t i = 0; i < result.count; i++) {
        const struct core_task_result *t = &result.tasks[i];
        assert_true(t->low <= t->accuracy && t->accuracy <= t->high && t->low < t->high);
    }
    core_bundle_close(bundle);
    engine_destroy(engine);
    return result;
}

static void test_core(void **state)
{
    (void)state;
    json_error_t error;
    json_t *root = json_load_file(DATA "core_scores.json", 0, &error);
    struct core_result r = evaluate(0, 0);
    for (size_t i = 0; i < r.count; i++) {
        const json_t *task = json_array_get(json_object_get(root, "tasks"), i);
        const json_t *centered = json_object_get(task, "centered");
        assert_true(fabs(r.tasks[i].centered - json_real_value(centered)) < 1e-12);
        assert_int_equal(r.tasks[i].cropped, 0);
    }
    assert_true(fabs(r.core - json_real_value(json_object_get(root, "core"))) < 1e-12);
    assert_true(r.low < r.core && r.core < r.high);
    assert_int_equal(r.items, 24 + 24 + 15 + 12 + 10);
    core_result_free(&r);
    json_decref(root);

    r = evaluate(9, 128); /* the few-shot prompts are longer */
    assert_int_equal(r.items, 9 * 5);
    assert_int_equal(r.tasks[0].cropped, 0);
    assert_int_equal(r.tasks[1].cropped, 9);
    core_result_free(&r);
}

/* ---- folders ---- */

static void write_file(const char *name, const char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *to = fopen(path, "w");
    assert_non_null(to);
    fputs(text, to);
    assert_int_equal(fclose(to), 0);
}

static const char *const baselines = "Random baseline,Eval Task\n0,a\n12.5,b b\n";

/* Other spellings of the same. */
static void test_bundle(void **state)
{
    (void)state;
    struct core_bundle *b;
    write_file("eval_meta_data.csv", baselines);
    write_file("core.yaml",
               "---\nother: [1]\nicl_tasks: # some\n  - label: a  # the first\n"
               "    metric_names:\n    - Accuracy\n    nested:\n      label: no\n"
               "    num_fewshot: 5\n    icl_task_type: \"schema\"\n\n"
               "    dataset_uri: x#y.jsonl\n"
               "  -\n    dataset_uri: 'it''s'\n    num_fewshot:\n      - 3\n      - 4\n"
               "    label: b b\r\n    icl_task_type: language_modeling\n"
               "    continuation_delimiter: \" \\\"\\n\\\\\"\nrest:\n  - label: c\n");
    must(core_bundle_open(folder, &b));
    assert_int_equal(b->count, 2);
    const struct core_entry *e = b->entries;
    assert_string_equal(e[0].label, "a");
    assert_int_equal(e[0].options.kind, CORE_SCHEMA);
    assert_int_equal(e[0].options.few_shot, 5);
    assert_string_equal(e[0].options.delimiter, " ");
    assert_string_equal(e[0].path + strlen(folder), "/eval_data/x#y.jsonl");
    assert_true(e[0].baseline == 0 && e[1].baseline == 12.5);
    assert_string_equal(e[1].label, "b b");
    assert_int_equal(e[1].options.few_shot, 3);
    assert_int_equal(e[1].options.kind, CORE_LANGUAGE_MODELING);
    assert_string_equal(e[1].options.delimiter, " \"\n\\");
    assert_string_equal(e[1].path + strlen(folder), "/eval_data/it's");
    core_bundle_close(b);
}

static void refused(const char *yaml, const char *csv, const char *message)
{
    struct core_bundle *b;
    write_file("core.yaml", yaml);
    write_file("eval_meta_data.csv", csv);
    assert_int_equal(core_bundle_open(folder, &b), SOL_E_FORMAT);
    if (!strstr(sol_last_error(), message)) fail_msg("'%s', not '%s'", sol_last_error(), message);
    assert_null(b);
}

#define HEAD "icl_tasks:\n- label: a\n  num_fewshot: [0]\n  icl_task_type: schema\n"

static void test_bad_bundles(void **state)
{
    (void)state;
    struct core_bundle *b;
    assert_int_equal(core_bundle_open("/nowhere", &b), SOL_E_IO);
    refused("", baselines, "core.yaml' has no list 'icl_tasks'");
    refused(HEAD, baselines, "core.yaml', line 2: a task without 'dataset_uri'");
    refused(HEAD "  dataset_uri: |\n    x\n", baselines, "line 5: no plain or quoted text: '|'");
    refused(HEAD "  dataset_uri: 'x\n", baselines, "line 5: a quote that does not end: ''x'");
    refused(HEAD "  dataset_uri: \"\\x41\"\n", baselines, "line 5: an escape that is not read");
    refused(HEAD "  label: b\n", baselines, "line 5: this is said twice: 'label'");
    refused(HEAD "  dataset_uri\n", baselines, "line 5: no 'key: value': 'dataset_uri'");
    refused(HEAD "\tdataset_uri: x\n", baselines, "line 5: a tab before 'dataset_uri: x'");
    refused("icl_tasks:\n  x: y\n", baselines, "line 2: outside an item of the list: 'x: y'");
    refused(
        "icl_tasks:\n- label: a\n  num_fewshot: [-1]\n  icl_task_type: schema\n  dataset_uri: x\n",
        baselines, "line 2: num_fewshot is no number of items: '-1'");
    refused("icl_tasks:\n- label: a\n  num_fewshot: [1]\n  icl_task_type: quiz\n  dataset_uri: x\n",
            baselines,
            "line 2: icl_task_type is multiple_choice, schema or language_modeling, not 'quiz'");
    refused(HEAD "  dataset_uri: x\n", "Eval Task,Baseline\na,0\n",
            "eval_meta_data.csv': no columns 'Eval Task' and 'Random baseline'");
    refused(HEAD "  dataset_uri: x\n", "Eval Task,Random baseline\n\"a,0\n",
            "eval_meta_data.csv': line 2: a quote that does not end");
    refused(HEAD "  dataset_uri: x\n", "", "eval_meta_data.csv': no columns");
    refused(HEAD "  dataset_uri: x\n", "Eval Task,Random baseline\nb,0\n",
            "eval_meta_data.csv': no row for task 'a'");
    refused(HEAD "  dataset_uri: x\n", "Eval Task,Random baseline\na,100\n",
            "eval_meta_data.csv', line 2: no percentage below 100: '100'");
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return -1;
    return model_open(DATA "hf_tiny", &model) == SOL_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    char path[4096];
    (void)state;
    model_close(model);
    snprintf(path, sizeof path, "%s/core.yaml", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/eval_meta_data.csv", folder);
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_copy_without_room),
        cmocka_unit_test(test_core),
        cmocka_unit_test(test_bundle),
        cmocka_unit_test(test_bad_bundles),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
