/* Files of other tools: SQLite exports, CSV, JSON. What is accepted can be judged and freed; what
 * is not says why. */
#include "import/import.h"

#include <stdbool.h>
#include <string.h>

#include "advise/rules.h"
#include "base/status.h"
#include "support/fuzz.h"
#include "trace/window.h"

static void judge(const struct import *import)
{
    struct trace_window_set windows = {0};
    struct rules_report report;
    struct rules_input input = {.timeline = import->timeline, .counters = &import->counters};
    if (import->timeline) {
        FUZZ_REQUIRE(trace_windows_find(import->timeline, NULL, &windows) == SOL_OK);
        input.windows = &windows;
    }
    FUZZ_REQUIRE(rules_run(&input, NULL, &report) == SOL_OK);
    FUZZ_REQUIRE(report.todo[0] != '\0');
    for (size_t i = 0; i < report.count; i++) FUZZ_REQUIRE(report.findings[i].ceiling_ns >= 0);
    rules_report_free(&report);
    trace_windows_free(&windows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct import *import;
    enum sol_status status = import_memory(data, size, "input", &import);
    /* SQLite may ask for as much memory as a damaged file says it needs. */
    FUZZ_REQUIRE(status == SOL_OK || status == SOL_E_FORMAT || status == SOL_E_MEMORY);
    FUZZ_REQUIRE((status == SOL_OK) == (import != NULL));
    if (status == SOL_OK)
        judge(import);
    else
        FUZZ_REQUIRE(strstr(sol_last_error(), "input"));
    import_destroy(import);
    return 0;
}
