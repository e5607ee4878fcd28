/* The text that says what to time: an op, its sizes, types and kernel. */
#include <stdlib.h>
#include <string.h>

#include "bench/op_private.h"
#include "ops/grouped_gemm.h"
#include "ops/ops.h"

static enum sol_status set_word(const struct spec *s, const char *text, const char *key,
                                const char *value, const char *const *words, int64_t *to)
{
    char known[64] = "";
    const bool transposed = to == &s->problem.transposed;
    const bool grouped = s->op == &op_grouped_matmul; /* whose rows are what they are */
    const bool symmetric = to == &s->problem.symmetric;
    bool has = (s->op == &op_grouped_gemm && !transposed && !symmetric) ||
               ((s->op == &op_matmul || grouped) && transposed) ||
               (s->op == &op_matmul && symmetric) ||
               (s->op == &op_pack_scaled && to == &s->problem.scales);
    if (!has) return status_set(SOL_E_ARGUMENT, "--op %s: %s has no %s", text, s->op->name, key);
    for (*to = 0; words[*to]; ++*to) {
        if (grouped && *to & 1) continue;
        if (strcmp(words[*to], value) == 0) return SOL_OK;
        size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s%s", at ? ", " : "", words[*to]);
    }
    return status_set(SOL_E_ARGUMENT, "--op %s: %s is one of %s", text, key, known);
}

static enum sol_status set_size(struct spec *s, const char *text, const char *key,
                                const char *value, bool *known)
{
    int64_t *to = strcmp(key, "sequences") == 0 ? &s->sequences
                  : strcmp(key, "depth") == 0   ? &s->depth
                                                : NULL;
    const char *const *words = NULL;
    for (int i = 0; !to && i < OP_SIZES; i++) {
        if (strcmp(key, i ? op_size_name(i) : "m") != 0) continue;
        to = op_size(&s->problem, i);
        words = op_size_words(i);
        s->given[i] = true;
    }
    *known = to != NULL;
    if (!to) return SOL_OK;
    if (words) return set_word(s, text, key, value, words, to);
    char *end;
    *to = strtoll(value, &end, 10);
    if (end == value || *end || *to < (to != &s->depth) || *to > 1 << 24)
        return status_set(SOL_E_ARGUMENT, "--op %s: %s is to be a positive number", text, key);
    return SOL_OK;
}

static enum sol_status set_dtype(struct spec *s, const char *text, const char *value)
{
    enum dtype *dtype = &s->problem.dtype;
    bool known = dtype_from_name(value, dtype) && dtype_info(*dtype)->encode;
    /* Not of weights: of a cache, or none. */
    bool plain = *dtype == DTYPE_F32 || *dtype == DTYPE_F16 || *dtype == DTYPE_BF16;
    if (s->op == &op_grouped_gemm) known = known && grouped_gemm_step(*dtype);
    if (s->op == &op_pack_scaled) known = known && *dtype == DTYPE_NVFP4;
    if (known && dtype_info(s->op->usual.dtype)->block == 1 && !s->op->n_weights) known = plain;
    return known ? SOL_OK
                 : status_set(SOL_E_ARGUMENT, "--op %s: %s does not come in %s", text, s->op->name,
                              value);
}

/* The widest set of matrices that a variant takes in bf16; 0: none does. */
static unsigned typed_matrices(const struct op *op)
{
    unsigned widest = 0;
    for (int v = 0; v < op->n_variants; v++)
        for (const unsigned *set = op->variants[v]->typed; set && *set; set++)
            if (__builtin_popcount(*set) > __builtin_popcount(widest)) widest = *set;
    return widest;
}

static enum sol_status set_matrices(struct spec *s, const char *text, const char *value)
{
    s->typed = strcmp(value, "bf16") == 0 ? typed_matrices(s->op) : 0;
    if (s->typed || strcmp(value, "f32") == 0) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "--op %s: matrices are f32%s", text,
                      typed_matrices(s->op) ? " or bf16" : "");
}

static enum sol_status set_key(struct spec *s, const char *text, const char *key, const char *value)
{
    char *end;
    bool known;
    SOL_TRY(set_size(s, text, key, value, &known));
    if (known) return SOL_OK;
    if (strcmp(key, "dtype") == 0) return set_dtype(s, text, value);
    if (strcmp(key, "matrices") == 0) return set_matrices(s, text, value);
    if (strcmp(key, "check") == 0) {
        snprintf(s->check, sizeof s->check, "%s", value);
        return SOL_OK;
    }
    if (strcmp(key, "variant") == 0) {
        snprintf(s->variant, sizeof s->variant, "%s", value);
        return SOL_OK;
    }
    if (strcmp(key, "skew") == 0) {
        s->skew = strtod(value, &end);
        if (end != value && !*end && s->skew >= 0 && s->skew <= 10) return SOL_OK;
        return status_set(SOL_E_ARGUMENT, "--op %s: skew is to be 0 to 10", text);
    }
    return status_set(
        SOL_E_ARGUMENT,
        "--op %s: no such key '%s'; known: m n k groups top_k head_dim window dtype "
        "sequences depth skew check variant matrices, of grouped_gemm results scales gated signs "
        "weights, of matmul and grouped_matmul transposed",
        text, key);
}

static enum sol_status check_spec(struct spec *s, const char *text)
{
    struct op_problem *p = &s->problem;
    int64_t block = dtype_info(p->dtype)->block;
    for (int i = 1; i < OP_SIZES; i++) {
        struct op_problem usual = s->op->usual;
        bool has = *op_size(&usual, i) || (s->op == &op_gemm && i < 5) ||
                   (usual.sequences && p->window == *op_size(p, i));
        if (s->given[i] && !has && !op_size_words(i))
            return status_set(SOL_E_ARGUMENT, "--op %s: %s has no %s", text, s->op->name,
                              op_size_name(i));
    }
    const bool by_transpose = p->transposed == 1 || p->transposed == 2;
    if (p->symmetric && (p->n != p->rows || (!by_transpose && p->k != p->rows)))
        return status_set(
            SOL_E_ARGUMENT,
            "--op %s: of a symmetric product n is m, and k too where transposed is no "
            "or both",
            text);
    bool grouped = s->op == &op_grouped_gemm;
    if (grouped) block = grouped_gemm_step(p->dtype);
    if (p->weights == WEIGHTS_TILES && p->dtype != DTYPE_NVFP4)
        return status_set(SOL_E_ARGUMENT, "--op %s: weights in tiles are nvfp4", text);
    if (p->k % block || (s->op != &op_gemm && !grouped && p->n % block))
        return status_set(SOL_E_ARGUMENT, "--op %s: k is to be a multiple of %d, n too for experts",
                          text, (int)block);
    int64_t most = p->groups > 0 ? p->groups : s->op == &op_route ? p->n : p->n ? 8 : 1;
    if (s->op == &op_gemm && p->groups <= 1) most = 1;
    if (p->top_k > most)
        return status_set(SOL_E_ARGUMENT, "--op %s: top_k is more than groups", text);
    bool heads = p->sequences && p->head_dim; /* k: those of keys */
    if (s->sequences > p->rows || p->head_dim % 2 || (heads && p->n % p->k))
        return status_set(SOL_E_ARGUMENT, "--op %s: sizes that do not go together", text);
    if (s->op != &op_gemm) return SOL_OK;
    /* m: of tokens, of which each has a row for each of its experts. */
    if (p->groups <= 1) p->groups = p->top_k = 0;
    if (p->groups && !p->top_k) p->top_k = 1;
    if (p->groups) p->rows *= p->top_k;
    return SOL_OK;
}

enum sol_status bench_op_parse(const char *text, struct spec *s)
{
    char copy[256], *rest = copy, *item;
    *s = (struct spec){.sequences = 1, .depth = 1024};
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
        return status_set(SOL_E_ARGUMENT, "--op: a text of more than %zu characters", sizeof copy);
    item = strsep(&rest, ":");
    s->op = op_find(item);
    if (!s->op)
        return status_set(SOL_E_ARGUMENT, "--op %s: no such op; sol kernels lists them", text);
    if (s->op->collective)
        return status_set(
            SOL_E_UNSUPPORTED,
            "--op %s: one rank does not do it; sol device --gpus times it by size, and sol "
            "train bench in a step",
            s->op->name);
    s->problem = s->op->usual;
    while ((item = strsep(&rest, ","))) {
        char *key = strsep(&item, "=");
        if (!item) return status_set(SOL_E_ARGUMENT, "--op %s: write key=value", text);
        SOL_TRY(set_key(s, text, key, item));
    }
    return check_spec(s, text);
}
