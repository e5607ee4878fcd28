#include "trace/category.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

const char *category_name(enum kernel_category category)
{
    static const char *const names[CATEGORY_COUNT] = {
        "gemm",     "attention", "norm",        "rope",     "moe routing",
        "quantize", "transpose", "softmax",     "sampling", "communication",
        "copy",     "reduce",    "elementwise", "graph",    "other"};
    return (unsigned)category < CATEGORY_COUNT ? names[category] : "?";
}

/* The first word that occurs in the lower-cased name decides, so special ones come before those
 * that contain them. Words of PyTorch, cuBLAS, CUTLASS, cuDNN, Triton, llama.cpp, vLLM and NCCL. */
static const struct rule {
    const char *word;
    enum kernel_category category;
} rules[] = {
    {"nccl", CATEGORY_COMMUNICATION},
    {"allreduce", CATEGORY_COMMUNICATION},
    {"all_reduce", CATEGORY_COMMUNICATION},
    {"allgather", CATEGORY_COMMUNICATION},
    {"all_gather", CATEGORY_COMMUNICATION},
    {"send_recv", CATEGORY_COMMUNICATION},
    {"reducescatter", CATEGORY_COMMUNICATION},
    {"reduce_scatter", CATEGORY_COMMUNICATION},
    {"flash", CATEGORY_ATTENTION},
    {"attention", CATEGORY_ATTENTION},
    {"attn", CATEGORY_ATTENTION},
    {"fmha", CATEGORY_ATTENTION},
    {"mha_", CATEGORY_ATTENTION},
    {"sdpa", CATEGORY_ATTENTION},
    {"dot_do_o", CATEGORY_ATTENTION},
    {"convert_dq", CATEGORY_ATTENTION},
    {"rope", CATEGORY_ROPE},
    {"rotary", CATEGORY_ROPE},
    {"topk_moe", CATEGORY_MOE},
    {"moe_align", CATEGORY_MOE},
    {"moe_sum", CATEGORY_MOE},
    {"routing", CATEGORY_MOE},
    {"router", CATEGORY_MOE},
    {"topkgating", CATEGORY_MOE},
    {"gating", CATEGORY_MOE},
    {"permute_moe", CATEGORY_MOE},
    {"mm_ids", CATEGORY_MOE},
    {"gemm", CATEGORY_GEMM},
    {"gemv", CATEGORY_GEMM},
    {"mul_mat", CATEGORY_GEMM},
    {"matmul", CATEGORY_GEMM},
    {"nvjet", CATEGORY_GEMM},
    {"xmma", CATEGORY_GEMM},
    {"wgmma", CATEGORY_GEMM},
    {"splitk", CATEGORY_GEMM},
    {"dot_kernel", CATEGORY_GEMM},
    {"fused_moe", CATEGORY_GEMM},
    {"moe_up", CATEGORY_GEMM},
    {"moe_down", CATEGORY_GEMM},
    {"conv2d", CATEGORY_GEMM},
    {"implicit_convolve", CATEGORY_GEMM},
    {"softmax", CATEGORY_SOFTMAX},
    {"soft_max", CATEGORY_SOFTMAX},
    {"cross_entropy", CATEGORY_SOFTMAX},
    {"nll_loss", CATEGORY_SOFTMAX},
    {"norm", CATEGORY_NORM},
    {"gammabeta", CATEGORY_NORM},
    {"quant", CATEGORY_QUANTIZE},
    {"delayed_scale", CATEGORY_QUANTIZE},
    {"mxfp", CATEGORY_QUANTIZE},
    {"nvfp4", CATEGORY_QUANTIZE},
    {"swizzle", CATEGORY_QUANTIZE},
    {"pack_weights", CATEGORY_QUANTIZE},
    {"pack_scaled", CATEGORY_QUANTIZE},
    {"transpose", CATEGORY_TRANSPOSE},
    {"permute", CATEGORY_TRANSPOSE},
    {"sampl", CATEGORY_SAMPLING},
    {"argmax", CATEGORY_SAMPLING},
    {"argsort", CATEGORY_SAMPLING},
    {"topk", CATEGORY_SAMPLING},
    {"top_k", CATEGORY_SAMPLING},
    {"multinomial", CATEGORY_SAMPLING},
    {"elementwise", CATEGORY_ELEMENTWISE},
    {"copy", CATEGORY_COPY},
    {"cpy", CATEGORY_COPY},
    {"concat", CATEGORY_COPY},
    {"catarray", CATEGORY_COPY},
    {"gather", CATEGORY_COPY},
    {"scatter", CATEGORY_COPY},
    {"get_rows", CATEGORY_COPY},
    {"set_rows", CATEGORY_COPY},
    {"index", CATEGORY_COPY},
    {"embedding", CATEGORY_COPY},
    {"reduce", CATEGORY_REDUCE},
    {"reduction", CATEGORY_REDUCE},
    {"sum_rows", CATEGORY_REDUCE},
    {"scan", CATEGORY_REDUCE},
    {"silu", CATEGORY_ELEMENTWISE},
    {"gelu", CATEGORY_ELEMENTWISE},
    {"glu", CATEGORY_ELEMENTWISE},
    {"unary", CATEGORY_ELEMENTWISE},
    {"binary", CATEGORY_ELEMENTWISE},
    {"bin_bcast", CATEGORY_ELEMENTWISE},
    {"bcast", CATEGORY_ELEMENTWISE},
    {"scale", CATEGORY_ELEMENTWISE},
    {"convert", CATEGORY_ELEMENTWISE},
    {"cast", CATEGORY_ELEMENTWISE},
    {"multi_tensor", CATEGORY_ELEMENTWISE},
    {"adam", CATEGORY_ELEMENTWISE},
    {"fill", CATEGORY_ELEMENTWISE},
    {"pointwise", CATEGORY_ELEMENTWISE},
    {"poi_fused", CATEGORY_ELEMENTWISE},
    {"red_fused", CATEGORY_REDUCE},
    {"per_fused", CATEGORY_REDUCE},
    {"add", CATEGORY_ELEMENTWISE},
    {"cutlass", CATEGORY_GEMM},
    {"cublas", CATEGORY_GEMM},
};

static enum kernel_category search(const char *text)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strstr(text, rules[i].word)) return rules[i].category;
    return CATEGORY_OTHER;
}

/* The length without template arguments and parameters. */
static size_t base_length(const char *text)
{
    static const char anonymous[] = "(anonymous namespace)";
    size_t i = 0;
    while (text[i] && text[i] != '<') {
        if (text[i] == '(') {
            if (strncmp(text + i, anonymous, sizeof anonymous - 1) != 0) break;
            i += sizeof anonymous - 2;
        }
        i++;
    }
    return i;
}

enum kernel_category category_of(const char *name)
{
    char text[4096] = "";
    size_t length = strnlen(name, sizeof text - 1);
    for (size_t i = 0; i < length; i++) text[i] = (char)tolower((unsigned char)name[i]);
    text[length] = '\0';
    size_t base = base_length(text);
    char rest = text[base];
    text[base] = '\0';
    enum kernel_category category = search(text);
    /* CUTLASS kernels of all sorts are one template, named by its arguments. */
    bool generic = strstr(text, "cutlass") != NULL;
    text[base] = rest;
    return category == CATEGORY_OTHER || generic ? search(text) : category;
}
