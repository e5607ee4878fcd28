/* Layers of a model against its ops. Private to the room. */
#ifndef REPORT_LAYERS_H
#define REPORT_LAYERS_H

#include "report/html.h"
#include "report/run_data.h"

bool layers_known(const struct run_data *data); /* kernels were kept layer by layer, with times */
/* For each phase a table layer x op in time a token, shaded the stronger the longer, and where
 * there are two depths of context what each layer and each op takes more with every position. */
void layers_section(struct html *html, const struct run_data *data);

#endif
