/* A store with fixed contents that show everything a report can show. Needs an empty folder. */
#ifndef TESTS_SUPPORT_REPORT_FIXTURE_H
#define TESTS_SUPPORT_REPORT_FIXTURE_H

#include "base/status.h"

/* Runs, by label:
 *   good      a benchmark with everything: ratings, limits, kernels, advice
 *   invalid   the same, not valid, with a wrong kernel count
 *   bare      no metrics at all
 *   hostile   markup, control characters, broken UTF-8 and endless names wherever text may be
 *   large     2000 kernels, 40 tests
 *   trace     a profile: steps, kernels without costs, gaps
 *   change    a comparison
 * and 14 benchmarks with iterations and a ledger of predictions between them. */
enum sol_status report_fixture_write(const char *folder);

#endif
