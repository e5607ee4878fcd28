/* `sol chat`: on a terminal a conversation, else one message and its answer. */
#include "cli/chat_talk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/interrupt.h"
#include "base/progress.h"
#include "base/status.h"
#include "base/suggest.h"
#include "cli/input.h"
#include "cli/line_editor.h"
#include "tok/pretokenize.h"

enum { MESSAGE_MAX = 64 << 20 };

/* ---- the first message ---- */

static enum sol_status check_text(const char *name, const char *data, size_t length)
{
    uint32_t code;
    int size = 0;
    for (size_t at = 0; at < length; at += (size_t)size) {
        size = utf8_decode(data + at, length - at, &code);
        if (size <= 0 || code == 0)
            return status_set(SOL_E_FORMAT, "%s is no text in UTF-8: byte %zu is 0x%02x", name,
                              at + 1, (unsigned char)data[at]);
    }
    return SOL_OK;
}

/* Parts of it have an empty line between them. */
static enum sol_status add_part(struct text_buffer *message, const char *name, const char *data,
                                size_t length)
{
    SOL_TRY(check_text(name, data, length));
    while (length && data[length - 1] == '\n') length--;
    if (length == 0) return SOL_OK;
    if (message->length) text_puts(message, "\n\n");
    text_put(message, data, length);
    return SOL_OK;
}

/* Who meant a verb need not wait for a model to hear that there is no such file. */
static enum sol_status explain(enum sol_status status, const char *name)
{
    static const char *const verbs[] = {"render", "parse"};
    const char *near = access(name, F_OK) ? suggest_name(name, verbs, 2) : NULL;
    if (!near) return status;
    return status_set(SOL_E_IO, "cannot open '%s'; did you mean sol chat %s?", name, near);
}

static enum sol_status add_file(struct text_buffer *message, const char *name)
{
    char *data;
    size_t length;
    enum sol_status status = input_read(name, MESSAGE_MAX, &data, &length);
    if (status != SOL_OK) return explain(status, name);
    status = add_part(message, strcmp(name, "-") == 0 ? "standard input" : name, data, length);
    free(data);
    return status;
}

static enum sol_status read_message(const struct chat *chat, const char *const *files, int n_files,
                                    struct text_buffer *message)
{
    const struct chat_options *o = chat->options;
    bool input = chat->terminal || isatty(STDIN_FILENO);
    if (o->system) SOL_TRY(check_text("--system", o->system, strlen(o->system)));
    if (o->prompt) SOL_TRY(add_part(message, "-p", o->prompt, strlen(o->prompt)));
    for (int i = 0; i < n_files; i++) {
        input = input || strcmp(files[i], "-") == 0;
        SOL_TRY(add_file(message, files[i]));
    }
    if (!input) SOL_TRY(add_file(message, "-"));
    SOL_TRY(text_check(message, "the message"));
    if (message->length || chat->terminal) return SOL_OK;
    return status_set(SOL_E_ARGUMENT,
                      "there is no message: use -p, name a file, or pipe a text in; a conversation "
                      "needs a terminal for input and output");
}

/* ---- a conversation ---- */

/* The history of lines: $XDG_STATE_HOME/sol/chat_history. */
static bool history_path(char path[4096])
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    bool given = state && *state;
    if (!given && !(home && *home)) return false;
    return snprintf(path, 4096, "%s%s/sol/chat_history", given ? state : home,
                    given ? "" : "/.local/state") < 4096;
}

/* A line, and those that follow it where it ends in a backslash. */
static enum sol_status read_lines(struct line_editor *editor, struct text_buffer *message,
                                  enum line_end *end)
{
    const char *line;
    message->length = 0;
    for (const char *prompt = "> ";; prompt = ". ") {
        SOL_TRY(line_editor_read(editor, prompt, &line, end));
        size_t length = strlen(line);
        bool more = *end == LINE_READ && length && line[length - 1] == '\\';
        if (*end == LINE_READ && *line) line_editor_add(editor, line);
        text_put(message, line, length - more);
        if (!more) break;
        text_puts(message, "\n");
    }
    text_put(message, "", 1);
    SOL_TRY(text_check(message, "the message"));
    message->length--;
    return SOL_OK;
}

/* What cut the answer short, if it was. */
static const char *cut(const struct chat *chat)
{
    enum session_end end = chat->stats.last.end;
    if (end == SESSION_INTERRUPTED) return "stopped";
    if (end == SESSION_LENGTH) return "stopped: as many tokens as -n allows";
    if (end == SESSION_CONTEXT) return "stopped: the context is full";
    return NULL;
}

/* An error of one turn is no end of the conversation. */
static void say(struct chat *chat, struct chat_text text)
{
    interrupt_hold(true);
    enum sol_status status = chat_reply(chat, text);
    bool stopped = interrupt_take();
    interrupt_hold(false);
    if (status == SOL_E_INTERRUPTED && stopped)
        puts("(stopped before the answer began; the message is not kept)");
    else if (status != SOL_OK)
        fprintf(stderr, "sol: error: %s\n", sol_last_error());
    else if (cut(chat))
        printf("(%s)\n", cut(chat));
    if (chat->show.status != SOL_OK) chat->over = true;
}

static enum sol_status converse(struct chat *chat, struct line_editor *editor)
{
    struct text_buffer message = {0};
    enum sol_status status = SOL_OK;
    while (!chat->over && status == SOL_OK) {
        enum line_end end = LINE_READ;
        status = interrupt_check();
        if (status == SOL_OK) status = read_lines(editor, &message, &end);
        if (status != SOL_OK) break;
        struct chat_text text = text_of(&message);
        if (end == LINE_OVER)
            chat->over = true;
        else if (end == LINE_STOPPED && text.length == 0)
            puts("Ctrl-D or /quit leaves, /help says more.");
        else if (end == LINE_READ && text.length && *text.data == '/')
            chat_command(chat, text.data);
        else if (end == LINE_READ && strspn(text.data, " \t\n") < text.length)
            say(chat, text);
    }
    text_buffer_free(&message);
    return status == SOL_OK ? chat->show.status : status;
}

/* That a text was cut is said, as nothing in a pipe shows it. */
static enum sol_status answer(struct chat *chat, struct chat_text message)
{
    SOL_TRY(chat_reply(chat, message));
    SOL_TRY(interrupt_check());
    if (cut(chat) && !chat->stats.answered)
        progress_note("no answer: %s, and all went to reasoning; see --effort and --thinking",
                      cut(chat));
    else if (cut(chat))
        progress_note("the answer is cut: %s", cut(chat));
    return SOL_OK;
}

static enum sol_status talk(struct chat *chat, struct chat_text message)
{
    char path[4096];
    struct line_editor *editor;
    if (!chat->terminal) return answer(chat, message);
    progress_note("/help lists commands, Ctrl-C stops an answer, Ctrl-D leaves");
    if (message.length) say(chat, message);
    SOL_TRY(line_editor_create(history_path(path) ? path : NULL, &editor));
    enum sol_status status = converse(chat, editor);
    line_editor_destroy(editor);
    return status;
}

static enum sol_status check_usage(const struct chat_options *o)
{
    if (o->analysis || o->types || o->turn || o->date || o->role || o->tools.count || o->training ||
        o->mask || o->lines || o->steps)
        return status_set(
            SOL_E_ARGUMENT,
            "--turn, --analysis, --types, --date, --tool, --training, --mask, --role, "
            "--steps and --lines go with sol chat render or parse");
    return SOL_OK;
}

enum sol_status chat_talk(struct chat_options *o, const char *const *files, int n_files)
{
    struct text_buffer message = {0};
    struct chat chat = {.options = o};
    chat.terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !o->json;
    chat_show_init(&chat.show, o);
    enum sol_status status = check_usage(o);
    if (status == SOL_OK) status = read_message(&chat, files, n_files, &message);
    if (status == SOL_OK) status = chat_open(&chat, o);
    if (status == SOL_OK) status = talk(&chat, text_of(&message));
    chat_close(&chat, o);
    text_buffer_free(&message);
    return status;
}
