/* libedit reads through get_char, so that Ctrl-C ends a line at once, and the terminal's bytes are
 * UTF-8 whatever the locale is. */
#include "cli/line_editor.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/status.h"
#include "chat/text.h"
#include "cli/input.h"
#include "driver/library.h"
#include "format/output_file.h"
#include "tok/pretokenize.h"

enum {
    HISTORY_LINES = 1000, /* that are kept in memory; the file has up to twice as many */
    HISTORY_BYTES = 16 << 20,
    PROMPT_MAX = 32,
    WAIT_MS = 250, /* between looks at signals that came to another thread */
};

/* ---- libedit ---- */

/* Of libedit's histedit.h. */
enum {
    EL_PROMPT = 0,
    EL_EDITOR = 2,
    EL_BIND = 4,
    EL_HIST = 10,
    EL_GETCFN = 13,
    EL_PREP_TERM = 16,
    H_SETSIZE = 1,
    H_ENTER = 10,
    H_SETUNIQUE = 20,
};

struct libedit_line {
    const wchar_t *buffer, *cursor, *end;
};

struct libedit_event {
    int number;
    const wchar_t *text;
};

struct libedit {
#define LIBEDIT_FUNCTION(field, symbol, type, parameters) type(*field) parameters;
#include "cli/libedit_functions.list"
#undef LIBEDIT_FUNCTION
};

static const struct library_symbol symbols[] = {
#define LIBEDIT_FUNCTION(field, symbol, type, parameters)                                          \
    {symbol, offsetof(struct libedit, field), false},
#include "cli/libedit_functions.list"
#undef LIBEDIT_FUNCTION
};

struct line_editor {
    struct libedit api;
    void *editor, *history; /* NULL: plain lines */
    FILE *out;              /* the terminal, past what escapes stdout */
    wchar_t prompt[PROMPT_MAX];
    struct text_buffer line;
    char *path; /* of the history; NULL: none */
};

/* ---- characters ---- */

/* 1: a byte, 0: there are no more, -1: a signal. */
static int next_byte(unsigned char *byte)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    for (;;) {
        if (interrupt_requested()) return -1;
        int ready = poll(&input, 1, WAIT_MS);
        if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
        ssize_t n = ready < 0 ? 0 : read(STDIN_FILENO, byte, 1);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        return n == 1;
    }
}

/* As next_byte. */
static int read_char(wchar_t *out)
{
    char bytes[4];
    size_t n = 0;
    uint32_t code = 0;
    int size = 0;
    while (size == 0 && n < sizeof bytes) {
        unsigned char byte;
        int got = next_byte(&byte);
        if (got <= 0) return got;
        bytes[n++] = (char)byte;
        size = utf8_decode(bytes, n, &code);
    }
    *out = size > 0 ? (wchar_t)code : 0xfffd;
    return 1;
}

static void put_char(struct text_buffer *to, uint32_t c)
{
    char bytes[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; c >>= 6) bytes[i] = (char)(0x80 | (c & 0x3f));
    bytes[0] = (char)(leads[n] | c);
    text_put(to, bytes, n);
}

static void put_wide(struct text_buffer *to, const wchar_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t c = (uint32_t)from[i];
        put_char(to, c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0xfffd : c);
    }
}

/* NULL without memory. */
static wchar_t *to_wide(const char *text)
{
    size_t length = strlen(text), n = 0;
    wchar_t *wide = calloc(length + 1, sizeof *wide);
    for (size_t at = 0; wide && at < length;) {
        uint32_t code;
        int size = utf8_decode(text + at, length - at, &code);
        wide[n++] = size > 0 ? (wchar_t)code : 0xfffd;
        at += size > 0 ? (size_t)size : 1;
    }
    return wide;
}

/* ---- history ---- */

static void remember(struct line_editor *e, const char *line)
{
    struct libedit_event event;
    if (!e->editor) return;
    wchar_t *wide = to_wide(line);
    if (wide) e->api.history(e->history, &event, H_ENTER, wide);
    free(wide);
}

/* Where the newest HISTORY_LINES begin; the whole of a file that has not twice as many. */
static char *newest(char *text, char *end)
{
    char *at = text;
    size_t lines = 0;
    for (char *c = end; c > text; c--)
        if (c[-1] == '\n' && lines++ == HISTORY_LINES) at = c;
    return lines < 2 * HISTORY_LINES ? text : at;
}

/* What a full disk cut, and what is too old, goes. */
static enum sol_status read_history(struct line_editor *e)
{
    struct stat info;
    char *text;
    size_t length;
    if (stat(e->path, &info) != 0 && errno == ENOENT) return SOL_OK;
    SOL_TRY(input_read(e->path, HISTORY_BYTES, &text, &length));
    char *cut = length ? memrchr(text, '\n', length) : NULL;
    char *end = cut ? cut + 1 : text, *from = newest(text, end);
    enum sol_status status = SOL_OK;
    if (end - from != (ptrdiff_t)length)
        status = output_file_text(e->path, from, (size_t)(end - from));
    for (char *line = from, *next; line < end; line = next + 1) {
        next = memchr(line, '\n', (size_t)(end - line));
        *next = '\0';
        if (*line) remember(e, line);
    }
    free(text);
    return status;
}

static enum sol_status open_history(struct line_editor *e, const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    SOL_TRY(file_make_folder(folder));
    e->path = strdup(path);
    if (!e->path) return status_set(SOL_E_MEMORY, "no memory for a path");
    return read_history(e);
}

void line_editor_add(struct line_editor *e, const char *line)
{
    struct text_buffer all = {0};
    remember(e, line);
    if (!e->path) return;
    text_puts(&all, line);
    text_puts(&all, "\n");
    int fd = open(e->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
    /* In one piece, so that lines of several programs do not mix. */
    if (fd >= 0 && !all.failed && write(fd, all.data, all.length) < 0)
        LOG_WARN("the history '%s' cannot be written: %s", e->path, strerror(errno));
    if (fd >= 0) close(fd);
    text_buffer_free(&all);
}

/* ---- creation ---- */

/* The editor that `editor` belongs to; libedit calls with its own pointer only. */
static struct line_editor *current;

static wchar_t *show_prompt(void *editor)
{
    (void)editor;
    return current->prompt;
}

/* What was typed before a signal is gone once libedit has returned. */
static int get_char(void *editor, wchar_t *out)
{
    int got = read_char(out);
    const struct libedit_line *typed = got < 0 ? current->api.line(editor) : NULL;
    if (typed) put_wide(&current->line, typed->buffer, (size_t)(typed->end - typed->buffer));
    return got;
}

static enum sol_status open_editor(struct line_editor *e)
{
    struct libedit_event event;
    e->editor = e->api.init("sol", stdin, e->out, e->out);
    e->history = e->editor ? e->api.history_init() : NULL;
    if (!e->history) return status_set(SOL_E_MEMORY, "libedit does not start");
    e->api.history(e->history, &event, H_SETSIZE, HISTORY_LINES);
    e->api.history(e->history, &event, H_SETUNIQUE, 1);
    e->api.set(e->editor, EL_PROMPT, show_prompt);
    e->api.set(e->editor, EL_EDITOR, L"emacs");
    e->api.set(e->editor, EL_BIND, L"^R", L"em-inc-search-prev", (wchar_t *)NULL);
    e->api.set(e->editor, EL_HIST, e->api.history, e->history);
    e->api.set(e->editor, EL_GETCFN, get_char);
    return SOL_OK;
}

static enum sol_status open_all(struct line_editor *e, const char *history)
{
    char why[LIBRARY_REASON_MAX];
    const char *named = getenv("SOL_LIBEDIT");
    const char *const names[] = {named && *named ? named : "libedit.so.2", NULL};
    const struct library_spec spec = {"libedit", names, symbols, sizeof symbols / sizeof *symbols};
    e->out = fdopen(dup(STDOUT_FILENO), "w");
    if (!e->out) return status_set(SOL_E_IO, "cannot write to the terminal: %s", strerror(errno));
    setlocale(LC_CTYPE, "C.UTF-8");
    if (library_load(&spec, &e->api, why))
        SOL_TRY(open_editor(e));
    else
        progress_note("lines cannot be edited: %s; install libedit2", why);
    if (history && open_history(e, history) != SOL_OK) LOG_WARN("no history: %s", sol_last_error());
    return SOL_OK;
}

enum sol_status line_editor_create(const char *history, struct line_editor **out)
{
    *out = NULL;
    struct line_editor *e = calloc(1, sizeof *e);
    if (!e) return status_set(SOL_E_MEMORY, "no memory to read lines");
    enum sol_status status = open_all(e, history);
    if (status != SOL_OK) {
        line_editor_destroy(e);
        return status;
    }
    *out = e;
    return SOL_OK;
}

void line_editor_destroy(struct line_editor *e)
{
    if (!e) return;
    if (e->editor) e->api.end(e->editor);
    if (e->history) e->api.history_end(e->history);
    if (e->out) fclose(e->out);
    text_buffer_free(&e->line);
    free(e->path);
    free(e);
}

/* ---- reading ---- */

static enum line_end edit_line(struct line_editor *e, const char *prompt)
{
    int count = 0;
    for (size_t i = 0; i < PROMPT_MAX - 1 && (e->prompt[i] = (unsigned char)prompt[i]); i++) {
    }
    current = e;
    e->api.resize(e->editor);
    e->api.set(e->editor, EL_PREP_TERM, 1); /* before the prompt: who sees it may type */
    const wchar_t *line = e->api.gets(e->editor, &count);
    if (line && count > 0 && line[count - 1] == L'\n') {
        put_wide(&e->line, line, (size_t)count - 1);
        return LINE_READ;
    }
    fputc('\n', e->out);
    fflush(e->out);
    return LINE_OVER;
}

static enum line_end plain_line(struct line_editor *e, const char *prompt)
{
    wchar_t c;
    fputs(prompt, e->out);
    fflush(e->out);
    while (read_char(&c) == 1) {
        if (c == L'\n') return LINE_READ;
        put_wide(&e->line, &c, 1);
    }
    fputc('\n', e->out);
    fflush(e->out);
    return LINE_OVER;
}

enum sol_status line_editor_read(struct line_editor *e, const char *prompt, const char **line,
                                 enum line_end *end)
{
    e->line.length = 0;
    *end = e->editor ? edit_line(e, prompt) : plain_line(e, prompt);
    if (interrupt_take()) *end = LINE_STOPPED;
    text_put(&e->line, "", 1);
    SOL_TRY(text_check(&e->line, "a line"));
    *line = e->line.data;
    return interrupt_check();
}
