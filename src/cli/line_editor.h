/* Lines that a user types at a terminal, standard input and output, with editing and a history
 * where libedit is. It is loaded when it is needed; without it lines are plain, which is said
 * once. */
#ifndef CLI_LINE_EDITOR_H
#define CLI_LINE_EDITOR_H

#include "sol/status.h"

struct line_editor;

/* `history`: a file, one line each, that is read now and gets every line that is added. Where it
 * cannot be used a warning says so. NULL: none. */
enum sol_status line_editor_create(const char *history, struct line_editor **out);
void line_editor_destroy(struct line_editor *e); /* takes NULL */

enum line_end {
    LINE_READ,
    LINE_STOPPED, /* Ctrl-C; *line is what there was by then */
    LINE_OVER,    /* Ctrl-D, or the terminal is gone */
};

/* The next line behind `prompt`, in UTF-8 and without its end, until the next call. Bytes that are
 * no UTF-8 are U+FFFD. Ctrl-C is taken (interrupt_take); SOL_E_INTERRUPTED for other signals. */
enum sol_status line_editor_read(struct line_editor *e, const char *prompt, const char **line,
                                 enum line_end *end);
/* Without memory or with a full disk it is not kept. */
void line_editor_add(struct line_editor *e, const char *line);

#endif
