/* `sol chat`: talks with a model; turns conversations into tokens and back. */
#include <stdlib.h>
#include <string.h>

#include "base/progress.h"
#include "base/status.h"
#include "cli/chat_options.h"
#include "cli/cli.h"

static const struct option options[] = {
    OPTION_ENTRY(GROUP, 0, "Talking", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(STRING, 'p', "prompt", "TEXT",
                 "the first message; what FILEs have comes behind it",
                 offsetof(struct chat_options, prompt), 0, 0),
    OPTION_ENTRY(STRING, 0, "system", "TEXT", "instructions for the model, ahead of the messages",
                 offsetof(struct chat_options, system), 0, 0),
    OPTION_ENTRY(STRING, 0, "effort", "LEVEL",
                 "of reasoning: low, medium (default) or high; none: straight to the answer. With "
                 "render in place of what the conversation says. nanochat's format has none alone",
                 offsetof(struct chat_options, effort), 0, 0),
    OPTION_ENTRY(INT, 0, "thinking", "N",
                 "tokens of reasoning at most, then the answer has to begin (default: any number)",
                 offsetof(struct chat_options, thinking), 0, 1 << 24),
    OPTION_ENTRY(
        STRING, 0, "reasoning", "show|hide",
        "reasoning is shown on a terminal and in JSON, unless it is hidden; in a pipe it is left "
        "out, unless it is shown, on stderr",
        offsetof(struct chat_options, reasoning), 0, 0),
    OPTION_ENTRY(INT, 'n', "predict", "N",
                 "tokens that a turn has at most (default: what the context has room for)",
                 offsetof(struct chat_options, predict), 1, 1 << 24),
    DRAFT_OPTIONS(struct chat_options, draft),
    OPTION_ENTRY(FLAG, 0, "json", NULL,
                 "print JSON, a line for each piece of text and one for the end; render and parse "
                 "always print JSON",
                 offsetof(struct chat_options, json), 0, 0),
    OPTION_ENTRY(FLAG, 'q', "quiet", NULL, "no remarks and no progress on stderr",
                 offsetof(struct chat_options, quiet), 0, 0),
    SAMPLING_OPTIONS(struct chat_options, sampling),
    ENGINE_OPTIONS(struct chat_options, engine),
    ENGINE_LOAD_OPTION(struct chat_options, engine),
    ENGINE_BACKEND_OPTION(struct chat_options, engine),
    ENGINE_GPUS_OPTION(struct chat_options, engine),
    ENGINE_SIZE_OPTIONS(struct chat_options, engine,
                        "tokens that the conversation can have (default 16384, or what the model "
                        "was made for)"),
    OPTION_ENTRY(
        STRING, 0, "vocab", "FILE",
        "tokenizer.json, .tiktoken or GGUF file, or a folder with one: for a model without "
        "a vocabulary, and for render and parse",
        offsetof(struct chat_options, vocab), 0, 0),
    OPTION_ENTRY(GROUP, 0, "Render and parse", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(FLAG, 0, "lines", NULL,
                 "every line of FILE is a JSON object of its own, and gives a line",
                 offsetof(struct chat_options, lines), 0, 0),
    OPTION_ENTRY(GROUP, 0, "Render", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(STRING, 0, "turn", "assistant|user|system|developer|tool|none",
                 "whose turn is next (default: assistant)", offsetof(struct chat_options, turn), 0,
                 0),
    OPTION_ENTRY(STRING, 0, "analysis", "all|open",
                 "all (default) of the model's thoughts; open: only those since its last answer, "
                 "as for a model that goes on",
                 offsetof(struct chat_options, analysis), 0, 0),
    OPTION_ENTRY(STRING, 0, "types", "harmony|full",
                 "of tools: as openai-harmony writes them (default), or with anyOf, $ref, const "
                 "and the like kept",
                 offsetof(struct chat_options, types), 0, 0),
    OPTION_ENTRY(STRING, 0, "date", "YYYY-MM-DD",
                 "the current date, where the conversation has none",
                 offsetof(struct chat_options, date), 0, 0),
    OPTION_ENTRY(STRINGS, 0, "tool", "NAME",
                 "add the built-in tool browser or python; may be repeated",
                 offsetof(struct chat_options, tools), 0, 0),
    OPTION_ENTRY(FLAG, 0, "training", NULL,
                 "a last answer ends in <|return|>, as the model is to write it; goes with --turn "
                 "none",
                 offsetof(struct chat_options, training), 0, 0),
    OPTION_ENTRY(FLAG, 0, "mask", NULL,
                 "also \"mask\": 1 for each token that the assistant writes, and so learns in "
                 "fine-tuning, else 0",
                 offsetof(struct chat_options, mask), 0, 0),
    OPTION_ENTRY(GROUP, 0, "Parse", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(STRING, 0, "role", "assistant|user|system|developer|tool|none",
                 "who speaks first (default: none where the ids begin with a message's start, else "
                 "assistant)",
                 offsetof(struct chat_options, role), 0, 0),
    OPTION_ENTRY(FLAG, 0, "steps", NULL,
                 "also what each token did, and the end: state, text, and what is known of the "
                 "message",
                 offsetof(struct chat_options, steps), 0, 0),
    {0},
};

static const struct command_example examples[] = {
    {"sol chat", "talk with the built-in model, which is too small to say much", "a terminal"},
    {"sol chat -m openai/gpt-oss-20b", "with a model that sol pull has fetched", "a terminal"},
    {"echo 'What is the capital of France?' | sol chat --effort low", "one answer to a pipe", NULL},
    {"sol chat -p 'What is this about?' prompt.txt -n 100 --json", "about a file; as JSON lines",
     NULL},
    {"sol chat render conversation.json", "the tokens that ask for the next answer", NULL},
    {"sol chat render --turn none conversation.json | sol chat parse -", "and back", NULL},
    {"sol chat render --vocab o200k_base.tiktoken conversation.json", "with the ids of gpt-oss",
     "o200k_base.tiktoken"},
    {0},
};

static const struct command_spec spec = {
    .name = "chat",
    .summary = "talk with a model; conversations to tokens and back",
    .arguments = "[FILE...] | render|parse FILE|-",
    .notes =
        "On a terminal it is a conversation; /help lists its commands. Ctrl-C stops an answer,\n"
        "Ctrl-D leaves. FILEs (- is standard input) are the first message. Where standard input\n"
        "or output is no terminal, there is one message: -p, the FILEs, and what is piped in. Its\n"
        "answer goes to stdout.\n"
        "When the context is full, the oldest messages leave, whole, until half of it is free.\n"
        "\n"
        "The format is what the model's vocabulary is for: harmony (gpt-oss), or nanochat's "
        "(models\n"
        "of sol train), which has no reasoning and no tools.\n"
        "\n"
        "render reads {\"messages\": [...]} as openai-harmony writes it and prints\n"
        "{\"ids\": [...]}. parse reads that and prints {\"messages\": [...]}. It takes any\n"
        "ids: what is not of the format is given back as text, and counted in \"malformed\".\n"
        "docs/CHAT.md says how.",
    .examples = examples,
    .options = options,
};

static bool converts(const char *verb)
{
    return strcmp(verb, "render") == 0 || strcmp(verb, "parse") == 0;
}

static int run(int argc, char **argv)
{
    struct chat_options o = {.thinking = -1};
    int n_args, exit_status;
    engine_options_init(&o.engine);
    sampling_options_init(&o.sampling);
    const char **args = calloc((size_t)argc + 1, sizeof *args);
    if (!args) return cli_fail(status_set(SOL_E_MEMORY, "no memory for %d arguments", argc));
    if (cli_parse(&spec, argc, argv, &o, args, &n_args, &exit_status)) {
        progress_quiet(o.quiet);
        exit_status = cli_fail(n_args && converts(args[0]) ? chat_convert(&o, args, n_args)
                                                           : chat_talk(&o, args, n_args));
    }
    free(args);
    return exit_status;
}

const struct command cmd_chat = {&spec, run, true};
