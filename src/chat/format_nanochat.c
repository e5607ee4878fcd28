/* The format of nanochat's conversations, as an entry of the table of formats (source:
 * render_conversation in nanochat's tokenizer.py). It knows the user and the assistant: no
 * channels, no levels of reasoning, no functions of the caller's. */
#include "chat/format_private.h"

static void find(struct chat_vocabulary *v, const char **missing)
{
    struct nanochat_tokens *t = &v->nanochat;
    const struct chat_token_name names[] = {{"<|bos|>", &t->bos},
                                            {"<|user_start|>", &t->user_start},
                                            {"<|user_end|>", &t->user_end},
                                            {"<|assistant_start|>", &t->assistant_start},
                                            {"<|assistant_end|>", &t->assistant_end},
                                            {"<|python_start|>", &t->python_start},
                                            {"<|python_end|>", &t->python_end},
                                            {"<|output_start|>", &t->output_start},
                                            {"<|output_end|>", &t->output_end}};
    *missing = chat_tokens_find(v->tokenizer, names, sizeof names / sizeof *names);
    v->uses = (struct chat_token_uses){
        .start = t->assistant_start,
        .in_header = -1,
        .answer_end = t->assistant_end,
        .call_end = -1,
        .other_end = -1,
        .text_end = t->bos,
        .begins = {{t->bos, t->user_start, t->assistant_start}, 3},
        .borders = {{t->bos, t->user_start, t->user_end, t->assistant_start, t->assistant_end}, 5},
        .stops = {{t->assistant_end, t->bos}, 2},
        /* Nobody runs its python here, so the model may not call it. */
        .written = {{t->assistant_end, t->bos}, 2},
        .marks = {{t->assistant_end}, 1},
    };
}

static enum sol_status open_conversation(struct conversation *c, const char *date)
{
    (void)c;
    (void)date;
    return SOL_OK;
}

static enum sol_status instruct(struct conversation *c, const struct chat_instructions *what)
{
    const struct chat_message head = {.role = CHAT_SYSTEM};
    if (what->functions && what->functions->n_tools) return chat_format_calls(&chat_nanochat);
    return what->text.data ? conversation_add_text(c, &head, what->text) : SOL_OK;
}

const struct chat_format chat_nanochat = {
    .name = "nanochat",
    .instructs = CHAT_SYSTEM,
    .find = find,
    .open = open_conversation,
    .instruct = instruct,
    .render = nanochat_render,
    .begin = nanochat_begin,
    .push = nanochat_push,
    .finish = nanochat_finish,
};
