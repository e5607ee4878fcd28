#include "cli/next_steps.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/shell.h"
#include "compare/live.h"
#include "opt/config.h"

/* ---- comparisons ---- */

static bool is_option(const char *word, const char *name)
{
    size_t length = strlen(name);
    return strncmp(word, name, length) == 0 && (word[length] == '\0' || word[length] == '=');
}

/* The same command with other caps. */
static void repeat(struct next *next, const struct comparison_call *call, size_t pairs,
                   double seconds)
{
    char text[32];
    next_command(next, "compare");
    snprintf(text, sizeof text, "%zu", pairs);
    next_option(next, "--max-pairs", text);
    snprintf(text, sizeof text, "%.0f", seconds);
    if (seconds > call->max_seconds) next_option(next, "--max-seconds", text);
    for (int i = 1; i < call->argc; i++) {
        const char *word = call->argv[i];
        bool replaced = is_option(word, "--max-pairs") ||
                        (is_option(word, "--max-seconds") && seconds > call->max_seconds);
        if (replaced && !strchr(word, '=')) i++;
        if (!replaced) next_word(next, word);
    }
}

static void next_of_open_live(const struct comparison_call *call, struct compare_result *r)
{
    size_t pairs = 0;
    for (size_t i = 0; i < r->n_metrics; i++)
        if (r->metrics[i].deciding && r->metrics[i].needed > pairs) pairs = r->metrics[i].needed;
    pairs = pairs ? pairs + pairs / 10 + 2 : 2 * r->pairs;
    if (pairs < COMPARE_PAIRS_MIN) pairs = COMPARE_PAIRS_MIN;
    if (pairs > COMPARE_PAIRS_MAX) {
        next_first(&r->next, "make the machine quieter: about %zu pairs would be needed", pairs);
        pairs = COMPARE_PAIRS_MAX;
    }
    double each = r->pairs ? r->seconds / (double)r->pairs : 0;
    repeat(&r->next, call, pairs, ceil(1.2 * each * (double)pairs));
}

/* What says where the results of a benchmark go, with its value behind it. */
static bool says_where(const char *word)
{
    static const char *const names[] = {"--label", "--output", "--store", "--format", "-o"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is_option(word, names[i])) return true;
    return false;
}

/* The words of the command, without where its results went. */
static void write_command(FILE *to, const json_t *argv)
{
    size_t i;
    json_t *word;
    bool value = false;
    fputs("sol", to);
    json_array_foreach(argv, i, word)
    {
        const char *plain = json_string_value(word) ? json_string_value(word) : "";
        bool skipped = value || says_where(plain);
        value = !value && says_where(plain) && !strchr(plain, '=');
        if (skipped) continue;
        fputc(' ', to);
        shell_write(to, plain);
    }
}

/* "sol bench -p 512" of a stored benchmark that was made in this folder; free() it. NULL where it
 * cannot be made again. */
static char *command_of(struct store *store, const char *run)
{
    struct store_record *record = NULL;
    char *text = NULL, *here = getcwd(NULL, 0);
    size_t size = 0;
    json_t *argv = NULL;
    if (store_record_read(store, run, &record) != SOL_OK) goto done;
    bool same_place = here && record->run.cwd && strcmp(here, record->run.cwd) == 0;
    if (strcmp(record->run.kind, "bench") == 0 && record->run.argv_json && same_place)
        argv = json_loads(record->run.argv_json, 0, NULL);
    const char *verb = json_string_value(json_array_get(argv, 0));
    FILE *to = verb && strcmp(verb, "bench") == 0 ? open_memstream(&text, &size) : NULL;
    if (!to) goto done;
    write_command(to, argv);
    if (fclose(to) != 0) {
        free(text);
        text = NULL;
    }
done:
    json_decref(argv);
    store_record_destroy(record);
    free(here);
    return text;
}

/* A benchmark as one of many starts: it prints its results, and keeps none. */
static void next_start(struct next *next, const char *command)
{
    char *start;
    if (asprintf(&start, "%s --no-store -q -o json", command) < 0) return;
    next_word(next, start);
    free(start);
}

/* Whether what starts differ by here is why nothing was decided. */
static bool noise_is_unknown(const struct compare_result *r)
{
    for (size_t i = 0; i < r->n_metrics; i++)
        if (r->metrics[i].deciding && !r->metrics[i].shift.has_interval && !r->metrics[i].noise)
            return true;
    return false;
}

/* What was stored does not decide: in turn it may. Two runs of one command differ by what changed
 * between them, which a command cannot bring back; then at least more of it is known. */
static void next_of_open_stored(const struct comparison_call *call, struct store *store,
                                struct compare_result *r)
{
    char *old = store && *call->runs[0] ? command_of(store, call->runs[0]) : NULL;
    char *new = store && * call->runs[1] ? command_of(store, call->runs[1]) : NULL;
    if (old && new &&strcmp(old, new) != 0) {
        next_command(&r->next, "compare");
        next_word(&r->next, "--live");
        next_option(&r->next, "--store", call->store_option);
        next_start(&r->next, old);
        next_start(&r->next, new);
    } else if (noise_is_unknown(r)) {
        next_command(&r->next, "compare");
        next_word(&r->next, "--calibrate");
        next_option(&r->next, "--store", call->store_option);
    } else if (new) {
        next_first(&r->next, "measure both sides again, with nothing else running; one side is:");
        next_command(&r->next, new + 4);
        if (!strstr(new, " --starts")) next_option(&r->next, "--starts", "6");
    } else {
        next_first(&r->next, "measure both again, in turn where that can be done (--live)");
    }
    free(old);
    free(new);
}

static bool has_times(struct store *store, const char *run)
{
    struct store_record *record;
    if (store_record_read(store, run, &record) != SOL_OK) return false;
    bool has = false;
    for (size_t i = 0; i < record->n_kernels; i++) has = has || record->kernels[i].total_ns > 0;
    store_record_destroy(record);
    return has;
}

void next_of_comparison(const struct comparison_call *call, struct store *store,
                        struct compare_result *r)
{
    const char *new = call->runs[1];
    next_clear(&r->next);
    if (r->verdict == VERDICT_INCONCLUSIVE && r->live) {
        next_of_open_live(call, r);
    } else if (r->verdict == VERDICT_INCONCLUSIVE) {
        next_of_open_stored(call, store, r);
    } else if (r->verdict == VERDICT_INVALID || r->verdict == VERDICT_FAILED ||
               r->verdict == VERDICT_INCORRECT) {
        next_first(&r->next, "remove the cause, and compare again: %.400s",
                   r->reason ? r->reason : "nothing was measured");
    } else if (store && *new) {
        next_command(&r->next, has_times(store, new) ? "advise" : "runs show");
        next_word(&r->next, new);
        next_option(&r->next, "--store", call->store_option);
    }
}

/* ---- advice ---- */

/* Looks at names alone: asking git could run what the tree's configuration names. */
bool next_in_prepared_tree(void)
{
    char *folder = getcwd(NULL, 0), path[4200];
    bool found = false;
    while (folder && *folder && !found) {
        snprintf(path, sizeof path, "%s/.git", folder);
        bool top = access(path, F_OK) == 0;
        found = top && opt_config_exists(folder);
        if (top) break;
        *strrchr(folder, '/') = '\0';
    }
    free(folder);
    return found;
}

void next_of_advice(struct next *next, const char *words, const char *run, const char *store_option)
{
    next_clear(next);
    next_first(next, "%s", words);
    if (next_in_prepared_tree()) {
        next_command(next, "opt status");
    } else if (run) {
        next_command(next, "runs show");
        next_word(next, run);
    } else {
        return;
    }
    next_option(next, "--store", store_option);
}
