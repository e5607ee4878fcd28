#include "support/effort.h"

#include <stdio.h>
#include <stdlib.h>

static long percentage(void)
{
    const char *text = getenv("SOL_TEST_EFFORT");
    if (!text || !*text) return 100;
    char *end;
    long percent = strtol(text, &end, 10);
    if (*end || percent < 1 || percent > 100) {
        fprintf(stderr, "SOL_TEST_EFFORT is '%s'; it is a percentage from 1 to 100\n", text);
        exit(2);
    }
    return percent;
}

int64_t effort(const char *what, int64_t full, int64_t least)
{
    long percent = percentage();
    int64_t n = full * percent / 100;
    if (n < least) n = least;
    if (n >= full) return full;
    printf("reduced: %lld %s instead of %lld (SOL_TEST_EFFORT=%ld)\n", (long long)n, what,
           (long long)full, percent);
    fflush(stdout);
    return n;
}
