/* What a fuzz target is: tests/fuzz_<input>.c defines LLVMFuzzerTestOneInput and includes this for
 * the prototype. `make fuzz T=seconds` links it with libFuzzer; the normal test build links it with
 * fuzz_replay.c, which runs the corpus in tests/fuzz_corpus/fuzz_<input>/ and mutations of it.
 * tests/fuzz_corpus/fuzz_<input>.dict has words for libFuzzer.
 *
 * A target takes any bytes, returns 0, keeps nothing from one call to the next, leaks nothing and
 * aborts when a promise is broken (FUZZ_REQUIRE). A case that once failed goes into the corpus. */
#ifndef TESTS_SUPPORT_FUZZ_H
#define TESTS_SUPPORT_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* assert() that stays in release builds. */
#define FUZZ_REQUIRE(condition)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);          \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
