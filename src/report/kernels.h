/* "Where the time goes": one block per test and phase. Private to the room. */
#ifndef REPORT_KERNELS_H
#define REPORT_KERNELS_H

#include "report/html.h"
#include "report/run_data.h"

/* With its heading; says in one line when the run has no kernels. */
void kernels_section(struct html *html, const struct run_data *data);

#endif
