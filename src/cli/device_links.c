#include "cli/device_links.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes_hash.h"
#include "base/number.h"
#include "bench/links.h"
#include "cli/device_gpu.h"
#include "cli/engine_options.h"
#include "driver/nccl.h"
#include "gpu/kernel.h"

enum sol_status device_links_count(const char *text, int *gpus)
{
    struct gpu_info infos[GPU_PEERS_MAX];
    int count;
    char *end;
    const long wanted = strtol(text, &end, 10);
    const bool all = strcmp(text, "all") == 0;
    if (!all && (end == text || *end || wanted < 2 || wanted > GPU_PEERS_MAX))
        return status_set(SOL_E_ARGUMENT, "--gpus %.20s: write 2 to %d, or all", text,
                          GPU_PEERS_MAX);
    SOL_TRY(gpu_list(infos, GPU_PEERS_MAX, &count));
    if (count > GPU_PEERS_MAX) count = GPU_PEERS_MAX;
    *gpus = all ? count : (int)wanted;
    if (*gpus >= 2 && *gpus <= count) return SOL_OK;
    return status_set(SOL_E_UNSUPPORTED,
                      "links are between GPUs of this machine: two are needed at least%s, and the "
                      "driver shows %d (CUDA_VISIBLE_DEVICES may hide some)",
                      all || wanted == 2 ? "" : ", as many as --gpus says", count);
}

static enum sol_status add_gpu(int ordinal, uint64_t *hash)
{
    struct gpu *gpu;
    char key[64], links[17] = "", sums[17] = "";
    SOL_TRY(gpu_open(ordinal, &gpu));
    enum sol_status status = gpu_limits_key(gpu, key);
    if (status == SOL_OK) status = gpu_sources_hash(gpu, "links/", links);
    if (status == SOL_OK) status = gpu_sources_hash(gpu, "all_reduce/", sums);
    gpu_close(gpu);
    const char *const texts[] = {key, links, sums};
    for (size_t i = 0; i < 3 && status == SOL_OK; i++)
        *hash = bytes_hash_mix(*hash ^ bytes_hash(texts[i], strlen(texts[i])));
    return status;
}

enum sol_status device_links_key(int gpus, size_t most, char key[64])
{
    const struct nccl_api *nccl = nccl_load(NULL);
    int version = 0;
    uint64_t hash = bytes_hash_mix((uint64_t)gpus ^ most);
    if (nccl) nccl->version(&version);
    hash = bytes_hash_mix(hash ^ (uint64_t)version);
    for (int i = 0; i < gpus; i++) SOL_TRY(add_gpu(i, &hash));
    snprintf(key, 64, "links:%d:%016llx", gpus, (unsigned long long)hash);
    return SOL_OK;
}

enum sol_status device_links_measure(int gpus, double seconds, size_t most, json_t **out)
{
    *out = NULL;
    struct links *links = malloc(sizeof *links);
    if (!links) return status_set(SOL_E_MEMORY, "no memory for links");
    const enum sol_status status = links_measure(gpus, seconds, most, links);
    if (status == SOL_OK) *out = links_json(links);
    free(links);
    return status == SOL_OK && !*out ? status_set(SOL_E_MEMORY, "no memory for links") : status;
}

/* ---- tables ---- */

static double number(const json_t *json, const char *name)
{
    return json_number_value(json_object_get(json, name));
}

static void add_rate(struct table *table, double value)
{
    if (value > 0)
        table_number(table, value, 4);
    else
        table_cell(table, "-");
}

/* Of all repetitions, around the median. */
static double spread(const json_t *figure)
{
    const double median = number(figure, "median");
    return median > 0 ? 50 * (number(figure, "most") - number(figure, "least")) / median : 0;
}

static enum sol_status print_pairs(const json_t *links, enum table_format format)
{
    static const char *const names[] = {"engine_gb_s", "push_gb_s", "pull_gb_s", "both_gb_s"};
    struct table *table;
    const json_t *pairs = json_object_get(links, "pairs");
    SOL_TRY(table_create(
        "GB/s|>copy engine|>a kernel writes|>a kernel reads|>both ways|>us, a word", &table));
    for (size_t i = 0; i < json_array_size(pairs); i++) {
        const json_t *p = json_array_get(pairs, i);
        table_cell(table, "%d to %d", (int)number(p, "from"), (int)number(p, "to"));
        for (int n = 0; n < 4; n++) add_rate(table, number(json_object_get(p, names[n]), "median"));
        add_rate(table, 1e-3 * number(p, "one_way_ns"));
    }
    table_print(table, format, stdout);
    table_destroy(table);
    return SOL_OK;
}

static enum sol_status print_collectives(const json_t *links, enum table_format format)
{
    struct table *table;
    const json_t *lines = json_object_get(links, "collectives");
    SOL_TRY(table_create("op|variant|>size|>us|>+- %|>GB/s|>bus GB/s|>% of link", &table));
    for (size_t i = 0; i < json_array_size(lines); i++) {
        const json_t *l = json_array_get(lines, i), *ns = json_object_get(l, "ns");
        char size[16];
        table_cell(table, "%s", json_string_value(json_object_get(l, "op")));
        table_cell(table, "%s", json_string_value(json_object_get(l, "variant")));
        table_cell(table, "%s", format_bytes((size_t)number(l, "bytes"), size));
        add_rate(table, 1e-3 * number(ns, "median"));
        add_rate(table, spread(ns));
        add_rate(table, number(l, "algorithm_gb_s"));
        add_rate(table, number(l, "bus_gb_s"));
        add_rate(table, 100 * number(l, "of_link"));
    }
    table_print(table, format, stdout);
    table_destroy(table);
    return SOL_OK;
}

enum sol_status device_links_print(const json_t *machine, const json_t *links,
                                   enum table_format format)
{
    for (size_t i = 0; format != TABLE_CSV && i < json_array_size(machine); i++)
        printf("GPU %zu        %s\n", i,
               json_string_value(json_object_get(json_array_get(machine, i), "gpu")));
    if (format != TABLE_CSV)
        printf("links measured %s%s\n\n", json_string_value(json_object_get(links, "measured")),
               json_is_true(json_object_get(links, "reused")) ? " (kept; --measure does it again)"
                                                              : "");
    SOL_TRY(print_pairs(links, format));
    putchar('\n');
    return print_collectives(links, format);
}
