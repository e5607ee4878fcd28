#include "report/figures.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define NBSP  "\xc2\xa0"
#define MINUS "\xe2\x88\x92"

static char *dash(char text[FIGURE_SIZE])
{
    return strcpy(text, "\xe2\x80\x93");
}

/* Digits of the whole part in groups of three: "1234567.8" to "1,234,567.8". */
static void group(const char *plain, char text[FIGURE_SIZE])
{
    size_t whole = strspn(plain + (*plain == '-'), "0123456789"), n = 0;
    if (*plain == '-') n = (size_t)snprintf(text, FIGURE_SIZE, MINUS);
    plain += *plain == '-';
    for (size_t i = 0; i < whole && n + 2 < FIGURE_SIZE; i++) {
        if (i && (whole - i) % 3 == 0) text[n++] = ',';
        text[n++] = plain[i];
    }
    snprintf(text + n, FIGURE_SIZE - n, "%s", plain + whole);
}

/* Decimals that leave `digits` digits that count. */
static int decimals_for(double value, int digits)
{
    double magnitude = fabs(value);
    if (magnitude == 0) return 0;
    int places = digits - 1 - (int)floor(log10(magnitude * 1.0005));
    return places < 0 ? 0 : places > 9 ? 9 : places;
}

char *figure_number(double value, char text[FIGURE_SIZE])
{
    char plain[FIGURE_SIZE];
    if (!isfinite(value)) return dash(text);
    if (fabs(value) >= 1e12 || (value != 0 && fabs(value) < 1e-6)) {
        snprintf(text, FIGURE_SIZE, "%.3g", value);
        return text;
    }
    snprintf(plain, sizeof plain, "%.*f", decimals_for(value, fabs(value) < 100 ? 3 : 4), value);
    group(plain, text);
    return text;
}

/* The largest step of `steps` (rising factors with their names) that leaves 1 or more. */
struct step {
    double factor;
    const char *name;
};

static char *scaled(double value, const struct step *steps, size_t n, const char *unit,
                    char text[FIGURE_SIZE])
{
    char number[FIGURE_SIZE];
    if (!isfinite(value)) return dash(text);
    size_t i = 0;
    while (i + 1 < n && fabs(value) >= 0.9995 * steps[i + 1].factor) i++;
    double shown = value / steps[i].factor;
    char grouped[FIGURE_SIZE];
    snprintf(number, sizeof number, fabs(shown) < 1e6 ? "%.*f" : "%.*e", decimals_for(shown, 3),
             shown);
    group(number, grouped);
    snprintf(text, FIGURE_SIZE, "%s" NBSP "%s%s", grouped, steps[i].name, unit);
    return text;
}

char *figure_time(double ns, char text[FIGURE_SIZE])
{
    static const struct step steps[] = {{1, "ns"},  {1e3, "\xc2\xb5s"}, {1e6, "ms"},
                                        {1e9, "s"}, {60e9, "min"},      {3600e9, "h"}};
    return scaled(ns, steps, sizeof steps / sizeof *steps, "", text);
}

char *figure_si(double value, const char *unit, char text[FIGURE_SIZE])
{
    static const struct step steps[] = {{1, ""},    {1e3, "k"},  {1e6, "M"},
                                        {1e9, "G"}, {1e12, "T"}, {1e15, "P"}};
    return scaled(value, steps, sizeof steps / sizeof *steps, unit, text);
}

char *figure_bytes(double bytes, char text[FIGURE_SIZE])
{
    static const struct step steps[] = {{1, "B"},
                                        {1024.0, "KiB"},
                                        {1048576.0, "MiB"},
                                        {1073741824.0, "GiB"},
                                        {1099511627776.0, "TiB"}};
    return scaled(bytes, steps, sizeof steps / sizeof *steps, "", text);
}

char *figure_percent(double fraction, char text[FIGURE_SIZE])
{
    if (!isfinite(fraction)) return dash(text);
    double percent = 100 * fraction;
    if (fabs(percent) >= 1e6) {
        snprintf(text, FIGURE_SIZE, "%.2g" NBSP "%%", percent);
        return text;
    }
    int places = fabs(percent) < 0.095 ? 2 : fabs(percent) < 9.95 ? 1 : 0;
    snprintf(text, FIGURE_SIZE, "%s%.*f" NBSP "%%", percent < 0 ? MINUS : "",
             percent == 0 ? 0 : places, fabs(percent));
    return text;
}

char *figure_change(double fraction, char text[FIGURE_SIZE])
{
    if (!isfinite(fraction)) return dash(text);
    double percent = fabs(100 * fraction);
    if (percent >= 1e6) return figure_percent(fraction, text);
    snprintf(text, FIGURE_SIZE, "%s%.*f" NBSP "%%",
             fraction < 0   ? MINUS
             : fraction > 0 ? "+"
                            : "",
             percent < 9.95 ? 1 : 0, percent);
    return text;
}

char *figure_count(int64_t count, char text[FIGURE_SIZE])
{
    char plain[FIGURE_SIZE];
    if (count < 0) return dash(text);
    snprintf(plain, sizeof plain, "%lld", (long long)count);
    group(plain, text);
    return text;
}

/* Without strftime: names of months are English whatever the user's locale is. */
static char *time_text(int64_t ns, bool day_only, char text[FIGURE_SIZE])
{
    static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    struct tm utc;
    time_t seconds = (time_t)(ns / 1000000000);
    if (ns <= 0 || !gmtime_r(&seconds, &utc)) return dash(text);
    if (day_only)
        snprintf(text, FIGURE_SIZE, "%d" NBSP "%s", utc.tm_mday, months[utc.tm_mon]);
    else
        snprintf(text, FIGURE_SIZE, "%d %s %d, %02d:%02d" NBSP "UTC", utc.tm_mday,
                 months[utc.tm_mon], 1900 + utc.tm_year, utc.tm_hour, utc.tm_min);
    return text;
}

char *figure_date(int64_t ns, char text[FIGURE_SIZE])
{
    return time_text(ns, false, text);
}

char *figure_day(int64_t ns, char text[FIGURE_SIZE])
{
    return time_text(ns, true, text);
}

char *figure_value(double value, const char *unit, char text[FIGURE_SIZE])
{
    char number[FIGURE_SIZE];
    if (!unit) unit = "";
    if (!isfinite(value)) return dash(text);
    if (strcmp(unit, "ns") == 0) return figure_time(value, text);
    if (strcmp(unit, "bytes") == 0) return figure_bytes(value, text);
    if (strncmp(unit, "ns/", 3) == 0) {
        figure_time(value, number);
        snprintf(text, FIGURE_SIZE, "%s%s", number, unit + 2);
        return text;
    }
    figure_number(value, number);
    snprintf(text, FIGURE_SIZE, "%s%s%s", number, *unit ? NBSP : "", unit);
    return text;
}

char *figure_trim(char text[FIGURE_SIZE])
{
    char *point = strchr(text, '.');
    if (!point) return text;
    char *end = point + 1 + strspn(point + 1, "0123456789"), *cut = end;
    while (cut[-1] == '0') cut--;
    if (cut[-1] == '.') cut--;
    memmove(cut, end, strlen(end) + 1);
    return text;
}
