/* "Where the time goes": one block per test and phase. Private to the room. */
#ifndef REPORT_KERNELS_H
#define REPORT_KERNELS_H

#include "report/html.h"
#include "report/run_data.h"

bool kernels_timed(const struct run_data *data);  /* there is something to show in full */
bool kernels_others(const struct run_data *data); /* and something to fold up, below id "more" */
/* With headings; nothing where the run has no kernels. */
void kernels_section(struct html *html, const struct run_data *data);

#endif
