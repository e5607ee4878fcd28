/* The tree is written down depth first, so that a walk reads forward, and leaves a subtree out by
 * adding its size. There are two: of tokens that are whole characters without need of an escape in
 * JSON (`plain`), which inside a string are legal as far as its length allows, and of the rest. */
#ifndef GRAMMAR_TOKEN_TRIE_PRIVATE_H
#define GRAMMAR_TOKEN_TRIE_PRIVATE_H

#include "grammar/token_trie.h"

struct trie_node {
    uint32_t size_byte; /* nodes of the subtree, this one too, times 256, and the byte */
    int32_t token;      /* that ends here; -1 for none */
};

struct trie_part {
    struct trie_node *nodes;
    uint32_t count, depth; /* depth: bytes of the longest token */
};

/* Of plain tokens with at most `characters` characters. */
struct plain_mask {
    uint32_t characters;
    uint32_t *bits;
};

struct token_trie {
    const struct tokenizer *tokenizer;
    size_t vocab, words;
    struct trie_part plain, rest;
    struct plain_mask *masks; /* of ever more characters; the last is of all */
    size_t n_masks;
    uint32_t longest; /* bytes */
    int32_t *twins;   /* per id: another token of the same bytes, or -1; NULL when there is none */
};

#endif
