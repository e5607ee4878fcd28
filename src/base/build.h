/* What this program was built from. */
#ifndef BASE_BUILD_H
#define BASE_BUILD_H

const char *build_commit(void); /* "abc123def"; "" for builds outside git */

#endif
