#include "infer/finite.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "model/check.h"
#include "model/source.h"

struct rows_check {
    const float *logits;
    int64_t vocab;
    atomic_bool bad;
};

/* By the bits of the exponent, which is vectorised. */
bool finite_row(const float *x, int64_t n)
{
    uint32_t bad = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return !bad;
}

static void check_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    struct rows_check *c = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        if (!finite_row(c->logits + i * c->vocab, c->vocab)) atomic_store(&c->bad, true);
}

enum sol_status finite_check(const struct model *model, struct pool *pool, const float *logits,
                             int64_t rows)
{
    struct rows_check c = {.logits = logits, .vocab = model->config.vocab};
    if (rows == 1)
        check_rows(&c, 0, 1, 0);
    else
        pool_for(pool, rows, 1, check_rows, &c);
    return atomic_load(&c.bad) ? finite_explain(model) : SOL_OK;
}

/* ---- why ---- */

struct first_fault {
    char tensor[128], what[128];
};

static void on_problem(void *arg, const char *tensor, bool faulty, const char *what)
{
    struct first_fault *first = arg;
    if (!faulty || first->tensor[0]) return;
    snprintf(first->tensor, sizeof first->tensor, "%s", tensor);
    snprintf(first->what, sizeof first->what, "%s", what);
}

enum sol_status finite_explain(const struct model *model)
{
    bool mapped;
    struct first_fault first = {.tensor = ""};
    struct check_summary summary;
    const struct model_files *files = model_files_of(model, &mapped);
    if (files) SOL_TRY(model_check(files, on_problem, &first, &summary));
    if (first.tensor[0])
        return status_set(SOL_E_FORMAT,
                          "%s: the file is damaged: tensor '%s': %s; download it again",
                          model->name, first.tensor, first.what);
    return status_set(
        SOL_E_MISMATCH,
        "%s: the logits are not finite although all weights are: numbers grew out of "
        "range on the way (--kv f32 and --exact hold more), or a kernel is wrong (sol "
        "verify tells)",
        model->name);
}
