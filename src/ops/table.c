/* The op table, from ops.list. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "gpu/device.h"
#include "ops/op.h"

#define SOL_OP(name) extern const struct op op_##name;
#include "ops/ops.list"
#undef SOL_OP

const struct op *const op_table[] = {
#define SOL_OP(name) &op_##name,
#include "ops/ops.list"
#undef SOL_OP
};

const int op_table_count = sizeof op_table / sizeof *op_table;

const struct op *op_find(const char *name)
{
    for (int i = 0; i < op_table_count; i++)
        if (strcmp(op_table[i]->name, name) == 0) return op_table[i];
    return NULL;
}

int op_index(const struct op *op)
{
    int i = 0;
    while (op_table[i] != op) i++;
    return i;
}

int op_outputs(const struct op *op, const void *args, bool of_case,
               struct op_output outputs[OP_OUTPUTS_MAX])
{
    int n = 0;
    for (const struct op_matrix *m = op->matrices; m->access; m++) {
        const struct matrix *of = op_matrix_of(m, args);
        if (m->access == OP_READS || !of->data) continue;
        outputs[n++] =
            (struct op_output){m->offset, (size_t)matrix_bytes(of), true, of->cols, of->dtype};
    }
    int (*more)(const void *, struct op_output *) =
        of_case && op->case_outputs ? op->case_outputs : op->more_outputs;
    return more ? n + more(args, outputs + n) : n;
}

float op_output_number(const struct op_output *output, const void *data, int64_t i)
{
    switch (output->dtype) {
    case DTYPE_F16:
        return f16_to_f32(((const uint16_t *)data)[i]);
    case DTYPE_BF16:
        return bf16_to_f32(((const uint16_t *)data)[i]);
    default:
        return ((const float *)data)[i];
    }
}

double op_row_norm(const struct matrix *m, int64_t row)
{
    const struct op_output numbers = {.dtype = m->dtype};
    double sum = 0;
    for (int64_t i = row * m->stride; i < row * m->stride + m->cols; i++) {
        const double x = op_output_number(&numbers, m->data, i);
        sum += x * x;
    }
    return sqrt(sum);
}

int64_t op_output_size(const struct op_output *output)
{
    return (int64_t)dtype_info(output->dtype)->block_bytes;
}

static const char *const numerics_names[NUMERICS_COUNT] = {"exact", "bf16", "i8", "i8_row"};

const char *op_numerics_name(enum op_numerics numerics)
{
    return numerics_names[numerics];
}

bool op_numerics_from_name(const char *name, enum op_numerics *out)
{
    for (int n = 0; n < NUMERICS_COUNT; n++)
        if (strcmp(name, numerics_names[n]) == 0) {
            *out = (enum op_numerics)n;
            return true;
        }
    return false;
}

bool op_arch_fits(const struct op_arch *arch, const struct gpu *gpu)
{
    const struct gpu_info *info = gpu_info(gpu);
    int wanted = 10 * arch->major + arch->minor, has = 10 * info->major + info->minor;
    if (arch->family) return info->major == arch->major;
    return arch->alone ? has == wanted : has >= wanted;
}

static void say_arch(const struct op_arch *arch, char why[OP_REASON_MAX])
{
    if (arch->family)
        snprintf(why, OP_REASON_MAX, "made for compute capability %d.x", arch->major);
    else
        snprintf(why, OP_REASON_MAX, "made for compute capability %d.%d%s", arch->major,
                 arch->minor, arch->alone ? "" : " and later");
}

bool op_variant_fits(const struct op_variant *variant, const struct op_device *device,
                     char why[OP_REASON_MAX])
{
    const struct op_arch *arch = &variant->arch;
    unsigned missing = variant->needs & ~device->cpu_features;
    if (variant->target == TARGET_CPU && missing)
        snprintf(why, OP_REASON_MAX, "this machine lacks %s", cpu_feature_name(missing & -missing));
    else if (variant->target == TARGET_CUDA && !device->gpu)
        snprintf(why, OP_REASON_MAX, "runs on a GPU");
    else if (variant->target == TARGET_CUDA && !op_arch_fits(arch, device->gpu))
        say_arch(arch, why);
    else
        return true;
    return false;
}

bool op_variant_is_here(const struct op_variant *variant, const struct op_device *device,
                        char why[OP_REASON_MAX])
{
    return op_variant_fits(variant, device, why) && (!variant->usable || variant->usable(why));
}
