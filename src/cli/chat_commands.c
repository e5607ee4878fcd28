/* The commands of a conversation: lines that begin with '/'. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/suggest.h"
#include "chat/opening.h"
#include "cli/chat_talk.h"

struct chat_verb {
    const char *name, *argument, *help;
    enum sol_status (*run)(struct chat *chat, const char *argument);
};

static enum sol_status run_help(struct chat *chat, const char *argument);

/* ---- what they do ---- */

static enum sol_status run_clear(struct chat *chat, const char *argument)
{
    (void)argument;
    SOL_TRY(chat_drop(chat, conversation_head(chat->conversation),
                      conversation_count(chat->conversation)));
    puts("The conversation is empty; the instructions stay.");
    return SOL_OK;
}

/* "~/" is the user's folder, as in a shell. */
static enum sol_status path_of(const char *argument, char path[4096])
{
    const char *home = getenv("HOME");
    bool tilde = strncmp(argument, "~/", 2) == 0 && home;
    if (!*argument) return status_set(SOL_E_ARGUMENT, "name a file");
    int length = snprintf(path, 4096, "%s%s", tilde ? home : "", argument + (tilde ? 1 : 0));
    return length < 4096 ? SOL_OK : status_set(SOL_E_ARGUMENT, "the file has too long a name");
}

static enum sol_status run_save(struct chat *chat, const char *argument)
{
    char path[4096];
    SOL_TRY(path_of(argument, path));
    SOL_TRY(session_save(chat->session, chat->conversation, path));
    printf("Saved as %s; /load brings it back, with what was computed.\n", path);
    return SOL_OK;
}

static enum sol_status run_load(struct chat *chat, const char *argument)
{
    char path[4096];
    struct conversation *c;
    SOL_TRY(path_of(argument, path));
    SOL_TRY(conversation_create(&c));
    enum sol_status status = session_load(chat->session, path, c);
    if (status != SOL_OK) {
        conversation_destroy(c);
        return status;
    }
    conversation_destroy(chat->conversation);
    chat->conversation = c;
    chat->effort = CHAT_EFFORT_UNSET;
    size_t n, messages = conversation_count(c) - conversation_head(c);
    session_tokens(chat->session, &n);
    printf("Loaded %zu messages, %zu tokens computed.\n", messages, n);
    return SOL_OK;
}

static enum sol_status run_system(struct chat *chat, const char *argument)
{
    SOL_TRY(chat_instruct(chat, (struct chat_text){argument, strlen(argument)}));
    puts(*argument ? "The model has these instructions from now on."
                   : "The model has no instructions from now on.");
    return SOL_OK;
}

static enum sol_status run_effort(struct chat *chat, const char *argument)
{
    enum chat_effort effort;
    SOL_TRY(chat_effort_find(argument, &effort));
    SOL_TRY(chat_set_effort(chat, effort));
    printf("Effort: %s.\n", argument);
    return SOL_OK;
}

static enum sol_status run_stats(struct chat *chat, const char *argument)
{
    const struct chat_stats *s = &chat->stats;
    const struct session_result *r = &s->last;
    size_t held;
    (void)argument;
    session_tokens(chat->session, &held);
    int64_t context = session_context(chat->session);
    printf("context    %zu of %lld tokens used (%.0f %%)\n", held, (long long)context,
           100.0 * (double)held / (double)context);
    if (!s->turns) return SOL_OK;
    double rate = r->generate_s > 0 ? (double)r->generated / r->generate_s : 0;
    printf("last turn  prompt of %lld tokens, %lld of them kept from before; first token after "
           "%.3f s\n",
           (long long)r->prompt, (long long)r->cached, s->first_token_s);
    printf("           %lld tokens generated, %lld of them reasoning; %.1f tokens/s\n",
           (long long)r->generated, (long long)s->counts.reasoning, rate);
    if (chat->drafting.draft)
        printf("           %lld tokens guessed, %lld of them right; %lld steps\n",
               (long long)r->counts.guessed, (long long)r->counts.accepted,
               (long long)r->counts.steps);
    if (s->faults) printf("           it left the format %zu times\n", s->faults);
    printf("all        %lld turns, %lld tokens generated\n", (long long)s->turns,
           (long long)s->tokens);
    return SOL_OK;
}

static enum sol_status run_quit(struct chat *chat, const char *argument)
{
    (void)argument;
    chat->over = true;
    return SOL_OK;
}

/* ---- which ---- */

static const struct chat_verb verbs[] = {
    {"help", "", "this list", run_help},
    {"clear", "", "forget the conversation, and begin anew", run_clear},
    {"save", "FILE", "keep it, with what was computed, for another time", run_save},
    {"load", "FILE", "go on with one that was saved, in place of this one", run_load},
    {"system", "TEXT", "instructions for the model; without TEXT none", run_system},
    {"effort", "LEVEL", "of reasoning: low, medium, high or none", run_effort},
    {"stats", "", "tokens a second, how full the context is, time to the first token", run_stats},
    {"quit", "", "leave, as Ctrl-D does", run_quit},
};
enum { VERBS = sizeof verbs / sizeof *verbs };

static enum sol_status run_help(struct chat *chat, const char *argument)
{
    (void)chat;
    (void)argument;
    for (size_t i = 0; i < VERBS; i++)
        printf("  /%-6s %-6s %s\n", verbs[i].name, verbs[i].argument, verbs[i].help);
    puts("Ctrl-C stops an answer; what is written by then stays. A line that ends in \\ goes on\n"
         "in the next one. A message that is to begin with / has a blank before it.");
    return SOL_OK;
}

static enum sol_status find(const char *name, const struct chat_verb **out)
{
    const char *names[VERBS];
    for (size_t i = 0; i < VERBS; i++) {
        names[i] = verbs[i].name;
        *out = &verbs[i];
        if (strcmp(name, names[i]) == 0) return SOL_OK;
    }
    const char *near = suggest_name(name, names, VERBS);
    return status_set(SOL_E_ARGUMENT,
                      "there is no command /%s%s%s%s; /help lists them, and a "
                      "message that begins with / needs a blank before it",
                      name, near ? "; did you mean /" : "", near ? near : "", near ? "?" : "");
}

void chat_command(struct chat *chat, const char *line)
{
    char name[32];
    const struct chat_verb *verb;
    size_t length = strcspn(line + 1, " \t");
    const char *argument = line + 1 + length;
    argument += strspn(argument, " \t");
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1),
             line + 1);
    enum sol_status status = find(name, &verb);
    if (status == SOL_OK && *argument && !*verb->argument)
        status = status_set(SOL_E_ARGUMENT, "/%s takes no argument", name);
    if (status == SOL_OK) status = verb->run(chat, argument);
    if (status != SOL_OK) fprintf(stderr, "sol: error: %s\n", sol_last_error());
}
