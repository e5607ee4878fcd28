/* The op table, from ops.list. */
#include <string.h>

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

const char *op_numerics_name(enum op_numerics numerics)
{
    static const char *const names[NUMERICS_COUNT] = {"exact", "bf16", "i8"};
    return names[numerics];
}
