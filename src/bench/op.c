/* See op.h.
 *
 * A problem is made on the host. For a GPU the blocks of its arena are copied there and every
 * address in the arguments that lies in a block is changed into that of its copy: sizes are never
 * so large that they look like one. Weights are packed there then, as those of a model are. */
#include "bench/op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/rng.h"
#include "gpu/device.h"
#include "gpu/watch.h"
#include "ops/cases.h"
#include "ops/cuda/pack_cuda.h"
#include "ops/grouped_gemm.h"
#include "ops/ops.h"
#include "ops/problem.h"
#include "stats/statistics.h"

enum {
    SETS_MAX = 16,
    BLOCKS_MAX = 64,
    REPETITIONS = BENCH_OP_REPETITIONS,
    WARM = 3,
    TEXT_MAX = 64
};

struct spec {
    const struct op *op;
    struct op_problem problem;
    bool given[OP_SIZES];
    int64_t sequences, depth;
    double skew;
    unsigned typed; /* matrices in bf16 */
    char check[TEXT_MAX];
    char variant[TEXT_MAX];           /* and choice; "": whatever is chosen */
    const struct bench_op_call *call; /* what makes arguments; NULL: the op, of the problem */
};

struct block {
    char *host, *device;
    size_t bytes;
};

/* A call and what it works on. */
struct set {
    struct arena *arena;
    struct block blocks[BLOCKS_MAX];
    int n_blocks;
    struct case_maker made;
    void *host_args, *args; /* the same on the CPU */
    struct batch batch;     /* what args point to on a GPU */
    void *table;            /* the host's, with addresses of a GPU; NULL: there is none */
    void *packed[OP_WEIGHTS_MAX];
};

struct run {
    struct spec spec;
    const struct chooser *chooser;
    struct chooser own; /* with what the spec asks for */
    struct gpu *gpu;    /* NULL: the CPU */
    struct op_context context;
    struct rng rng;
    struct set sets[SETS_MAX];
    int n_sets;
    size_t room; /* for what is still to be made, in bytes */
};

/* ---- the spec ---- */

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

static enum sol_status parse(const char *text, struct spec *s)
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

/* ---- making ---- */

struct source {
    struct run *run;
    struct set *set;
    bool failed;
};

static void *take_block(void *arg, size_t bytes)
{
    struct source *s = arg;
    struct set *set = s->set;
    void *memory = NULL;
    s->failed = s->failed || bytes > s->run->room || set->n_blocks == BLOCKS_MAX ||
                pages_alloc(bytes, &memory) != SOL_OK;
    if (s->failed) return NULL; /* the arena says it */
    s->run->room -= bytes;
    set->blocks[set->n_blocks++] = (struct block){.host = memory, .bytes = bytes};
    return memory;
}

/* With the set. */
static void keep_block(void *arg, void *memory)
{
    (void)arg, (void)memory;
}

static void free_set(const struct run *r, struct set *set)
{
    for (int i = 0; r->gpu && i < set->n_blocks; i++) gpu_free(r->gpu, set->blocks[i].device);
    for (int i = 0; r->gpu && i < OP_WEIGHTS_MAX; i++) gpu_free(r->gpu, set->packed[i]);
    if (set->args != set->host_args) free(set->args);
    free(set->table);
    arena_destroy(set->arena);
    for (int i = 0; i < set->n_blocks; i++) pages_free(set->blocks[i].host, set->blocks[i].bytes);
}

/* Every word that is an address of the host's blocks becomes that of the copy. Words are told by
 * their value: ops/args.h keeps padding, whose old contents may be half an address, out of them. */
static void relocate(const struct set *set, void *words, size_t bytes)
{
    for (size_t at = 0; at + sizeof(uintptr_t) <= bytes; at += sizeof(uintptr_t)) {
        uintptr_t word;
        memcpy(&word, (char *)words + at, sizeof word);
        const void *there = word && word == (uintptr_t)set->made.batch   ? &set->batch
                            : word && word == (uintptr_t)set->made.table ? set->table
                                                                         : NULL;
        if (there) { /* the host reads it */
            word = (uintptr_t)there;
            memcpy((char *)words + at, &word, sizeof word);
            continue;
        }
        for (int i = 0; i < set->n_blocks; i++) {
            const struct block *b = &set->blocks[i];
            if (word - (uintptr_t)b->host >= b->bytes) continue;
            word = word - (uintptr_t)b->host + (uintptr_t)b->device;
            memcpy((char *)words + at, &word, sizeof word);
            break;
        }
    }
}

static enum sol_status pack(const struct run *r, struct set *set)
{
    struct plan *plan;
    const struct op *op = r->spec.op;
    SOL_TRY(plan_create(r->chooser, &plan));
    enum sol_status status = SOL_OK;
    for (int i = 0; status == SOL_OK && i < op->n_weights; i++) {
        struct tensor *t = (struct tensor *)((char *)set->args + op->weights[i]);
        if (!tensor_is_repacked(t)) continue;
        status = gpu_alloc(r->gpu, "bench", tensor_packed_bytes(t), &set->packed[i]);
        if (status != SOL_OK) break;
        plan_call(plan, &op_pack_weights,
                  &(struct pack_weights_args){.w = *t, .packed = set->packed[i]});
        *t = tensor_packed(t, set->packed[i]);
    }
    if (status == SOL_OK) status = plan_finish(plan);
    if (status == SOL_OK) status = plan_run(plan, &r->context, false, NULL);
    enum sol_status waited = gpu_wait(r->context.stream);
    plan_destroy(plan);
    return status == SOL_OK ? waited : status;
}

static enum sol_status move_to_gpu(struct run *r, struct set *set)
{
    size_t size = r->spec.op->args_size;
    for (int i = 0; i < set->n_blocks; i++) {
        struct block *b = &set->blocks[i];
        void *memory;
        SOL_TRY(gpu_alloc(r->gpu, "bench", b->bytes, &memory));
        b->device = memory;
        SOL_TRY(gpu_copy_in(r->context.stream, b->device, b->host, b->bytes));
    }
    SOL_TRY(gpu_wait(r->context.stream));
    set->args = malloc(size);
    if (!set->args) return status_set(SOL_E_MEMORY, "no memory for the arguments");
    memcpy(set->args, set->host_args, size);
    if (set->made.batch) {
        set->batch = *set->made.batch;
        relocate(set, &set->batch, sizeof set->batch);
        set->batch.host = set->made.batch;
    }
    if (set->made.table) {
        set->table = malloc(set->made.table_bytes + 1);
        if (!set->table) return status_set(SOL_E_MEMORY, "no memory for the arguments");
        memcpy(set->table, set->made.table, set->made.table_bytes);
        relocate(set, set->table, set->made.table_bytes);
    }
    relocate(set, set->args, size);
    return pack(r, set);
}

/* In place: what was float32 is longer. */
static void make_typed(const struct op *op, void *args, unsigned set)
{
    for (int i = 0; op->matrices[i].access; i++) {
        struct matrix *m = op_matrix_of(&op->matrices[i], args);
        if (!(set >> i & 1) || !m->data || m->dtype != DTYPE_F32) continue;
        const float *from = m->data;
        uint16_t *to = m->data;
        for (int64_t j = 0; j < m->rows * m->cols; j++) to[j] = bf16_from_f32(from[j]);
        m->dtype = DTYPE_BF16;
    }
}

static enum sol_status make_set(struct run *r, struct set *set)
{
    const struct spec *s = &r->spec;
    struct source source = {.run = r, .set = set};
    const struct arena_source blocks = {take_block, keep_block, &source};
    SOL_TRY(arena_create_from(&blocks, 1 << 20, &set->arena));
    set->made = (struct case_maker){.arena = set->arena,
                                    .rng = &r->rng,
                                    .kind = CASE_TIMED,
                                    .sequences = s->sequences,
                                    .depth = s->depth,
                                    .skew = s->skew};
    void *args = arena_alloc(set->arena, s->op->args_size, 64);
    if (!args) return SOL_E_MEMORY;
    if (s->call)
        s->call->make(s->call->arg, &set->made, args);
    else
        s->op->make_problem(&set->made, &s->problem, args);
    set->host_args = set->args = args;
    if (source.failed) return SOL_E_MEMORY;
    make_typed(s->op, args, s->typed);
    return r->gpu ? move_to_gpu(r, set) : SOL_OK;
}

/* As many as touch together four times the cache, at least two. */
static enum sol_status make_sets(struct run *r)
{
    double cache = r->gpu ? (double)gpu_info(r->gpu)->l2_bytes : (double)cpu_info()->l3, made = 0;
    for (; r->n_sets < SETS_MAX && (r->n_sets < 2 || made < 4 * cache); r->n_sets++) {
        struct set *set = &r->sets[r->n_sets];
        enum sol_status status = make_set(r, set);
        if (status != SOL_OK) {
            free_set(r, set);
            return status;
        }
        made += r->spec.op->cost(set->host_args).bytes;
    }
    return SOL_OK;
}

/* ---- running ---- */

static enum sol_status make_plan(const struct run *r, const struct chooser *chooser, int sets,
                                 struct plan **out)
{
    SOL_TRY(plan_create(chooser, out));
    for (int i = 0; i < sets; i++) plan_call(*out, r->spec.op, r->sets[i].args);
    return plan_finish(*out);
}

static enum sol_status copy(const struct run *r, void *to, const void *from, size_t bytes, bool in)
{
    if (!r->gpu)
        memcpy(to, from, bytes);
    else
        return in ? gpu_copy_in(r->context.stream, to, from, bytes)
                  : gpu_copy_out(r->context.stream, to, from, bytes);
    return SOL_OK;
}

/* What the call of the first set makes of its outputs, which are there and in `bytes` as they were
 * made. */
static enum sol_status run_first(const struct run *r, const struct chooser *chooser,
                                 const struct op_output *outputs, int count,
                                 void *bytes[OP_OUTPUTS_MAX])
{
    struct plan *plan = NULL;
    const struct set *set = &r->sets[0];
    enum sol_status status = make_plan(r, chooser, 1, &plan);
    for (int in = 1; status == SOL_OK && in >= 0; in--) {
        for (int i = 0; status == SOL_OK && i < count; i++) {
            void *there = *(void **)((char *)set->args + outputs[i].offset);
            status = copy(r, in ? there : bytes[i], in ? bytes[i] : there, outputs[i].bytes, in);
        }
        if (in && status == SOL_OK) status = plan_run(plan, &r->context, false, NULL);
    }
    enum sol_status waited = r->gpu ? gpu_wait(r->context.stream) : SOL_OK;
    plan_destroy(plan);
    return status == SOL_OK ? waited : status;
}

/* Largest relative error of a row of `a`, with `b` taken as true. */
static double worst_row(const void *a, const void *b, const struct op_output *what)
{
    double worst = 0;
    int64_t n = what->row, rows = (int64_t)what->bytes / op_output_size(what) / n;
    for (int64_t r = 0; r < rows; r++) {
        double error = 0, norm = 0;
        for (int64_t i = r * n; i < (r + 1) * n; i++) {
            double right = op_output_number(what, b, i);
            double d = op_output_number(what, a, i) - right;
            error += d * d;
            norm += right * right;
        }
        double relative = norm > 0 ? sqrt(error / norm) : error > 0 ? INFINITY : 0;
        if (!(relative <= worst)) worst = relative; /* NaN too */
    }
    return worst;
}

/* A variant of the op, or of the products that it is made of. */
static enum sol_status chooser_of_check(const struct run *r, struct chooser *out)
{
    const struct op *op = r->spec.op;
    char force[2 * TEXT_MAX];
    bool own = !op->compose;
    for (int v = 0; v < op_variant_count(op); v++)
        own |= strcmp(op_variant_name(op, v), r->spec.check) == 0;
    *out = *r->chooser;
    snprintf(force, sizeof force, "%s=%s", own ? op->name : "gemm", r->spec.check);
    SOL_TRY(chooser_force(out, force));
    if (own) return SOL_OK;
    snprintf(force, sizeof force, "%s=%s", op->name, op_variant_name(op, op->n_variants));
    return chooser_force(out, force);
}

static enum sol_status check(const struct run *r, double *error)
{
    const struct op *op = r->spec.op;
    struct chooser other;
    struct op_output outputs[OP_OUTPUTS_MAX];
    void *mine[OP_OUTPUTS_MAX] = {NULL}, *theirs[OP_OUTPUTS_MAX] = {NULL};
    SOL_TRY(chooser_of_check(r, &other));
    int count = op_outputs(op, r->sets[0].host_args, false, outputs);
    enum sol_status status = SOL_OK;
    for (int i = 0; status == SOL_OK && i < count; i++) {
        const void *original = *(void **)((char *)r->sets[0].host_args + outputs[i].offset);
        mine[i] = malloc(outputs[i].bytes);
        theirs[i] = malloc(outputs[i].bytes);
        if (!mine[i] || !theirs[i]) {
            status = status_set(SOL_E_MEMORY, "no memory for a result");
            break;
        }
        memcpy(mine[i], original, outputs[i].bytes);
        memcpy(theirs[i], original, outputs[i].bytes);
    }
    if (status == SOL_OK) status = run_first(r, r->chooser, outputs, count, mine);
    if (status == SOL_OK) status = run_first(r, &other, outputs, count, theirs);
    for (int i = 0; i < count; i++) {
        /* Beside float32, bytes are rounded numbers, or follow from them. */
        bool bytes = !outputs[i].is_number && !outputs[0].is_number;
        double one = 0;
        if (status == SOL_OK && outputs[i].is_number)
            one = worst_row(mine[i], theirs[i], &outputs[i]);
        if (status == SOL_OK && bytes && memcmp(mine[i], theirs[i], outputs[i].bytes) != 0)
            one = (double)INFINITY;
        if (!(one <= *error)) *error = one; /* NaN too */
        free(mine[i]);
        free(theirs[i]);
    }
    return status;
}

static enum sol_status time_on_gpu(const struct run *r, struct plan *plan, double *took,
                                   struct gpu_event *const events[2])
{
    SOL_TRY(gpu_event_record(events[0], r->context.stream));
    SOL_TRY(plan_run(plan, &r->context, false, NULL));
    SOL_TRY(gpu_event_record(events[1], r->context.stream));
    SOL_TRY(gpu_event_elapsed(events[0], events[1], took));
    return gpu_wait(r->context.stream);
}

static enum sol_status time_plan(const struct run *r, struct plan *plan, double ns[REPETITIONS])
{
    struct gpu_event *events[2] = {NULL, NULL};
    enum sol_status status = SOL_OK;
    for (int i = 0; r->gpu && status == SOL_OK && i < 2; i++)
        status = gpu_event_create(r->gpu, &events[i]);
    for (int i = -WARM; status == SOL_OK && i < REPETITIONS; i++) { /* the first load and capture */
        double took = 0;
        uint64_t start = clock_ns();
        if (r->gpu)
            status = time_on_gpu(r, plan, &took, events);
        else
            status = plan_run(plan, &r->context, false, NULL);
        if (!r->gpu) took = (double)(clock_ns() - start);
        if (i >= 0) ns[i] = took / r->n_sets;
    }
    gpu_event_destroy(events[0]);
    gpu_event_destroy(events[1]);
    return status;
}

/* ---- reporting ---- */

enum sol_status bench_op_print(const json_t *rows, enum table_format format, FILE *to)
{
    struct table *table;
    json_t *row;
    size_t i;
    SOL_TRY(table_create("op|~shape|-rows a group|=variant|>us|>-spread %|>TFLOP/s|>TB/s|>-scratch "
                         "MiB|>error",
                         &table));
    json_array_foreach((json_t *)(uintptr_t)rows, i, row)
    {
        const char *groups = json_string_value(json_object_get(row, "group_rows"));
        const json_t *error = json_object_get(row, "error");
        table_cell(table, "%s", json_string_value(json_object_get(row, "op")));
        table_cell(table, "%s", json_string_value(json_object_get(row, "shape")));
        table_cell(table, "%s", groups ? groups : "-");
        table_cell(table, "%s", json_string_value(json_object_get(row, "variant")));
        table_cell(table, "%.1f", json_number_value(json_object_get(row, "us")));
        table_cell(table, "%.1f", json_number_value(json_object_get(row, "spread_percent")));
        table_number(table, json_number_value(json_object_get(row, "tflop_s")), 3);
        table_number(table, json_number_value(json_object_get(row, "tb_s")), 3);
        table_number(table, json_number_value(json_object_get(row, "scratch_bytes")) / (1 << 20),
                     3);
        if (json_is_number(error))
            table_cell(table, "%.1e", json_number_value(error));
        else
            table_cell(table, "%s", json_is_string(error) ? json_string_value(error) : "-");
    }
    table_print(table, format, to);
    table_destroy(table);
    return SOL_OK;
}

/* "m=300 n=64 k=128 bf16" */
static void describe_shape(const struct spec *s, char *text, size_t size)
{
    struct op_problem p = s->problem;
    bool grouped = s->op == &op_gemm && p.top_k;
    int at = snprintf(text, size, "m=%lld", (long long)(grouped ? p.rows / p.top_k : p.rows));
    for (int i = 1; i < OP_SIZES; i++) {
        const int64_t *value = op_size(&p, i);
        const char *const *words = op_size_words(i);
        if (*value && words)
            at += snprintf(text + at, size - (size_t)at, " %s=%s", op_size_name(i), words[*value]);
        else if (*value && value != &p.groups && value != &p.top_k && value != &p.sequences)
            at += snprintf(text + at, size - (size_t)at, " %s=%lld", op_size_name(i),
                           (long long)*value);
    }
    if (p.sequences)
        at += snprintf(text + at, size - (size_t)at, " sequences=%lld depth=%lld",
                       (long long)s->sequences, (long long)s->depth);
    snprintf(text + at, size - (size_t)at, " %s", dtype_info(p.dtype)->name);
}

/* "40-70", of the set that was made last. */
static void describe_groups(const struct run *r, char *text, size_t size)
{
    const struct case_maker *made = &r->sets[r->n_sets - 1].made;
    const int32_t *offsets = made->routing.group_offsets;
    int32_t least = INT32_MAX, most = 0;
    *text = '\0';
    if (!r->spec.problem.groups || !offsets) return;
    for (int64_t g = 0; g < made->n_experts; g++) {
        int32_t rows = offsets[g + 1] - offsets[g];
        if (rows < least) least = rows;
        if (rows > most) most = rows;
    }
    snprintf(text, size, "%d-%d", least, most);
}

static struct op_cost mean_cost(const struct run *r)
{
    struct op_cost cost = {0, 0};
    for (int i = 0; i < r->n_sets; i++) {
        struct op_cost one = r->spec.op->cost(r->sets[i].host_args);
        cost.flops += one.flops / r->n_sets;
        cost.bytes += one.bytes / r->n_sets;
    }
    return cost;
}

static const char *variant_of(const struct run *r)
{
    return op_variant_name(r->spec.op, chooser_choose(r->chooser, r->spec.op, r->sets[0].args));
}

/* With the sizes of a composition, which are what one compares: "chunked:1024". */
static void describe_variant(const struct run *r, char *text, size_t size)
{
    const struct op *op = r->spec.op;
    const void *args = r->sets[0].args;
    const int v = chooser_choose(r->chooser, op, args);
    const char *choice = op_choice_name(op, v, chooser_choice(r->chooser, op, v, args));
    const bool named = op_is_composed(op, v) && *choice;
    snprintf(text, size, "%s%s%s", variant_of(r), named ? ":" : "", named ? choice : "");
}

static enum sol_status report(const struct run *r, const struct plan *plan, const double *ns,
                              double error, json_t *rows)
{
    const struct spec *s = &r->spec;
    struct statistics t;
    char shape[256], groups[64], variant[2 * TEXT_MAX];
    const struct op_cost cost = mean_cost(r);
    SOL_TRY(statistics_of(ns, REPETITIONS, &t));
    describe_shape(s, shape, sizeof shape);
    describe_groups(r, groups, sizeof groups);
    describe_variant(r, variant, sizeof variant);
    /* What is not finite is no number of JSON. */
    json_t *wrong = !*s->check        ? json_null()
                    : isfinite(error) ? json_real(error)
                                      : json_string("not finite");
    json_t *row =
        json_pack("{s:s, s:s, s:s?, s:s, s:f, s:f, s:f, s:f, s:I, s:o}", "op", s->op->name, "shape",
                  shape, "group_rows", *groups ? groups : NULL, "variant", variant, "us",
                  t.median / 1e3, "spread_percent", 100 * (t.max - t.min) / t.median, "tflop_s",
                  cost.flops / t.median / 1e3, "tb_s", cost.bytes / t.median / 1e3, "scratch_bytes",
                  (json_int_t)plan_bytes(plan), "error", wrong);
    if (!row || json_array_append_new(rows, row) != 0)
        return status_set(SOL_E_MEMORY, "no memory for a result");
    return SOL_OK;
}

/* The spec's own variant counts more than what is forced for all. */
static enum sol_status force_own(struct run *r)
{
    char force[2 * TEXT_MAX];
    if (!*r->spec.variant) return SOL_OK;
    r->own = *r->chooser;
    r->chooser = &r->own;
    snprintf(force, sizeof force, "%s=%s", r->spec.op->name, r->spec.variant);
    return chooser_force(&r->own, force);
}

/* Which has to serve the problem: another one's time would stand under the wrong name. */
static enum sol_status check_own(const struct run *r)
{
    const struct op *op = r->spec.op;
    const char *wanted = *r->spec.variant ? r->own.forces[r->own.n_forces - 1].variant : "";
    char why[OP_REASON_MAX];
    for (int v = 0; v < op_variant_count(op); v++)
        if (strcmp(op_variant_name(op, v), wanted) == 0 &&
            !chooser_can_run(r->chooser, op, v, r->sets[0].args, why))
            return status_set(SOL_E_UNSUPPORTED, "--op %s: %s does not serve it: %s", op->name,
                              wanted, why);
    return SOL_OK;
}

static enum sol_status time_spec(struct run *r, json_t *rows)
{
    struct plan *plan = NULL;
    double ns[REPETITIONS], error = 0;
    SOL_TRY(make_sets(r));
    SOL_TRY(check_own(r));
    if (*r->spec.check) SOL_TRY(check(r, &error));
    enum sol_status status = make_plan(r, r->chooser, r->n_sets, &plan);
    if (status == SOL_OK) status = time_plan(r, plan, ns);
    if (status == SOL_OK) status = report(r, plan, ns, error, rows);
    plan_destroy(plan);
    return status;
}

/* The host has everything once, a GPU twice where weights are packed. */
static enum sol_status find_room(struct run *r)
{
    size_t free_there;
    r->room = memory_available();
    if (r->room == 0) r->room = SIZE_MAX;
    if (!r->gpu) return SOL_OK;
    SOL_TRY(gpu_memory_free(r->gpu, &free_there));
    if (free_there / 2 < r->room) r->room = free_there / 2;
    return SOL_OK;
}

static enum sol_status open_run(const struct chooser *chooser, struct run **out)
{
    struct run *r = *out = calloc(1, sizeof *r);
    if (!r) return status_set(SOL_E_MEMORY, "no memory for a run");
    r->chooser = chooser;
    r->gpu = chooser->device.gpu;
    rng_seed(&r->rng, 1);
    SOL_TRY(find_room(r));
    SOL_TRY(pool_create(chooser->device.workers, &r->context.pool));
    return r->gpu ? gpu_stream_create(r->gpu, &r->context.stream) : SOL_OK;
}

static void close_run(struct run *r)
{
    if (!r) return;
    for (int i = 0; i < r->n_sets; i++) free_set(r, &r->sets[i]);
    gpu_stream_destroy(r->context.stream);
    pool_destroy(r->context.pool);
    free(r);
}

static enum sol_status bench_one(const struct chooser *chooser, const char *text, json_t *rows)
{
    struct run *r;
    enum sol_status status = open_run(chooser, &r);
    if (status == SOL_OK) status = parse(text, &r->spec);
    if (status == SOL_OK) status = force_own(r);
    if (status == SOL_OK) status = time_spec(r, rows);
    close_run(r);
    return status;
}

static enum sol_status time_call(struct run *r, struct bench_op_times *out)
{
    struct plan *plan = NULL;
    SOL_TRY(make_sets(r));
    enum sol_status status = make_plan(r, r->chooser, r->n_sets, &plan);
    if (status == SOL_OK) status = time_plan(r, plan, out->ns);
    if (status == SOL_OK) {
        out->variant = variant_of(r);
        out->cost = mean_cost(r);
    }
    plan_destroy(plan);
    return status;
}

enum sol_status bench_op_time(const struct chooser *chooser, const struct bench_op_call *call,
                              struct bench_op_times *out)
{
    struct run *r;
    enum sol_status status = open_run(chooser, &r);
    if (status == SOL_OK) {
        r->spec.op = call->op;
        r->spec.call = call;
        status = time_call(r, out);
    }
    close_run(r);
    return status;
}

/* ---- which kernels ---- */

struct watched {
    struct gpu_watched seen[BENCH_OP_KERNELS];
    double ns[BENCH_OP_KERNELS][REPETITIONS];
};

static enum sol_status watch_call(const struct run *r, struct plan *plan, int repetition,
                                  struct watched *w, int *count)
{
    struct gpu_watch *watch = NULL;
    uint64_t start = clock_ns();
    *count = 1;
    if (r->gpu) SOL_TRY(gpu_watch_begin(r->context.stream, BENCH_OP_KERNELS, &watch));
    enum sol_status status = plan_run(plan, &r->context, true, NULL); /* timed: without a graph */
    w->seen[0].ns = (double)(clock_ns() - start);
    enum sol_status waited = r->gpu ? gpu_watch_end(watch, w->seen, count) : SOL_OK;
    for (int i = 0; i < *count && i < BENCH_OP_KERNELS && repetition >= 0; i++)
        w->ns[i][repetition] = w->seen[i].ns;
    return status == SOL_OK ? waited : status;
}

/* Sets of buffers in turn, so that a call finds the cache as it does when it is timed. */
static enum sol_status watch_calls(struct run *r, struct plan *plans[SETS_MAX], struct watched *w,
                                   int *count)
{
    SOL_TRY(make_sets(r));
    for (int i = 0; i < r->n_sets; i++) {
        SOL_TRY(plan_create(r->chooser, &plans[i]));
        plan_call(plans[i], r->spec.op, r->sets[i].args);
        SOL_TRY(plan_finish(plans[i]));
    }
    for (int i = -WARM; i < REPETITIONS; i++)
        SOL_TRY(watch_call(r, plans[(i + WARM) % r->n_sets], i, w, count));
    return SOL_OK;
}

static enum sol_status fill_kernels(const struct run *r, const struct plan *plan,
                                    const struct watched *w, int count,
                                    struct bench_op_kernels *out)
{
    *out = (struct bench_op_kernels){.variant = variant_of(r),
                                     .choice = plan_step_at(plan, 0)->choice,
                                     .count = count,
                                     .launches = r->gpu ? count : 0};
    for (int i = 0; i < count && i < BENCH_OP_KERNELS; i++) {
        struct statistics t;
        SOL_TRY(statistics_of(w->ns[i], REPETITIONS, &t));
        out->list[i].ns = t.median;
        snprintf(out->list[i].name, sizeof out->list[i].name, "%s",
                 r->gpu ? w->seen[i].name : out->variant);
    }
    return SOL_OK;
}

static enum sol_status watch_run(struct run *r, struct bench_op_kernels *out)
{
    struct plan *plans[SETS_MAX] = {NULL};
    int count = 0;
    struct watched *w = calloc(1, sizeof *w);
    if (!w) return status_set(SOL_E_MEMORY, "no memory for times");
    enum sol_status status = watch_calls(r, plans, w, &count);
    if (status == SOL_OK) status = fill_kernels(r, plans[0], w, count, out);
    for (int i = 0; i < SETS_MAX; i++) plan_destroy(plans[i]);
    free(w);
    return status;
}

enum sol_status bench_op_kernels(const struct chooser *chooser, const struct bench_op_call *call,
                                 struct bench_op_kernels *out)
{
    struct run *r;
    enum sol_status status = open_run(chooser, &r);
    if (status == SOL_OK) {
        r->spec.op = call->op;
        r->spec.call = call;
        status = watch_run(r, out);
    }
    close_run(r);
    return status;
}

/* ---- by specs ---- */

enum sol_status bench_op(const struct chooser *chooser, const char *text, json_t *rows)
{
    if (strcmp(text, "all") != 0) return bench_one(chooser, text, rows);
    for (int i = 0; i < op_table_count; i++) SOL_TRY(bench_one(chooser, op_table[i]->name, rows));
    return SOL_OK;
}
