#include "bench/figures.h"

#include <math.h>
#include <stdio.h>

#include "model/architecture.h"

static double seconds_of(const struct bench_result *r)
{
    return r->speed.value * (double)r->tokens * 1e-9;
}

double bench_gigabytes_per_s(const struct bench_result *r)
{
    return r->cost.bytes * 1e-9 / seconds_of(r);
}

double bench_gigaflops(const struct bench_result *r)
{
    return r->cost.flops * 1e-9 / seconds_of(r);
}

static double memory_seconds(const struct ceiling *ceiling, const struct bench_result *r)
{
    double rate = ceiling_read_rate(ceiling);
    return rate > 0 ? r->cost.bytes / rate : (double)NAN;
}

static double arithmetic_seconds(const struct ceiling *ceiling, const struct bench_result *r)
{
    double seconds = 0;
    for (int n = 0; n < NUMERICS_COUNT; n++) {
        double rate = ceiling_flop_rate(ceiling, (enum op_numerics)n);
        if (rate <= 0) return (double)NAN;
        seconds += r->flops[n] / rate;
    }
    return seconds;
}

double bench_memory_percent(const struct ceiling *ceiling, const struct bench_result *r)
{
    return 100 * memory_seconds(ceiling, r) / seconds_of(r);
}

double bench_arithmetic_percent(const struct ceiling *ceiling, const struct bench_result *r)
{
    return 100 * arithmetic_seconds(ceiling, r) / seconds_of(r);
}

struct figure bench_speed(const struct ceiling *ceiling, const struct bench_result *r)
{
    struct figure speed = r->speed;
    double memory = memory_seconds(ceiling, r), arithmetic = arithmetic_seconds(ceiling, r);
    bool known = !isnan(memory) && !isnan(arithmetic);
    figure_set_limit(&speed, known ? 1e9 * fmax(memory, arithmetic) / (double)r->tokens : 0, false);
    return speed;
}

struct figure bench_rate(const struct ceiling *ceiling, const struct bench_result *r)
{
    struct figure speed = bench_speed(ceiling, r);
    return figure_per_second(&speed);
}

const char *bench_bound(const struct ceiling *ceiling, const struct bench_result *r)
{
    double memory = memory_seconds(ceiling, r), arithmetic = arithmetic_seconds(ceiling, r);
    if (isnan(memory) || isnan(arithmetic)) return "";
    return memory >= arithmetic ? "memory" : "arithmetic";
}

double bench_kernel_limit_ns(const struct ceiling *ceiling, const struct bench_kernel *k)
{
    double bytes = ceiling_read_rate(ceiling), flops = ceiling_flop_rate(ceiling, k->numerics);
    if (bytes <= 0 || flops <= 0) return (double)NAN;
    return 1e9 * fmax(k->cost.bytes / bytes, k->cost.flops / flops);
}

double bench_step_ns(const struct bench_result *r, double part)
{
    return r->n_steps ? samples_percentile(r->step_ns, r->n_steps, part) : (double)NAN;
}

bool bench_impossible(const struct ceiling *ceiling, const struct bench_result *r)
{
    return bench_speed(ceiling, r).reached > 1.05;
}

bool bench_too_few(const struct bench_result *r)
{
    return r->n_counted < BENCH_REPETITIONS;
}

bool bench_disturbed(const struct bench_result *r)
{
    if (r->watch.heat > 0) return true;
    /* The system counts in ticks of 10 ms. */
    if (r->watch.seconds < 0.2) return false;
    return r->watch.other_cores > 0.1 || r->watch.stolen_cores > 0.05 ||
           r->watch.throttled_share > 0.01;
}

char *bench_noise(const struct bench_result *r, char text[160])
{
    const struct watch_result *w = &r->watch;
    char half[24];
    text[0] = '\0';
    if (w->heat > 0)
        snprintf(text, 160, "heat held the device back");
    else if (bench_disturbed(r) && w->throttled_share > 0.01)
        snprintf(text, 160, "the CPU quota held it back for %.0f %% of the time",
                 100 * w->throttled_share);
    else if (bench_disturbed(r) && w->stolen_cores > 0.05)
        snprintf(text, 160, "%.1f cores were given to another guest", w->stolen_cores);
    else if (bench_disturbed(r))
        snprintf(text, 160, "other programs kept %.1f cores busy", w->other_cores);
    else if (r->speed.starts == 1 && figure_is_wide(&r->speed))
        snprintf(text, 160, "its 95 %% interval is +-%s %%",
                 figure_percent_text(r->speed.half, half));
    return text;
}

size_t bench_outliers(const struct bench_result *r)
{
    size_t count = 0;
    for (size_t i = 0; i < r->n_counted; i++) count += bench_counted(r)[i].outlier;
    return count;
}

size_t bench_repeated(const struct bench_result *r)
{
    size_t count = 0;
    for (size_t i = 0; i < r->n_counted; i++) count += bench_counted(r)[i].cause != NULL;
    return count;
}

char *bench_model_type(const struct model *model, char text[48])
{
    snprintf(text, 48, "%s %.4gB", model->config.arch->name, 1e-9 * (double)model->parameters);
    return text;
}
