/* Figures as people read them: three or four digits that count, round units. */
#ifndef REPORT_FIGURES_H
#define REPORT_FIGURES_H

#include <stdint.h>

enum { FIGURE_SIZE = 48 };

/* All return `text`; a dash for NaN and infinities. A no-break space stands before the unit. */
char *figure_number(double value, char text[FIGURE_SIZE]);               /* "12,345", "0.0123" */
char *figure_time(double ns, char text[FIGURE_SIZE]);                    /* "1.23 ms" */
char *figure_si(double value, const char *unit, char text[FIGURE_SIZE]); /* "1.23 GB/s" */
char *figure_bytes(double bytes, char text[FIGURE_SIZE]);                /* "1.23 GiB" */
char *figure_percent(double fraction, char text[FIGURE_SIZE]);           /* "71 %", "7.1 %" */
char *figure_change(double fraction, char text[FIGURE_SIZE]); /* "+7.1 %", U+2212 for minus */
char *figure_count(int64_t count, char text[FIGURE_SIZE]);    /* "12,345"; dash below 0 */
char *figure_date(int64_t ns, char text[FIGURE_SIZE]);        /* "21 Nov 2026, 04:10 UTC" */
char *figure_day(int64_t ns, char text[FIGURE_SIZE]);         /* "21 Nov" */

/* Takes away zeros behind the point, for the numbers of an axis: "2.00 ms" to "2 ms". */
char *figure_trim(char text[FIGURE_SIZE]);

/* A value of a metric by its unit: "ns..." as time, "bytes" as bytes, others with the unit behind.
 */
char *figure_value(double value, const char *unit, char text[FIGURE_SIZE]);

#endif
