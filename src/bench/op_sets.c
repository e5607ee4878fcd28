/* The arguments of a call that is timed, several times, so that no cache has them all.
 *
 * A problem is made on the host. For a GPU the blocks of its arena are copied there and every
 * address in the arguments that lies in a block is changed into that of its copy: sizes are never
 * so large that they look like one. Weights are packed there then, as those of a model are. */
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/memory.h"
#include "bench/op_private.h"
#include "gpu/device.h"
#include "ops/cuda/pack_cuda.h"
#include "ops/ops.h"

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

void bench_op_free_set(const struct run *r, struct set *set)
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

enum sol_status bench_op_make_sets(struct run *r)
{
    double cache = r->gpu ? (double)gpu_info(r->gpu)->l2_bytes : (double)cpu_info()->l3, made = 0;
    for (; r->n_sets < SETS_MAX && (r->n_sets < 2 || made < 4 * cache); r->n_sets++) {
        struct set *set = &r->sets[r->n_sets];
        enum sol_status status = make_set(r, set);
        if (status != SOL_OK) {
            bench_op_free_set(r, set);
            return status;
        }
        made += r->spec.op->cost(set->host_args).bytes;
    }
    return SOL_OK;
}
