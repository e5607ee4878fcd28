/* Predictions for many GPUs: the limits that they must keep, what is read off the measured links,
 * accounts of plans by other formulas, and the measurements of two GPUs that there are. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/status.h"
#include "gpu/device.h"
#include "scale/checked.h"
#include "scale/model.h"
#include "scale/training.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const struct work_limits h200 = {4.8e12, 989.4e12, 66.9e12};

static void near(const char *what, double is, double wanted, double part)
{
    if (!(fabs(is - wanted) <= part * fabs(wanted)))
        fail_msg("%s: %.9g, wanted %.9g", what, is, wanted);
}

static struct work work_of(const struct work_part *parts, int n)
{
    struct work work = {0};
    for (int i = 0; i < n; i++) assert_int_equal(work_add_part(&work, &parts[i]), SOL_OK);
    return work;
}

/* ---- the rule ---- */

static const struct work_part whole[] = {
    {"attention", 10, 0, 0, 1000}, {"fused", 10, 0, 0, 3000}, {"head", 1, 0, 0, 500}};
/* Half of attention, all of the head; what was fused in two, of which one halves. */
static const struct work_part half[] = {{"attention", 10, 0, 0, 500},
                                        {"first", 10, 0, 0, 1000},
                                        {"second", 10, 0, 0, 1000},
                                        {"head", 1, 0, 0, 500}};

static void one_gpu_is_what_was_measured(void **state)
{
    (void)state;
    const struct work one = work_of(whole, COUNT(whole));
    const struct scale_op_time times[] = {{"attention", 7}, {"fused", 1}, {"head", 2}};
    for (int i = 0; i < 4; i++) {
        /* A call may be said to take more than a step has for it. */
        const struct scale_measured m = {.step_ns = 9000,
                                         .call_ns = (double[]){0, 100, 300, 1e6}[i],
                                         .ops = times,
                                         .n_ops = i % 2 * 3};
        near("one", scale_compute_ns(&one, &one, &m), 9000, 1e-12);
    }
}

static void a_part_is_calls_and_a_share_of_the_rest(void **state)
{
    (void)state;
    const struct work one = work_of(whole, COUNT(whole)), part = work_of(half, COUNT(half));
    const struct scale_measured bare = {.step_ns = 9000}, calls = {.step_ns = 9000, .call_ns = 100};
    near("without calls", scale_compute_ns(&one, &part, &bare), 2.0 * (500 + 2000 + 500), 1e-12);
    /* 21 calls stay; the rest is 6900 of 4500. */
    near("with calls", scale_compute_ns(&one, &part, &calls), 2100 + 6900.0 / 4500 * 3000, 1e-12);
    /* All time in attention, which halves; where too much was not timed, times are left out. */
    const struct scale_op_time times[] = {{"attention", 98}, {"fused", 1}, {"head", 1}};
    const struct scale_measured timed = {.step_ns = 100, .ops = times, .n_ops = 3};
    const struct scale_measured some = {.step_ns = 9000, .ops = times, .n_ops = 2};
    near("timed", scale_compute_ns(&one, &part, &timed), 49 + 2.0 / 3 + 1, 1e-12);
    near("some timed", scale_compute_ns(&one, &part, &some), 6000, 1e-12);
}

/* What was timed as attn_moe are attn_out and moe, by the least that they could take. */
static void times_of_a_sequence_are_its_parts(void **state)
{
    (void)state;
    const struct work_part parts[] = {{"attention", 10, 0, 0, 500},
                                      {"attn_out", 10, 0, 0, 1000},
                                      {"moe", 10, 0, 0, 2000},
                                      {"head", 1, 0, 0, 400}};
    struct work one = work_of(parts, COUNT(parts)), part = one;
    part.parts[2].limit_ns /= 2;
    const struct scale_op_time times[] = {{"attention", 60}, {"attn_moe", 30}, {"head", 10}};
    const struct scale_measured m = {.step_ns = 100, .ops = times, .n_ops = 3};
    near("one", scale_compute_ns(&one, &one, &m), 100, 1e-12);
    near("half the experts", scale_compute_ns(&one, &part, &m), 60 + 10 + 20.0 / 2 + 10, 1e-12);
}

static void calls_are_what_reading_leaves(void **state)
{
    (void)state;
    const struct work one = work_of(whole, COUNT(whole)), none = {0};
    near("calls", scale_call_ns(&one, 4500 + 21 * 70), 70, 1e-12);
    near("faster than possible", scale_call_ns(&one, 4000), 0, 0);
    near("of nothing", scale_call_ns(&none, 4000), 0, 0);
}

/* ---- links ---- */

static const char *const ops[] = {"all_reduce", "reduce_scatter", "all_gather"};
static const struct network_ranks two = {2, 2}, eight = {8, 8};

static void measured_sizes_are_read_off(void **state)
{
    (void)state;
    struct network n;
    network_init(&n);
    near("one shot", network_ns(&n, "all_reduce", 11520, two), 1992, 1e-9);
    near("nccl", network_ns(&n, "all_reduce", 1 << 20, two), 12719, 1e-3);
    near("between", network_ns(&n, "all_reduce", 2 << 20, two), sqrt(12719.0 * 32118), 1e-3);
    near("beyond", network_ns(&n, "all_gather", 512 << 20, two),
         2 * network_ns(&n, "all_gather", 256 << 20, two), 1e-9);
    near("tiles", network_ns(&n, "all_reduce_add", 1 << 22, two), 13180, 1e-9);
    for (int i = 0; i < n.n_lines; i++)
        if (strcmp(n.lines[i].op, "all_reduce_add") == 0) strcpy(n.lines[i].op, "another");
    near("not measured", network_ns(&n, "all_reduce_add", 11520, two), 1992, 1e-9);
    near("one rank", network_ns(&n, "all_gather", 1 << 20, (struct network_ranks){1, 1}), 0, 0);
    near("no bytes", network_ns(&n, "all_gather", 0, two), 0, 0);
    /* Eight ranks carry 7/4 of what two do, and a ring of six more. */
    near("eight", network_ns(&n, "all_reduce", 64 << 20, eight),
         network_ns(&n, "all_reduce", 112 << 20, two) + 12 * n.one_way_ns, 1e-9);
}

static void messages_never_get_cheaper(void **state)
{
    (void)state;
    struct network n, better;
    network_init(&n);
    for (size_t o = 0; o < COUNT(ops); o++)
        for (int64_t ranks = 2; ranks <= 1024; ranks *= 2) {
            const struct network_ranks r = {ranks, ranks < 8 ? ranks : 8};
            const struct network_ranks more = {2 * ranks, ranks < 4 ? 2 * ranks : 8};
            double before = 0;
            for (double bytes = 4; bytes < 4e9; bytes *= 1.7) {
                const double ns = network_ns(&n, ops[o], bytes, r);
                assert_true(ns >= before * (1 - 1e-12));
                assert_true(network_ns(&n, ops[o], bytes, more) >= ns * (1 - 1e-12));
                better = n;
                better.adapter *= 2;
                assert_true(network_ns(&better, ops[o], bytes, r) <= ns);
                better.adapter_ns /= 2;
                assert_true(network_ns(&better, ops[o], bytes, r) <= ns);
                before = ns;
            }
        }
}

static void nodes_are_as_far_as_their_adapters(void **state)
{
    (void)state;
    struct network n;
    network_init(&n);
    n.adapter = 25e9; /* of both the slower */
    const double bytes = 1 << 30, reached = (256 << 20) / 895560e-9 / n.link;
    const double outside = 1e9 * bytes * 2 * 15 / 16 / (8 * n.adapter * reached);
    near("two nodes", network_ns(&n, "all_reduce", bytes, (struct network_ranks){16, 8}),
         5561 + outside + 2 * (n.adapter_ns + 7 * n.one_way_ns), 1e-4);
    near("one of each node", network_ns(&n, "all_reduce", bytes, (struct network_ranks){16, 1}),
         5561 + 8 * outside + 8 * n.adapter_ns, 1e-4);
}

/* A billion times as fast, without ways. */
static void make_free(struct network *n)
{
    network_init(n);
    for (int i = 0; i < n->n_lines; i++) n->lines[i].ns *= 1e-9;
    n->link *= 1e9;
    n->adapter *= 1e9;
    n->one_way_ns = n->adapter_ns = 0;
}

static void links_are_read_from_files(void **state)
{
    (void)state;
    static const char text[] =
        "{\"links\": {\"gpus\": 4, \"link_gb_s\": 100, \"pairs\": [{\"one_way_ns\": 700}, "
        "{\"one_way_ns\": 900}], \"collectives\": [%s]}}";
    static const char lines[] =
        "{\"op\": \"all_reduce\", \"variant\": \"x\", \"bytes\": 1024, \"ns\": {\"median\": 9}},"
        "{\"op\": \"all_gather\", \"variant\": \"x\", \"bytes\": 1024, \"ns\": {\"median\": 7}},"
        "{\"op\": \"reduce_scatter\", \"variant\": \"x\", \"bytes\": 1024, \"ns\": {\"median\": "
        "8}}";
    static const char *const wrong[] = {
        "", "{\"op\": \"all_reduce\", \"variant\": \"x\", \"bytes\": 8, \"ns\": {\"median\": 9}}",
        "{\"op\": \"all_reduce\", \"variant\": \"x\", \"bytes\": 8, \"ns\": null}",
        "{\"op\": \"all_reduce\", \"variant\": \"x\", \"bytes\": -8, \"ns\": {\"median\": 9}}",
        "7"};
    char whole_text[2048];
    struct network n, kept;
    network_init(&n);
    kept = n;
    for (size_t i = 0; i < COUNT(wrong); i++) {
        snprintf(whole_text, sizeof whole_text, text, wrong[i]);
        json_t *json = json_loads(whole_text, 0, NULL);
        assert_int_equal(network_read(&n, json), SOL_E_FORMAT);
        json_decref(json);
    }
    assert_memory_equal(&n, &kept, sizeof n);
    snprintf(whole_text, sizeof whole_text, text, lines);
    json_t *json = json_loads(whole_text, 0, NULL);
    assert_int_equal(network_read(&n, json), SOL_OK);
    json_decref(json);
    assert_int_equal(n.gpus, 4);
    near("way", n.one_way_ns, 900, 0);
    near("line", network_ns(&n, "all_gather", 1024, (struct network_ranks){4, 4}), 7, 1e-9);
}

/* ---- accounts of plans ---- */

static struct gpu *gpu;
static struct model *large;

static int open_models(void **state)
{
    (void)state;
    static const struct model_params later = {.later = true};
    const struct gpu_info info = {.name = "GPU",
                                  .major = 9,
                                  .sm_count = 132,
                                  .memory_bytes = (size_t)141 << 30,
                                  .shared_per_block = 227 << 10,
                                  .shared_per_sm = 228 << 10};
    if (gpu_describe(&info, &gpu) != SOL_OK) return -1;
    return model_open_with("synth:gpt-oss-120b,layers=4", &later, &large) == SOL_OK ? 0 : -1;
}

static int close_models(void **state)
{
    (void)state;
    model_close(large);
    gpu_close(gpu);
    return 0;
}

static struct scale_model model_of(struct scale_task task)
{
    struct scale_model m = {.model = large, .limits = h200, .task = task};
    engine_params_init(&m.engine);
    m.engine.chooser.device.gpu = gpu;
    return m;
}

static double message_bytes(const struct work *w, const char *op, double *calls)
{
    double bytes = 0;
    *calls = 0;
    for (int i = 0; i < w->n_messages; i++)
        if (strcmp(w->messages[i].op, op) == 0) {
            bytes += w->messages[i].bytes * w->messages[i].calls;
            *calls += w->messages[i].calls;
        }
    return bytes;
}

static double flops_of(const struct work *w)
{
    double sum = 0;
    for (int i = 0; i < w->n_parts; i++) sum += w->parts[i].flops;
    return sum;
}

static void ranks_send_two_sums_a_layer_and_logits(void **state)
{
    (void)state;
    const struct work *one, *part;
    double calls;
    struct scale_model m = model_of((struct scale_task){.sequences = 32, .depth = 100});
    const struct model_config *c = &large->config;
    assert_int_equal(scale_model_work(&m, 1, 1, &one), SOL_OK);
    assert_int_equal(scale_model_work(&m, 8, 1, &part), SOL_OK);
    assert_int_equal(one->n_messages, 0);
    near("sums", message_bytes(part, "all_reduce_add", &calls), 8.0 * 32 * (double)c->hidden * 4,
         0);
    near("calls", calls, 8, 0);
    const double logits = message_bytes(part, "all_gather", &calls);
    assert_true(calls == 1 && logits >= 32.0 * (double)c->vocab * 4);
    near("logits", logits, 32.0 * (double)c->vocab * 4, 1e-2);
    /* A rank does at least an eighth, and the router whole. */
    assert_true(flops_of(part) > flops_of(one) / 8 && flops_of(part) < flops_of(one) / 6);
    assert_true(part->memory < one->memory / 4);
    scale_model_free(&m);
}

static void a_prompt_is_its_steps(void **state)
{
    (void)state;
    const struct work *all, *first;
    struct scale_model m = model_of((struct scale_task){.prompt = 5000, .chunk = 2048}),
                       n = model_of((struct scale_task){.prompt = 2048, .chunk = 2048});
    assert_int_equal(scale_model_work(&m, 1, 1, &all), SOL_OK);
    assert_int_equal(scale_model_work(&n, 1, 1, &first), SOL_OK);
    near("attention calls", work_part_of(all, "attention").calls, 12, 0);
    near("rows", work_part_of(all, "attn_in").flops / work_part_of(first, "attn_in").flops,
         5000.0 / 2048, 1e-9);
    /* Later rows see more. */
    assert_true(work_part_of(all, "attention").flops >
                1.5 * 5000 / 2048 * work_part_of(first, "attention").flops);
    near("one head", work_part_of(all, "head").calls, work_part_of(first, "head").calls, 0);
    scale_model_free(&m);
    scale_model_free(&n);
}

/* ---- ways ---- */

static const struct scale_way *find(const struct scale_way *ways, int n, struct scale_way like)
{
    for (int i = 0; i < n; i++)
        if (ways[i].tensor == like.tensor && ways[i].data == like.data &&
            ways[i].expert == like.expert && ways[i].stages == like.stages)
            return &ways[i];
    fail_msg("no such way");
    return NULL;
}

static void ways_of_a_model_keep_their_limits(void **state)
{
    (void)state;
    struct scale_way ways[SCALE_WAYS_MAX];
    struct network n, nothing;
    int count;
    const struct scale_measured measured = {.step_ns = 5e6};
    struct scale_model m = model_of((struct scale_task){.sequences = 64, .depth = 100});
    network_init(&n);
    make_free(&nothing);
    assert_int_equal(scale_model_ways(&m, &n, &measured, 1, 0, ways, &count), SOL_OK);
    assert_int_equal(count, 1);
    near("one", ways[0].step_ns, 5e6, 1e-12);
    near("efficiency of one", ways[0].efficiency, 1, 1e-12);
    assert_int_equal(scale_model_ways(&m, &n, &measured, 64, 0, ways, &count), SOL_OK);
    const struct scale_way copies = {.tensor = 1, .data = 64, .expert = 1, .stages = 1};
    near("copies", find(ways, count, copies)->efficiency, 1, 1e-12);
    double before = 5e6;
    for (int64_t t = 2; t <= 8; t *= 2) {
        const struct scale_way like = {.tensor = t, .data = 64 / t, .expert = 1, .stages = 1};
        const struct scale_way *w = find(ways, count, like);
        assert_true(w->built && w->compute_ns < before && w->compute_ns > 5e6 / (double)t);
        assert_true(w->efficiency < 1 && w->messages_ns > 0);
        before = w->compute_ns;
    }
    /* Where links cost nothing a step is what a rank computes. */
    assert_int_equal(scale_model_ways(&m, &nothing, &measured, 64, 0, ways, &count), SOL_OK);
    for (int i = 0; i < count; i++)
        near("free links", ways[i].step_ns, ways[i].compute_ns + ways[i].idle_ns, 1e-6);
    scale_model_free(&m);
}

static void what_does_not_fit_is_not_the_best(void **state)
{
    (void)state;
    struct scale_way ways[SCALE_WAYS_MAX];
    struct network n;
    int count;
    const struct work *one;
    const struct scale_measured measured = {.step_ns = 5e6};
    struct scale_model m = model_of((struct scale_task){.sequences = 1});
    network_init(&n);
    assert_int_equal(scale_model_work(&m, 1, 1, &one), SOL_OK);
    assert_int_equal(scale_model_ways(&m, &n, &measured, 4, one->memory, ways, &count), SOL_OK);
    int most = scale_most(ways, count);
    assert_true(most >= 0 && ways[most].data == 4);
    assert_int_equal(scale_model_ways(&m, &n, &measured, 4, one->memory - 1, ways, &count), SOL_OK);
    most = scale_most(ways, count);
    assert_true(most >= 0 && ways[most].tensor == 2);
    assert_int_equal(scale_model_ways(&m, &n, &measured, 4, 1 << 20, ways, &count), SOL_OK);
    assert_int_equal(scale_most(ways, count), -1);
    assert_int_equal(scale_soonest(ways, count), -1);
    scale_model_free(&m);
}

/* ---- training ---- */

static struct train_recipe recipe;

static struct scale_training training(int64_t tokens)
{
    struct train_flags flags;
    struct scale_training t = {.limits = h200, .micro_batches = 1, .tokens = tokens};
    train_flags_init(&flags);
    flags.depth = 4;
    flags.device_batch_size = 8;
    flags.total_batch_size = 8 * 2048;
    flags.num_iterations = 1;
    assert_int_equal(recipe_settle(&flags, 32768, &recipe), SOL_OK);
    trainer_params_init(&t.params);
    t.params.recipe = &recipe;
    t.params.sequences = 8;
    t.params.bf16 = true;
    t.params.chooser.device.gpu = gpu;
    return t;
}

static void gradients_go_once_and_weights_come_once(void **state)
{
    (void)state;
    struct work micro, update, alone;
    double calls;
    const struct scale_training t = training(0);
    assert_int_equal(scale_training_work(&t, 1, 8, &micro, &alone), SOL_OK);
    assert_int_equal(micro.n_messages + alone.n_messages, 0);
    assert_int_equal(scale_training_work(&t, 2, 8, &micro, &update), SOL_OK);
    assert_int_equal(micro.n_messages, 0);
    const double scattered = message_bytes(&update, "reduce_scatter", &calls);
    const double gathered = message_bytes(&update, "all_gather", &calls);
    const double small = message_bytes(&update, "all_reduce", &calls);
    assert_true(small < 1e-3 * scattered);
    /* Embeddings are in bf16, all else in float32. */
    const double most = 4.0 * (double)recipe.parameters;
    assert_true(scattered > most / 2 && scattered < most);
    near("gathered", gathered, scattered, 1e-9);
    near("muon", work_part_of(&update, "muon_prepare").bytes,
         work_part_of(&alone, "muon_prepare").bytes / 2, 1e-4); /* the rates are each one's */
}

static void ways_to_train_keep_their_limits(void **state)
{
    (void)state;
    struct scale_way ways[SCALE_WAYS_MAX];
    struct network n, nothing;
    int count;
    const struct scale_trained measured = {1e8, 2e7}, unsplit = {1e8, 0};
    struct scale_training t = training(0);
    network_init(&n);
    make_free(&nothing);
    assert_int_equal(scale_training_ways(&t, &n, &unsplit, 1, 0, ways, &count), SOL_OK);
    assert_int_equal(count, 1);
    near("one", ways[0].step_ns, 1e8, 1e-12);
    assert_int_equal(scale_training_ways(&t, &nothing, &measured, 2, 0, ways, &count), SOL_OK);
    assert_true(ways[0].built && ways[0].data == 2);
    /* The micro-batch stays, of the update about half. */
    assert_true(ways[0].compute_ns > 8.9e7 && ways[0].compute_ns < 9.3e7);
    assert_true(ways[0].efficiency > 1);
    double before = 0;
    for (int64_t gpus = 2; gpus <= 1024; gpus *= 2) {
        assert_int_equal(scale_training_ways(&t, &n, &measured, gpus, 0, ways, &count), SOL_OK);
        assert_true(ways[0].messages_ns > before);
        near("tokens", ways[0].tokens, (double)gpus * 8 * 2048, 0);
        before = ways[0].messages_ns;
    }
    /* An update of 16 sequences: 2 GPUs have a micro-batch each, 16 a sequence, 32 none. */
    t.tokens = 16 * 2048;
    assert_int_equal(scale_training_ways(&t, &nothing, &measured, 2, 0, ways, &count), SOL_OK);
    near("divided", ways[0].tokens, 16 * 2048, 0);
    assert_int_equal(scale_training_ways(&t, &nothing, &measured, 16, 0, ways, &count), SOL_OK);
    assert_true(ways[0].compute_ns > 8e7 / 8 && ways[0].compute_ns < 8e7 / 8 + 2e7);
    assert_int_equal(scale_training_ways(&t, &nothing, &measured, 32, 0, ways, &count), SOL_OK);
    assert_int_equal(count, 0);
}

/* ---- what two GPUs did ---- */

static struct work account_of(const json_t *accounts, const char *what, int ranks)
{
    struct work work = {0};
    size_t i, k;
    json_t *account, *item;
    json_array_foreach(accounts, i, account)
    {
        if (strcmp(json_string_value(json_object_get(account, "what")), what) != 0 ||
            json_integer_value(json_object_get(account, "ranks")) != ranks)
            continue;
        json_array_foreach(json_object_get(account, "parts"), k, item)
        {
            struct work_part p;
            assert_int_equal(json_unpack(item, "{s:s, s:F, s:F, s:F, s:F}", "op", &p.op, "calls",
                                         &p.calls, "flops", &p.flops, "bytes", &p.bytes, "limit_ns",
                                         &p.limit_ns),
                             0);
            assert_int_equal(work_add_part(&work, &p), SOL_OK);
        }
        json_array_foreach(json_object_get(account, "messages"), k, item)
        {
            struct work_message m;
            assert_int_equal(json_unpack(item, "{s:s, s:F, s:F}", "op", &m.op, "bytes", &m.bytes,
                                         "calls", &m.calls),
                             0);
            assert_int_equal(work_add_message(&work, &m), SOL_OK);
        }
    }
    assert_true(work.n_parts > 0);
    return work;
}

enum { OPS_MAX = 16 };

/* Times of ops in the measured step of one GPU, where they were taken. */
static int op_times(const json_t *c, struct scale_op_time out[OPS_MAX])
{
    size_t i;
    json_t *pair;
    const json_t *pairs = json_object_get(c, "op_us");
    assert_true(json_array_size(pairs) <= OPS_MAX);
    json_array_foreach(pairs, i, pair)
    {
        const char *us = json_string_value(json_array_get(pair, 1));
        out[i] = (struct scale_op_time){json_string_value(json_array_get(pair, 0)),
                                        1000 * strtod(us, NULL)};
    }
    return (int)i;
}

/* By the accounts of the plans that were measured (bench/predict_gpus.py), not today's. */
static double predict(const json_t *c, const struct network *n)
{
    const json_t *accounts = json_object_get(c, "accounts");
    const int gpus = (int)json_integer_value(json_object_get(c, "gpus"));
    const struct network_ranks all = {gpus, gpus};
    const double step = json_number_value(json_object_get(c, "step_ns"));
    const double tokens = json_number_value(json_object_get(c, "tokens"));
    struct scale_op_time times[OPS_MAX];
    const struct scale_measured m = {.step_ns = step,
                                     .call_ns = json_number_value(json_object_get(c, "call_ns")),
                                     .ops = times,
                                     .n_ops = op_times(c, times)};
    if (!json_is_true(json_object_get(c, "trains"))) {
        const struct work one = account_of(accounts, "step", 1);
        const struct work part = account_of(accounts, "step", gpus);
        return 1e9 * tokens /
               (scale_compute_ns(&one, &part, &m) + scale_messages_ns(&part, n, all));
    }
    const struct work micro = account_of(accounts, "micro-batch", 1);
    const struct work one = account_of(accounts, "update", 1);
    const struct work part = account_of(accounts, "update", gpus);
    const double limit = work_limit_ns(&one);
    const struct scale_measured update = {.step_ns =
                                              step * limit / (limit + work_limit_ns(&micro))};
    return 1e9 * gpus * tokens /
           (step - update.step_ns + scale_compute_ns(&one, &part, &update) +
            scale_messages_ns(&part, n, all));
}

/* With the part's step measured: only what is sent is predicted. */
static double predict_by_part(const json_t *c, const struct network *n)
{
    const int gpus = (int)json_integer_value(json_object_get(c, "gpus"));
    const double step = json_number_value(json_object_get(c, "part_ns"));
    const double tokens = json_number_value(json_object_get(c, "tokens"));
    const struct network_ranks all = {gpus, gpus};
    if (!(step > 0)) return 0;
    const struct work part = account_of(json_object_get(c, "accounts"), "step", gpus);
    return 1e9 * tokens / (step + scale_messages_ns(&part, n, all));
}

static void gpus_did_what_is_said(void **state)
{
    (void)state;
    struct network n;
    const struct scale_check *check;
    size_t i, within = 0;
    json_t *c, *cases = json_load_file(SOL_SOURCE_DIR "/tests/data/scale_h200.json", 0, NULL);
    network_init(&n);
    json_array_foreach(cases, i, c)
    {
        check = scale_check_at(i);
        assert_non_null(check);
        assert_string_equal(json_string_value(json_object_get(c, "what")), check->what);
        assert_int_equal(json_integer_value(json_object_get(c, "gpus")), check->gpus);
        near(check->what, predict(c, &n), check->predicted, 1e-3);
        near(check->what, predict_by_part(c, &n), check->by_part, 1e-3);
        near(check->what, json_number_value(json_object_get(c, "measured")), check->measured, 1e-3);
        within += scale_check_holds(check, check->predicted);
        if (check->by_part > 0) assert_true(scale_check_holds(check, check->by_part));
    }
    assert_null(scale_check_at(i));
    /* Not 32 sequences, nor the longer prompt of two; of four none but decoding and training. */
    assert_int_equal(within, 6);
    json_decref(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_gpu_is_what_was_measured),
        cmocka_unit_test(a_part_is_calls_and_a_share_of_the_rest),
        cmocka_unit_test(times_of_a_sequence_are_its_parts),
        cmocka_unit_test(calls_are_what_reading_leaves),
        cmocka_unit_test(measured_sizes_are_read_off),
        cmocka_unit_test(messages_never_get_cheaper),
        cmocka_unit_test(nodes_are_as_far_as_their_adapters),
        cmocka_unit_test(links_are_read_from_files),
        cmocka_unit_test(ranks_send_two_sums_a_layer_and_logits),
        cmocka_unit_test(a_prompt_is_its_steps),
        cmocka_unit_test(ways_of_a_model_keep_their_limits),
        cmocka_unit_test(what_does_not_fit_is_not_the_best),
        cmocka_unit_test(gradients_go_once_and_weights_come_once),
        cmocka_unit_test(ways_to_train_keep_their_limits),
        cmocka_unit_test(gpus_did_what_is_said),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
