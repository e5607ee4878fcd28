#include "profile/ranks.h"

#include <math.h>

#include "advise/rules_private.h"
#include "base/number.h"
#include "base/table.h"

static void print_sentence(const struct communication_figure *f, uint16_t device, const char *per,
                           FILE *to)
{
    char a[24], b[24];
    fprintf(to,
            "ranks: %d; of a %s of %s rank %u spends %s (%.1f %%) in collectives with nothing "
            "else to do",
            f->ranks, per, rules_time(f->window_ns, a), (unsigned)device,
            rules_time(f->exposed_ns, b), 100 * f->exposed_ns / f->window_ns);
    if (isnan(f->waiting_ns))
        fprintf(to, "; ranks ran different collectives, so that waiting is not told from moving\n");
    else
        fprintf(to, ": %s waiting for a slower rank, %s moving bytes\n",
                rules_time(f->waiting_ns, a), rules_time(communication_moving_ns(f), b));
}

static void add_row(struct table *table, const struct communication_figure *f, uint16_t device)
{
    table_cell(table, "%u", (unsigned)device);
    table_number(table, f->collectives, 4);
    table_cell(table, "%.2f", f->total_ns / 1e3);
    table_cell(table, "%.2f", f->exposed_ns / 1e3);
    if (isnan(f->waiting_ns))
        table_cell(table, "%s", "");
    else
        table_cell(table, "%.2f", f->waiting_ns / 1e3);
    table_cell(table, "%.1f", 100 * f->exposed_ns / f->window_ns);
}

enum sol_status profile_ranks_print(const struct trace_communication *c, uint16_t device,
                                    double each, const char *per, FILE *to)
{
    struct communication_figure f;
    struct table *table;
    char columns[200];
    if (!communication_figure_of(c, device, each, &f)) return SOL_OK;
    print_sentence(&f, device, per, to);
    snprintf(columns, sizeof columns,
             ">rank|>-collectives|>us in them|>exposed us|>waiting us|>%% of the %s", per);
    SOL_TRY(table_create(columns, &table));
    for (size_t i = 0; i < c->n_ranks; i++) {
        communication_figure_of(c, c->ranks[i].device, each, &f);
        add_row(table, &f, c->ranks[i].device);
    }
    table_print(table, TABLE_TEXT, to);
    table_destroy(table);
    return SOL_OK;
}
