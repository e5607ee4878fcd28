/* Makes `variants` and `N_VARIANTS` from an op's list. Included once by each <op>.c, with OP_LIST
 * defined as the list's name; no guard on purpose. The list is the only place that names a variant:
 *   SOL_VARIANT(name)       on every machine
 *   SOL_VARIANT_X86(name)   built for x86-64 only
 *   SOL_VARIANT_ARM(name)   built for 64-bit Arm only
 * fastest first. */
#include <stddef.h>
#include <stdio.h>

#include "ops/op.h"

#if defined(__x86_64__)
#define SOL_VARIANT_X86(name) SOL_VARIANT(name)
#else
#define SOL_VARIANT_X86(name)
#endif
#if defined(__aarch64__)
#define SOL_VARIANT_ARM(name) SOL_VARIANT(name)
#else
#define SOL_VARIANT_ARM(name)
#endif

#define SOL_VARIANT(name) extern const struct op_variant name;
#include OP_LIST
#undef SOL_VARIANT

static const struct op_variant *const variants[] = {
#define SOL_VARIANT(name) &name,
#include OP_LIST
#undef SOL_VARIANT
    NULL,
};

enum { N_VARIANTS = sizeof variants / sizeof *variants - 1 };
