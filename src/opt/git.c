#include "opt/git.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

static const double git_timeout_s = 600;

enum { ARGUMENTS_MAX = 48 };

/* Those that change what is read or that run something; a private index has no parts elsewhere. */
static const char *const always[] = {
    "-c", "core.fsmonitor=false",    "-c", "gc.auto=0", "-c", "maintenance.auto=false",
    "-c", "submodule.recurse=false", NULL};
static const char *const without_hooks[] = {"-c", "core.hooksPath=/dev/null", NULL};
static const char *const private_index[] = {"-c", "core.splitIndex=false", "-c",
                                            "core.safecrlf=false", NULL};

struct words {
    const char *items[ARGUMENTS_MAX + 1];
    size_t count;
};

static void add_word(struct words *to, const char *word)
{
    if (to->count < ARGUMENTS_MAX) to->items[to->count++] = word;
}

static void add_words(struct words *to, const char *const *words)
{
    while (*words) add_word(to, *words++);
}

void git_forget_environment(void)
{
    static const char *const names[] = {"GIT_DIR",
                                        "GIT_WORK_TREE",
                                        "GIT_INDEX_FILE",
                                        "GIT_OBJECT_DIRECTORY",
                                        "GIT_COMMON_DIR",
                                        "GIT_NAMESPACE",
                                        "GIT_PREFIX",
                                        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
                                        "GIT_EXTERNAL_DIFF",
                                        "GIT_ICASE_PATHSPECS",
                                        "GIT_GLOB_PATHSPECS",
                                        "GIT_NOGLOB_PATHSPECS"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
}

/* "Unable to create '/x/.git/index.lock': File exists" */
static bool find_lock(const char *errors, char *lock, size_t size)
{
    static const char before[] = "Unable to create '", behind[] = ".lock': File exists";
    const char *start = strstr(errors, before);
    const char *end = start ? strstr(start, behind) : NULL;
    if (!end) return false;
    start += sizeof before - 1;
    int n = snprintf(lock, size, "%.*s.lock", (int)(end - start), start);
    return n > 0 && (size_t)n < size;
}

static enum sol_status failed(const struct git *call, const char *verb,
                              const struct process_result *p)
{
    char words[600], lock[4200];
    if (find_lock(p->errors, lock, sizeof lock))
        return status_set(SOL_E_ARGUMENT,
                          "%s exists: another git is at work, or one was killed there. When none "
                          "runs any more, remove the file and run this command again",
                          lock);
    process_last_lines(p, words);
    if (p->timed_out)
        return status_set(SOL_E_IO, "git %s in %s did not end within %g s", verb, call->folder,
                          git_timeout_s);
    if (p->not_found) return status_set(SOL_E_UNSUPPORTED, "there is no git here");
    return status_set(SOL_E_IO, "git %s failed with status %d in %s%s%s", verb, p->exit_status,
                      call->folder, *words ? "\n" : "", words);
}

enum sol_status git_run_words(const struct git *call, struct process_result *out,
                              const char *const *arguments)
{
    struct words words = {.count = 0};
    char index[4200];
    /* Names are names, never patterns; messages are looked into; reading takes no lock. */
    const char *environment[] = {"GIT_LITERAL_PATHSPECS=1", "LC_ALL=C", "GIT_OPTIONAL_LOCKS=0",
                                 "GIT_TERMINAL_PROMPT=0",   NULL,       NULL};
    if (call->index) {
        snprintf(index, sizeof index, "GIT_INDEX_FILE=%s", call->index);
        environment[4] = index;
    }
    add_word(&words, "git");
    add_words(&words, always);
    if (!call->hooks) add_words(&words, without_hooks);
    if (call->index) add_words(&words, private_index);
    add_word(&words, "-C");
    add_word(&words, call->folder);
    size_t verb = words.count;
    add_words(&words, arguments);
    struct process_io io = {call->input, call->output, environment};
    if (call->output) unlink(call->output); /* never through a link that somebody left there */
    SOL_TRY(call->finish ? process_finish(words.items, &io, out)
                         : process_argv(words.items, &io, git_timeout_s, out));
    if (out->exit_status == 0 && !out->timed_out) return SOL_OK;
    enum sol_status status = failed(call, words.items[verb], out);
    process_result_free(out);
    return status;
}

enum sol_status git_do_words(const struct git *call, const char *const *arguments)
{
    struct process_result p;
    SOL_TRY(git_run_words(call, &p, arguments));
    process_result_free(&p);
    return SOL_OK;
}

enum sol_status git_line_words(const struct git *call, char *out, size_t size,
                               const char *const *words)
{
    struct process_result p;
    SOL_TRY(git_run_words(call, &p, words));
    size_t length = strcspn(p.output, "\n");
    enum sol_status status = SOL_OK;
    if (length < size && length + 1 >= p.output_size)
        snprintf(out, size, "%.*s", (int)length, p.output);
    else
        status =
            status_set(SOL_E_UNSUPPORTED,
                       "git %s in %s printed more than a line: a name with a line break is not "
                       "served",
                       words[0], call->folder);
    process_result_free(&p);
    return status;
}

static enum sol_status split_names(const struct mapped_file *text, json_t **out)
{
    const char *at = text->data, *end = text->size ? at + text->size : at;
    json_t *names = json_array();
    enum sol_status status = SOL_OK;
    while (status == SOL_OK && at < end) {
        size_t length = strnlen(at, (size_t)(end - at));
        json_t *name = json_stringn(at, length);
        if (!name)
            status =
                status_set(SOL_E_UNSUPPORTED, "a file's name is not UTF-8: %.*s", (int)length, at);
        else if (json_array_append_new(names, name) != 0)
            status = status_set(SOL_E_MEMORY, "no memory for the names of files");
        at += length + 1;
    }
    if (status == SOL_OK)
        *out = names;
    else
        json_decref(names);
    return status;
}

enum sol_status git_names_words(const struct git *call, json_t **out, const char *const *arguments)
{
    struct mapped_file text;
    *out = NULL;
    SOL_TRY(git_do_words(call, arguments));
    SOL_TRY(mapped_file_open(call->output, &text));
    enum sol_status status = split_names(&text, out);
    mapped_file_close(&text);
    return status;
}
