/* See train_tuning.h. */
#include "cli/train_tuning.h"

#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/log.h"
#include "comm/communicator.h"
#include "ops/tuning_file.h"

/* ---- reading ---- */

struct op_device train_device(const struct train_command *c)
{
    struct op_device device = c->chooser.device;
    const int threads = ranks_threads(&c->ranks, (int)c->o.threads);
    device.workers = threads ? threads : cpu_info()->cores;
    return device;
}

static enum sol_status read_own(struct train_command *c, const struct op_device *device,
                                char **text)
{
    char note[TUNING_NOTE_MAX];
    struct device_key key;
    SOL_TRY(tuning_of(device, &c->tuning, note));
    if (*note) LOG_WARN("%s", note);
    if (!c->ranks.communicator) return SOL_OK;
    SOL_TRY(device_key_of(device, &key));
    return tuning_text(&key, &c->tuning, text);
}

/* Rank 0's, as text: what differs from rank to rank is left out by its reader. */
static enum sol_status pass_on(struct train_command *c, const struct op_device *device, char *text)
{
    struct communicator *ranks = c->ranks.communicator;
    const bool leads = ranks_lead(&c->ranks);
    char note[TUNING_NOTE_MAX], *copy = text;
    struct device_key key;
    int64_t length = text ? (int64_t)strlen(text) : 0;
    SOL_TRY(communicator_broadcast(ranks, 0, &length, sizeof length));
    if (!leads) copy = malloc((size_t)length + 1);
    enum sol_status status =
        copy ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for the tuning record");
    status = communicator_agree(ranks, status);
    if (status == SOL_OK) status = communicator_broadcast(ranks, 0, copy, (size_t)length);
    if (status == SOL_OK && !leads) status = device_key_of(device, &key);
    if (status == SOL_OK && !leads)
        status = tuning_parse(copy, (size_t)length, &key, &c->tuning, note);
    if (!leads) free(copy);
    return communicator_agree(ranks, status);
}

enum sol_status train_tuning_read(struct train_command *c)
{
    const struct op_device device = train_device(c);
    char *text = NULL;
    c->chooser.tuning = NULL;
    if (c->o.no_tuning || c->o.exact || c->o.reference) return SOL_OK;
    enum sol_status status = ranks_lead(&c->ranks) ? read_own(c, &device, &text) : SOL_OK;
    status = communicator_agree(c->ranks.communicator, status);
    if (status == SOL_OK && c->ranks.communicator) status = pass_on(c, &device, text);
    free(text);
    if (status == SOL_OK && c->tuning.count) c->chooser.tuning = &c->tuning;
    return status;
}

/* ---- what came of it ---- */

/* "variant" or "variant:choice" */
static const char *join(const char *variant, const char *choice, char text[2 * TUNING_NAME_MAX])
{
    snprintf(text, 2 * TUNING_NAME_MAX, "%s%s%s", variant, *choice ? ":" : "", choice);
    return text;
}

void train_tuning_print(const struct train_tuned *t, FILE *to)
{
    char now[2 * TUNING_NAME_MAX], usual[2 * TUNING_NAME_MAX];
    for (int i = 0; i < t->count; i++) {
        const struct tuning_entry *e = t->ops[i].entry;
        fprintf(to, "tuned: %s=%s instead of %s, %lld call%s\n", e->op->name,
                join(e->variant, e->choice, now), join(e->usual, e->usual_choice, usual),
                (long long)t->ops[i].calls, t->ops[i].calls == 1 ? "" : "s");
    }
}

json_t *train_tuning_json(const struct train_tuned *t)
{
    char now[2 * TUNING_NAME_MAX], usual[2 * TUNING_NAME_MAX];
    json_t *list = json_array();
    for (int i = 0; i < t->count; i++) {
        const struct tuning_entry *e = t->ops[i].entry;
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:I}", "op", e->op->name, "kernel",
                                              join(e->variant, e->choice, now), "usual",
                                              join(e->usual, e->usual_choice, usual), "calls",
                                              (json_int_t)t->ops[i].calls));
    }
    return list;
}
