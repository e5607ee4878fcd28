/* Prints a model's profile. */
#ifndef PROFILE_PRINT_H
#define PROFILE_PRINT_H

#include <stdio.h>

#include "profile/model.h"

struct profile_print {
    const struct profile_result *result;
    const struct ceiling *ceiling; /* all zero: not measured */
    const char *model, *run;       /* run: its id, NULL when it was not kept */
    bool layers;                   /* text: also layer x op */
};

enum sol_status profile_print_text(const struct profile_print *p, FILE *to);
/* One table of all rows: phase, depth, layer, op... */
enum sol_status profile_print_csv(const struct profile_print *p, FILE *to);
/* {"schema": "sol.profile.model.1", ...}; a new reference, NULL without memory. */
json_t *profile_print_json(const struct profile_print *p);

#endif
