/* What a grammar is made of, for those who read it: the matcher. */
#ifndef GRAMMAR_GRAMMAR_PRIVATE_H
#define GRAMMAR_GRAMMAR_PRIVATE_H

#include "grammar/grammar.h"
#include "grammar/program.h"

struct grammar {
    struct program program;
};

#endif
