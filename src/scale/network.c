/* See network.h. */
#include "scale/network.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* bench/results/ranks_h200_x2.jsonl, its second survey of the links; all_reduce_add:
 * tensor_parallel_h200_x2.jsonl. */
/* clang-format off */
static const struct network_line h200[] = {
    {"all_reduce", "all_reduce_one_shot_cuda", 8, 1705},
    {"all_reduce", "all_reduce_nccl_cuda", 8, 5561},
    {"all_reduce", "all_reduce_one_shot_cuda", 1024, 1823},
    {"all_reduce", "all_reduce_nccl_cuda", 1024, 5695},
    {"all_reduce", "all_reduce_one_shot_cuda", 11520, 1992},
    {"all_reduce", "all_reduce_nccl_cuda", 11520, 6954},
    {"all_reduce", "all_reduce_one_shot_cuda", 65536, 2454},
    {"all_reduce", "all_reduce_nccl_cuda", 65536, 6734},
    {"all_reduce", "all_reduce_one_shot_cuda", 262144, 5163},
    {"all_reduce", "all_reduce_nccl_cuda", 262144, 8040},
    {"all_reduce", "all_reduce_one_shot_cuda", 524288, 7610},
    {"all_reduce", "all_reduce_nccl_cuda", 524288, 9406},
    {"all_reduce", "all_reduce_nccl_cuda", 1048576, 12719},
    {"all_reduce", "all_reduce_nccl_cuda", 4194304, 32118},
    {"all_reduce", "all_reduce_nccl_cuda", 16777216, 73295},
    {"all_reduce", "all_reduce_nccl_cuda", 67108864, 247749},
    {"all_reduce", "all_reduce_nccl_cuda", 268435456, 895560},
    {"all_reduce_add", "all_reduce_add_one_shot_cuda", 8, 1740},
    {"all_reduce_add", "all_reduce_add_one_shot_cuda", 1024, 1860},
    {"all_reduce_add", "all_reduce_add_tiles_cuda", 1024, 4190},
    {"all_reduce_add", "all_reduce_add_one_shot_cuda", 11520, 2100},
    {"all_reduce_add", "all_reduce_add_tiles_cuda", 11520, 4470},
    {"all_reduce_add", "all_reduce_add_one_shot_cuda", 65536, 2560},
    {"all_reduce_add", "all_reduce_add_tiles_cuda", 65536, 4740},
    {"all_reduce_add", "all_reduce_add_one_shot_cuda", 262144, 5510},
    {"all_reduce_add", "all_reduce_add_tiles_cuda", 262144, 5080},
    {"all_reduce_add", "all_reduce_add_one_shot_cuda", 524288, 8060},
    {"all_reduce_add", "all_reduce_add_tiles_cuda", 524288, 5490},
    {"all_reduce_add", "all_reduce_add_tiles_cuda", 1048576, 6340},
    {"all_reduce_add", "all_reduce_add_tiles_cuda", 4194304, 13180},
    {"all_reduce_add", "all_reduce_add_tiles_cuda", 16777216, 41130},
    {"all_reduce_add", "all_reduce_add_tiles_cuda", 23592960, 61290},
    {"all_reduce_add", "all_reduce_add_tiles_cuda", 67108864, 157420},
    {"reduce_scatter", "reduce_scatter_nccl_cuda", 8, 4809},
    {"reduce_scatter", "reduce_scatter_nccl_cuda", 1024, 4868},
    {"reduce_scatter", "reduce_scatter_nccl_cuda", 11520, 5713},
    {"reduce_scatter", "reduce_scatter_nccl_cuda", 65536, 5795},
    {"reduce_scatter", "reduce_scatter_nccl_cuda", 262144, 6485},
    {"reduce_scatter", "reduce_scatter_nccl_cuda", 524288, 7348},
    {"reduce_scatter", "reduce_scatter_nccl_cuda", 1048576, 9320},
    {"reduce_scatter", "reduce_scatter_nccl_cuda", 4194304, 22802},
    {"reduce_scatter", "reduce_scatter_nccl_cuda", 16777216, 48519},
    {"reduce_scatter", "reduce_scatter_nccl_cuda", 67108864, 158021},
    {"reduce_scatter", "reduce_scatter_nccl_cuda", 268435456, 559112},
    {"all_gather", "all_gather_nccl_cuda", 8, 4875},
    {"all_gather", "all_gather_nccl_cuda", 1024, 4930},
    {"all_gather", "all_gather_nccl_cuda", 11520, 5915},
    {"all_gather", "all_gather_nccl_cuda", 65536, 5934},
    {"all_gather", "all_gather_nccl_cuda", 262144, 6672},
    {"all_gather", "all_gather_nccl_cuda", 524288, 7608},
    {"all_gather", "all_gather_nccl_cuda", 1048576, 9684},
    {"all_gather", "all_gather_nccl_cuda", 4194304, 24005},
    {"all_gather", "all_gather_nccl_cuda", 16777216, 48890},
    {"all_gather", "all_gather_nccl_cuda", 67108864, 149778},
    {"all_gather", "all_gather_nccl_cuda", 268435456, 525032},
};
/* clang-format on */

void network_init(struct network *out)
{
    *out = (struct network){.n_lines = sizeof h200 / sizeof *h200,
                            .gpus = 2,
                            .link = 393.0e9,
                            .one_way_ns = 658,
                            .node = 8,
                            .adapter = 50e9,
                            .adapter_ns = 5000};
    memcpy(out->lines, h200, sizeof h200);
}

/* ---- reading ---- */

static enum sol_status read_line(struct network *n, json_t *json)
{
    const char *op, *variant;
    json_error_t error;
    struct network_line *line = &n->lines[n->n_lines];
    if (n->n_lines == NETWORK_LINES_MAX)
        return status_set(SOL_E_FORMAT, "more than %d collectives", n->n_lines);
    if (json_unpack_ex(json, &error, 0, "{s:s, s:s, s:F, s:{s:F}}", "op", &op, "variant", &variant,
                       "bytes", &line->bytes, "ns", "median", &line->ns) != 0)
        return status_set(SOL_E_FORMAT, "a collective: %s", error.text);
    if (!(line->bytes > 0) || !(line->ns > 0) || strlen(op) >= NETWORK_NAME ||
        strlen(variant) >= NETWORK_NAME)
        return status_set(SOL_E_FORMAT, "a collective takes no time, or has no size or name");
    snprintf(line->op, sizeof line->op, "%s", op);
    snprintf(line->variant, sizeof line->variant, "%s", variant);
    n->n_lines++;
    return SOL_OK;
}

/* The slowest of the pairs. */
static double longest_way(const json_t *pairs)
{
    double most = 0;
    size_t i;
    json_t *pair;
    json_array_foreach(pairs, i, pair) most =
        fmax(most, json_number_value(json_object_get(pair, "one_way_ns")));
    return most;
}

static bool has_all(const struct network *n)
{
    static const char *const ops[] = {"all_reduce", "reduce_scatter", "all_gather"};
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
        int i = 0;
        while (i < n->n_lines && strcmp(n->lines[i].op, ops[o]) != 0) i++;
        if (i == n->n_lines) return false;
    }
    return true;
}

enum sol_status network_read(struct network *network, const json_t *device)
{
    struct network n = *network;
    size_t i;
    json_t *line;
    const json_t *links = json_object_get(device, "links");
    n.n_lines = 0;
    n.gpus = (int)json_integer_value(json_object_get(links, "gpus"));
    n.link = 1e9 * json_number_value(json_object_get(links, "link_gb_s"));
    n.one_way_ns = longest_way(json_object_get(links, "pairs"));
    json_array_foreach(json_object_get(links, "collectives"), i, line) SOL_TRY(read_line(&n, line));
    if (n.gpus < 2 || !(n.link > 0) || !(n.one_way_ns > 0) || !has_all(&n))
        return status_set(SOL_E_FORMAT,
                          "no links and collectives of GPUs that reach each other: what sol device "
                          "--gpus N --json printed is wanted");
    *network = n;
    return SOL_OK;
}

/* ---- one variant's curve ---- */

static bool is_one_shot(const char *variant)
{
    return strstr(variant, "one_shot") != NULL;
}

static bool same_curve(const struct network_line *a, const struct network_line *b)
{
    return strcmp(a->op, b->op) == 0 && strcmp(a->variant, b->variant) == 0;
}

static double between(const struct network_line *a, const struct network_line *b, double bytes)
{
    const double part = log(bytes / a->bytes) / log(b->bytes / a->bytes);
    return exp(log(a->ns) + part * log(b->ns / a->ns));
}

/* Between sizes a line in logarithms, below the smallest one its time, beyond the largest its
 * rate; INFINITY there for who was not to be measured further. */
static double at_size(const struct network *n, const struct network_line *of, double bytes)
{
    const struct network_line *below = NULL, *above = NULL;
    for (int i = 0; i < n->n_lines; i++) {
        const struct network_line *l = &n->lines[i];
        if (!same_curve(l, of)) continue;
        if (l->bytes <= bytes && (!below || l->bytes > below->bytes)) below = l;
        if (l->bytes >= bytes && (!above || l->bytes < above->bytes)) above = l;
    }
    if (!below) return above ? above->ns : INFINITY;
    if (above) return above == below ? below->ns : between(below, above, bytes);
    return is_one_shot(of->variant) ? INFINITY : below->ns * bytes / below->bytes;
}

/* No message takes longer than a larger one. */
static double on_curve(const struct network *n, const struct network_line *of, double bytes)
{
    double ns = at_size(n, of, bytes);
    for (int i = 0; i < n->n_lines; i++)
        if (same_curve(&n->lines[i], of) && n->lines[i].bytes >= bytes)
            ns = fmin(ns, n->lines[i].ns);
    return ns;
}

/* ---- rules ---- */

static bool is_sum(const char *op)
{
    return strncmp(op, "all_reduce", strlen("all_reduce")) == 0;
}

/* What a link carries, of x. */
static double carried(const char *op, double ranks)
{
    return (is_sum(op) ? 2 : 1) * (ranks - 1) / ranks;
}

/* Of what a link carries at best, at the largest size that was measured. */
static double reached(const struct network *n, const char *op)
{
    const struct network_line *largest = NULL;
    for (int i = 0; i < n->n_lines; i++) {
        const struct network_line *l = &n->lines[i];
        if (strcmp(l->op, op) == 0 && (!largest || l->bytes > largest->bytes)) largest = l;
    }
    if (!largest) return 1;
    const double share = 1e9 * largest->bytes * carried(op, n->gpus) / largest->ns / n->link;
    return share < 1 ? share : 1;
}

/* The variant of `line` among `ranks` of a node. */
static double in_node(const struct network *n, const struct network_line *line, double bytes,
                      double ranks)
{
    if (is_one_shot(line->variant)) return on_curve(n, line, bytes * (ranks - 1) / (n->gpus - 1));
    const double ways = (is_sum(line->op) ? 2 : 1) * (ranks - n->gpus);
    const double as = bytes * carried(line->op, ranks) / carried(line->op, n->gpus);
    return on_curve(n, line, as) + (ways > 0 ? ways * n->one_way_ns : 0);
}

static double best_in_node(const struct network *n, const char *op, double bytes, double ranks)
{
    double best = INFINITY;
    for (int i = 0; i < n->n_lines; i++)
        if (strcmp(n->lines[i].op, op) == 0)
            best = fmin(best, in_node(n, &n->lines[i], bytes, ranks));
    return best;
}

/* The least that a call takes. */
static double base_ns(const struct network *n, const char *op)
{
    double base = INFINITY;
    for (int i = 0; i < n->n_lines; i++)
        if (strcmp(n->lines[i].op, op) == 0 && !is_one_shot(n->lines[i].variant))
            base = fmin(base, n->lines[i].ns);
    return base;
}

static double ways_between(const struct network *n, const char *op, double nodes, double per_node)
{
    const double ring = (nodes - 1) * n->adapter_ns + nodes * (per_node - 1) * n->one_way_ns;
    const double tree = ceil(log2(nodes)) * n->adapter_ns + (per_node - 1) * n->one_way_ns;
    return is_sum(op) ? 2 * fmin(ring, tree) : ring;
}

static double between_nodes(const struct network *n, const char *op, double bytes,
                            struct network_ranks ranks)
{
    const double count = (double)ranks.count, per_node = (double)ranks.per_node;
    const double all = bytes * carried(op, count);
    const double base = base_ns(n, op);
    const double outside = 1e9 * all / (per_node * n->adapter * reached(n, op));
    /* As large a message of as many ranks as were measured: what its links carry. */
    const double inside =
        per_node > 1 ? best_in_node(n, op, all / carried(op, n->gpus), n->gpus) - base : 0;
    return base + fmax(inside, outside) + ways_between(n, op, ceil(count / per_node), per_node);
}

/* all_reduce_add where it was not measured: as the all_reduce that it may be composed of. */
static const char *measured_as(const struct network *n, const char *op)
{
    for (int i = 0; i < n->n_lines; i++)
        if (strcmp(n->lines[i].op, op) == 0) return op;
    return is_sum(op) ? "all_reduce" : op;
}

double network_ns(const struct network *network, const char *asked, double bytes,
                  struct network_ranks ranks)
{
    const char *op = measured_as(network, asked);
    if (ranks.count < 2 || bytes <= 0) return 0;
    if (ranks.count <= ranks.per_node) return best_in_node(network, op, bytes, (double)ranks.count);
    return between_nodes(network, op, bytes, ranks);
}

double network_all_to_all_ns(const struct network *network, double bytes,
                             struct network_ranks ranks)
{
    return network_ns(network, "all_gather", bytes, ranks);
}

double network_send_ns(const struct network *network, double bytes, bool between_nodes)
{
    const double share = reached(network, "all_gather");
    const double rate = between_nodes ? network->adapter : network->link;
    const double way = between_nodes ? network->adapter_ns : network->one_way_ns;
    return base_ns(network, "all_gather") + way + 1e9 * bytes / (rate * share);
}
