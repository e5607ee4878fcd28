#include "base/suggest.h"

#include <stdbool.h>
#include <string.h>

enum { WORD_MAX = 48 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Insertions, deletions, substitutions and swaps of neighbours that turn a into b. */
static int edit_distance(const char *a, const char *b)
{
    int n = (int)strlen(a), m = (int)strlen(b);
    int d[WORD_MAX + 1][WORD_MAX + 1];
    for (int i = 0; i <= n; i++) d[i][0] = i;
    for (int j = 0; j <= m; j++) d[0][j] = j;
    for (int i = 1; i <= n; i++) {
        for (int j = 1; j <= m; j++) {
            int cost = least(least(d[i - 1][j], d[i][j - 1]) + 1,
                             d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                cost = least(cost, d[i - 2][j - 2] + 1);
            d[i][j] = cost;
        }
    }
    return d[n][m];
}

/* The only name that begins with `word`. */
static const char *only_completion(const char *word, const char *const *names, size_t count)
{
    const char *found = NULL;
    for (size_t i = 0; i < count; i++) {
        if (strncmp(names[i], word, strlen(word)) != 0) continue;
        if (found) return NULL;
        found = names[i];
    }
    return found;
}

const char *suggest_name(const char *word, const char *const *names, size_t count)
{
    size_t length = strlen(word);
    if (length == 0 || length > WORD_MAX) return NULL;
    const char *best = NULL;
    int best_distance = length < 3 ? 2 : (int)length / 3 + 1; /* must be below */
    for (size_t i = 0; i < count; i++) {
        if (strlen(names[i]) > WORD_MAX) continue;
        int distance = edit_distance(word, names[i]);
        if (distance < best_distance) {
            best = names[i];
            best_distance = distance;
        }
    }
    return best ? best : only_completion(word, names, count);
}
