/* Where sol scale predicts for: a GPU by its sheet, links as they were measured. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_file.h"
#include "base/status.h"
#include "bench/device.h"
#include "cli/device_links.h"
#include "cli/scale_private.h"
#include "gpu/peers.h"

/* ---- the device ---- */

static double figure_of(const json_t *sheet, const char *name)
{
    return json_number_value(json_object_get(sheet, name));
}

/* "H200", "H200 SXM" and "NVIDIA H200" are one. */
static const json_t *find_sheet(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *sheet = json_array_get(list, i);
        const char *own = json_string_value(json_object_get(sheet, "name"));
        const char *match = json_string_value(json_object_get(sheet, "match"));
        if ((own && strcmp(own, name) == 0) || (match && *match && strstr(name, match)))
            return sheet;
    }
    return NULL;
}

static enum sol_status describe(const json_t *sheet, struct gpu **out)
{
    const char *arch = json_string_value(json_object_get(sheet, "architecture"));
    const int number = arch && strncmp(arch, "sm_", 3) == 0 ? (int)strtol(arch + 3, NULL, 10) : 90;
    const int sms = (int)figure_of(sheet, "sms");
    const bool large = number == 80 || number == 90 || number == 100;
    const struct gpu_info info = {.name = "GPU",
                                  .major = number / 10,
                                  .minor = number % 10,
                                  .sm_count = sms ? sms : 132,
                                  .memory_bytes =
                                      (size_t)(figure_of(sheet, "memory_gib") * (1 << 30)),
                                  .l2_bytes = (size_t)(figure_of(sheet, "l2_mib") * (1 << 20)),
                                  .shared_per_block = (number == 80 ? 163
                                                       : large      ? 227
                                                                    : 99)
                                                      << 10,
                                  .shared_per_sm = (number == 80 ? 164
                                                    : large      ? 228
                                                                 : 100)
                                                   << 10};
    return gpu_describe(&info, out);
}

static enum sol_status take_limits(struct scale *s, const json_t *sheet)
{
    const json_t *rates = json_object_get(sheet, "tflops");
    const struct scale_options *o = s->o;
    struct work_limits *l = &s->report.limits;
    l->bytes = 1e9 * (o->memory_gb_s > 0 ? o->memory_gb_s : figure_of(sheet, "memory_gb_s"));
    l->bf16 = 1e12 * (o->tflops > 0 ? o->tflops : figure_of(rates, "bf16"));
    l->f32 = 1e12 * figure_of(rates, "f32");
    s->report.memory = (size_t)(figure_of(sheet, "memory_gib") * (1 << 30));
    snprintf(s->report.device, sizeof s->report.device, "%s",
             json_string_value(json_object_get(sheet, "name")));
    if (!(l->bf16 > 0))
        return status_set(SOL_E_ARGUMENT,
                          "nothing is published of %s's products in bf16: give --tflops",
                          s->report.device);
    if (!(l->f32 > 0)) l->f32 = l->bf16 / 16;
    return describe(sheet, &s->gpu);
}

enum sol_status scale_open_device(struct scale *s)
{
    const char *name = s->o->device ? s->o->device : s->found.device;
    json_t *list, *described = NULL;
    if (!*name)
        return status_set(SOL_E_ARGUMENT, "which GPU took that time? give --device NAME, as sol "
                                          "device --known lists them");
    if (s->o->descriptions) SOL_TRY(device_descriptions_read(s->o->descriptions, &described));
    list = described ? described : json_array();
    json_t *known = device_datasheets();
    json_array_extend(list, known);
    json_decref(known);
    const json_t *sheet = find_sheet(list, name);
    const enum sol_status status =
        sheet ? take_limits(s, sheet)
              : status_set(SOL_E_ARGUMENT,
                           "%s%s is not among the GPUs of sol device --known; --descriptions FILE "
                           "adds others",
                           s->o->device ? "" : "the run's device ", name);
    json_decref(list);
    return status;
}

/* ---- links ---- */

/* As sol device --gpus kept them of as many of this machine's GPUs as it can; NULL: it has not. */
static enum sol_status kept_links(const char *folder, json_t **out)
{
    enum { MOST = 256 << 20 }; /* its largest message, unless another is asked for */
    struct gpu_info infos[GPU_PEERS_MAX];
    struct store *store;
    char key[64], *text = NULL;
    int count;
    *out = NULL;
    SOL_TRY(gpu_list(infos, GPU_PEERS_MAX, &count));
    SOL_TRY(store_open(folder, &store));
    enum sol_status status = SOL_OK;
    for (int gpus = count; gpus >= 2 && !text && status == SOL_OK; gpus--) {
        status = device_links_key(gpus, MOST, key);
        if (status == SOL_OK) status = store_fact_read(store, "ceiling", key, &text, NULL);
    }
    store_close(store);
    if (text) *out = json_pack("{s:o?}", "links", json_loads(text, 0, NULL));
    free(text);
    return status;
}

static enum sol_status read_links(const struct scale_options *o, struct network *n)
{
    json_t *json = NULL;
    const bool here = strcmp(o->links, "here") == 0;
    SOL_TRY(here ? kept_links(o->given.store, &json) : json_file_read(o->links, &json));
    if (!json)
        return status_set(SOL_E_ARGUMENT, "nothing is kept of this machine's links: measure them "
                                          "with sol device --gpus all");
    const enum sol_status status = network_read(n, json);
    json_decref(json);
    return status == SOL_OK ? SOL_OK : status_prefix(status, "%s", o->links);
}

enum sol_status scale_open_links(struct scale *s)
{
    const struct scale_options *o = s->o;
    struct network *n = &s->network;
    network_init(n);
    n->node = o->node;
    n->adapter = 1e9 * o->adapter_gb_s;
    n->adapter_ns = 1e3 * o->adapter_us;
    if (o->links) SOL_TRY(read_links(o, n));
    s->report.network = n;
    snprintf(s->report.links, sizeof s->report.links,
             "%s between %d GPUs, %.4g GB/s; %lld a node; to other nodes %.3g GB/s a GPU, %.3g us",
             o->links ? o->links : "measured on H200s", n->gpus, 1e-9 * n->link, (long long)n->node,
             o->adapter_gb_s, o->adapter_us);
    return SOL_OK;
}
