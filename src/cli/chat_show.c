/* What a model writes, as it comes: on a terminal, into a pipe, or as lines of JSON. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/escape.h"
#include "base/json_value.h"
#include "base/status.h"
#include "cli/chat_talk.h"

static const char *const parts[] = {[TURN_REASONING] = "reasoning",
                                    [TURN_PREAMBLE] = "preamble",
                                    [TURN_ANSWER] = "answer",
                                    [TURN_CALL] = "call"};
static const char dim[] = "\x1b[2m", plain[] = "\x1b[0m", waiting[] = "thinking ...",
                  no_waiting[] = "\r\x1b[K";

void chat_show_init(struct chat_show *show, const struct chat_options *o)
{
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    bool asked = o->reasoning && strcmp(o->reasoning, "show") == 0;
    *show = (struct chat_show){.json = o->json, .terminal = isatty(STDOUT_FILENO) && !o->json};
    show->styled = show->terminal && term && strcmp(term, "dumb") != 0 && !(no_color && *no_color);
    show->reasoning = o->reasoning ? asked : show->terminal || show->json;
}

void chat_show_free(struct chat_show *show)
{
    text_buffer_free(&show->answer);
    text_buffer_free(&show->thoughts);
}

/* ---- writing ---- */

static void put(struct chat_show *show, FILE *to, const char *data, size_t length)
{
    if (show->status != SOL_OK || length == 0) return;
    show->open = data[length - 1] != '\n';
    if (fwrite(data, 1, length, to) != length || fflush(to) != 0)
        show->status = status_set(SOL_E_IO, "cannot write the answer: %s", strerror(errno));
}

/* Takes NULL. */
static void put_json(struct chat_show *show, json_t *line)
{
    if (show->status == SOL_OK && !line)
        show->status = status_set(SOL_E_MEMORY, "no memory for the JSON result");
    if (show->status == SOL_OK && (json_dumpf(line, stdout, JSON_REAL_PRECISION(10)) != 0 ||
                                   putchar('\n') == EOF || fflush(stdout) != 0))
        show->status = status_set(SOL_E_IO, "cannot write the answer: %s", strerror(errno));
    json_decref(line);
}

/* ---- messages ---- */

static void begin(struct chat_show *show, const struct turn_event *event)
{
    bool thoughts = event->part == TURN_REASONING;
    show->to = !thoughts ? stdout : !show->reasoning ? NULL : show->terminal ? stdout : stderr;
    if (show->styled && thoughts) escape_not(stdout, dim);
    if (show->styled && thoughts && !show->to) escape_not(stdout, waiting);
    if (!show->styled && show->terminal && show->to) {
        const char *name = parts[event->part];
        put(show, show->to, "[", 1);
        put(show, show->to, name, strlen(name));
        put(show, show->to, "]\n", 2);
    }
}

static void end(struct chat_show *show, const struct turn_event *event)
{
    bool thoughts = event->part == TURN_REASONING;
    if (show->styled && thoughts && !show->to) escape_not(stdout, no_waiting);
    if (show->to && show->open) put(show, show->to, "\n", 1);
    if (show->styled && thoughts) escape_not(stdout, plain);
    if (show->styled && thoughts && show->to) put(show, show->to, "\n", 1);
}

static void keep(struct chat_show *show, const struct turn_event *event)
{
    if (event->part == TURN_REASONING && !show->reasoning) return;
    struct text_buffer *to = event->part == TURN_REASONING ? &show->thoughts : &show->answer;
    if (event->began && to->length) text_puts(to, "\n");
    text_put_text(to, event->delta);
    if (event->delta.length)
        put_json(show, json_pack("{s:s, s:s%}", "part", parts[event->part], "text",
                                 event->delta.data, event->delta.length));
}

bool chat_show_event(struct chat_show *show, const struct turn_event *event)
{
    if (event->message < 0) return true;
    if (show->json) {
        keep(show, event);
        return show->status == SOL_OK;
    }
    if (event->began) begin(show, event);
    if (show->to) put(show, show->to, event->delta.data, event->delta.length);
    if (event->ended) end(show, event);
    return show->status == SOL_OK;
}

/* ---- the end of a turn ---- */

static json_t *end_json(const struct chat *chat)
{
    static const char *const ends[] = {[SESSION_STOP] = "stop",
                                       [SESSION_LENGTH] = "length",
                                       [SESSION_CONTEXT] = "context",
                                       [SESSION_STOPPED] = "stopped",
                                       [SESSION_INTERRUPTED] = "interrupted"};
    const struct chat_stats *s = &chat->stats;
    const struct session_result *r = &s->last;
    json_t *timings =
        json_pack("{s:f, s:f, s:f, s:f}", "load_s", chat->load_s, "first_token_s", s->first_token_s,
                  "prompt_s", r->prompt_s, "generate_s", r->generate_s);
    json_t *draft = chat->drafting.draft ? draft_json(chat->options->draft.most, &r->counts) : NULL;
    return json_pack(
        "{s:s, s:s%, s:s%, s:i, s:{s:I, s:I, s:I, s:I, s:b}, s:o, s:o, s:o, s:o, s:o*}", "end",
        ends[r->end], "answer", text_of(&chat->show.answer).data, chat->show.answer.length,
        "reasoning", text_of(&chat->show.thoughts).data, chat->show.thoughts.length, "malformed",
        (int)s->faults, "tokens", "prompt", (json_int_t)r->prompt, "cached", (json_int_t)r->cached,
        "generated", (json_int_t)r->generated, "reasoning", (json_int_t)s->counts.reasoning,
        "reasoning_cut", s->counts.cut, "timings", timings, "model", model_json(chat->model),
        "sampling", sampling_json(&chat->sampling), "settings", engine_settings_json(&chat->params),
        "draft", draft);
}

enum sol_status chat_show_end(struct chat *chat)
{
    struct chat_show *show = &chat->show;
    SOL_TRY(show->status);
    if (!show->json) return SOL_OK;
    SOL_TRY(text_check(&show->answer, "the answer"));
    SOL_TRY(text_check(&show->thoughts, "the reasoning"));
    put_json(show, end_json(chat));
    return show->status;
}
