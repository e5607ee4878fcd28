/* The o200k split: cuts text into the pieces that BPE then works on, one at a time. The pattern is
 *
 *   [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
 *   |[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
 *   |\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
 *
 * with leftmost-first alternatives and backtracking, as tiktoken has it (source:
 * tiktoken_ext/openai_public, o200k_base). Bytes that are no valid UTF-8 are pieces of one byte
 * each; text ends before them. */
#ifndef TOK_PRETOKENIZE_H
#define TOK_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length in bytes of the first piece of `text`; `length` > 0. Walking a text piece by piece takes
 * time linear in its length. */
size_t pretokenize_next(const char *text, size_t length);

/* The same where more text may follow: 0 when the piece may depend on it. */
size_t pretokenize_next_part(const char *text, size_t length);

/* Whether a piece ends before text[at], `at` > 0, whatever surrounds the two characters: behind a
 * line end that neither white space nor a slash follows. (A piece with a line end in it is
 * punctuation, line ends and slashes, or white space up to its last line end.) */
static inline bool pretokenize_is_cut(const char *text, size_t at)
{
    unsigned char c = (unsigned char)text[at];
    return text[at - 1] == '\n' && c > ' ' && c < 0x7f && c != '/';
}

/* The pattern above as one regular expression. */
extern const char pretokenize_pattern[];

/* Reads one character of UTF-8. Returns its 1 to 4 bytes and *code; 0 when the `length` bytes are
 * the beginning of a character that goes on beyond them; -1 when no character begins with them. */
int utf8_decode(const char *text, size_t length, uint32_t *code);

#endif
