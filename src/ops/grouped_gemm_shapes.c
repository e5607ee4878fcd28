#include "ops/grouped_gemm_shapes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A list ends with 0; one number stands for all groups. */
struct task_shape {
    int m[9], n[9], k[9];
};

static const struct task_shape tests[TASK_TESTS] = {
    {{96, 128}, {128, 256}, {256, 512}},
    {{256, 72}, {512, 384}, {256, 256}},
    {{128, 128}, {128, 256}, {512, 256}},
    {{80, 128, 256}, {384, 256, 128}, {256, 512, 256}},
    {{64, 72, 96}, {128, 384, 512}, {512, 512, 256}},
    {{64, 256, 128}, {768, 128, 256}, {512, 256, 512}},
    {{128, 128, 64}, {256, 512, 512}, {768, 256, 768}},
    {{128, 128, 128, 128}, {128, 128, 128, 128}, {512, 256, 512, 256}},
    {{40, 56, 384, 512}, {512, 384, 256, 128}, {256, 256, 256, 256}},
    {{512, 384, 256, 128}, {256, 256, 256, 256}, {512, 768, 512, 768}},
};

static const struct task_shape benchmarks[TASK_BENCHMARKS] = {
    {{80, 176, 128, 72, 64, 248, 96, 160}, {4096}, {7168}},
    {{40, 76, 168, 72, 164, 148, 196, 160}, {7168}, {2048}},
    {{192, 320}, {3072}, {4096}},
    {{128, 384}, {4096}, {1536}},
};

static void expand(const struct task_shape *s, struct grouped_sizes_list *out)
{
    int64_t count = 0;
    while (s->m[count]) count++;
    for (int64_t i = 0; i < count; i++) {
        out->m[i] = s->m[i];
        out->n[i] = s->n[s->n[1] ? i : 0];
        out->k[i] = s->k[s->k[1] ? i : 0];
    }
    out->n_groups = count;
}

void grouped_task_test(int i, struct grouped_sizes_list *out)
{
    *out = (struct grouped_sizes_list){.n_groups = 0};
    expand(&tests[i], out);
    snprintf(out->name, sizeof out->name, "test %d", i + 1);
}

void grouped_task_benchmark(int i, struct grouped_sizes_list *out)
{
    *out = (struct grouped_sizes_list){.n_groups = 0};
    expand(&benchmarks[i], out);
    snprintf(out->name, sizeof out->name, "g%lld n%lld k%lld", (long long)out->n_groups,
             (long long)out->n[0], (long long)out->k[0]);
}

/* ---- a user's ---- */

static enum sol_status bad(const char *text, const char *why)
{
    return status_set(SOL_E_ARGUMENT, "--shape %s: %s; write for example 'm=80,176;n=4096;k=7168'",
                      text, why);
}

/* "80,176"; how many in *count. */
static enum sol_status parse_list(const char *text, char *list, int64_t *to, int64_t *count)
{
    char *item;
    *count = 0;
    while ((item = strsep(&list, ","))) {
        char *end;
        if (*count == GROUPED_SHAPE_GROUPS) return bad(text, "more than 64 groups");
        to[*count] = strtoll(item, &end, 10);
        if (end == item || *end || to[*count] < 0 || to[*count] > GROUPED_GEMM_SIZE_MAX)
            return bad(text, "sizes are numbers from 0 to 16777216");
        (*count)++;
    }
    return SOL_OK;
}

static enum sol_status spread(const char *text, int64_t *sizes, int64_t count, int64_t groups)
{
    if (count != groups && count != 1) return bad(text, "lists of different lengths");
    for (int64_t i = count; i < groups; i++) sizes[i] = sizes[0];
    return SOL_OK;
}

enum sol_status grouped_shape_parse(const char *text, struct grouped_sizes_list *out)
{
    char copy[1024], *rest = copy, *part;
    int64_t counts[3] = {0, 0, 0};
    int64_t *const lists[] = {out->m, out->n, out->k};
    *out = (struct grouped_sizes_list){.n_groups = 0};
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
        return bad(text, "a text of more than 1024 characters");
    while ((part = strsep(&rest, ";"))) {
        static const char names[] = "mnk";
        const char *at = *part ? strchr(names, *part) : NULL;
        if (!at || part[1] != '=') return bad(text, "no lists of m, n and k");
        SOL_TRY(parse_list(text, part + 2, lists[at - names], &counts[at - names]));
    }
    for (int i = 0; i < 3; i++) {
        if (counts[i] == 0) return bad(text, "a size is missing");
        if (counts[i] > out->n_groups) out->n_groups = counts[i];
    }
    for (int i = 0; i < 3; i++) SOL_TRY(spread(text, lists[i], counts[i], out->n_groups));
    for (int64_t i = 0; i < out->n_groups; i++)
        if (out->k[i] == 0 || out->k[i] % 16) return bad(text, "k is no positive multiple of 16");
    snprintf(out->name, sizeof out->name, "%s", text);
    return SOL_OK;
}
