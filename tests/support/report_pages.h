/* More runs for the report's tests, by label; called by report_fixture_write.
 *   one       one test, no kernels
 *   fifty     fifty tests with all that stands beside them, no times of kernels
 *   long      a profile whose kernels have names of 2000 characters that differ near their end
 *   layers    a model's profile: layers, ops, two depths; much advice for two phases
 *   REPORT_LABEL   a label and a note of markup and quotes
 *   evil      markup, quotes and control characters in a trace, in layers and in a comparison's
 * blame */
#ifndef TESTS_SUPPORT_REPORT_PAGES_H
#define TESTS_SUPPORT_REPORT_PAGES_H

#include "store/store.h"

#define REPORT_LABEL "</title><script>\"'&amp;<b onx=1>"

enum sol_status report_pages_write(struct store *store, const char *environment);

#endif
