/* A message of the user and what the model answers. */
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "base/status.h"
#include "chat/opening.h"
#include "cli/chat_talk.h"

/* Of the context an answer is to have room for. */
static int64_t room_for_answer(const struct chat *chat)
{
    return session_context(chat->session) / 8;
}

static enum sol_status open_turn(const struct chat *chat, const struct conversation *c,
                                 struct turn **out)
{
    struct turn_params params;
    turn_params_init(&params);
    params.effort = chat->effort;
    params.thinking = chat->options->thinking;
    return turn_create(chat->turns, c, &params, out);
}

/* ---- a full context ---- */

/* The n-th point from the end, which is the last one. Every message of the user begins at one, but
 * for what a loaded conversation begins with where nothing stands before it. */
static int64_t point_from_end(const struct turn *turn, size_t n)
{
    size_t n_points;
    const int64_t *points = turn_points(turn, &n_points);
    return n < n_points ? points[n_points - 1 - n] : 0;
}

/* Where the first message behind the head begins. */
static int64_t head_end(const struct conversation *c, const struct turn *turn)
{
    size_t n_points;
    return conversation_head(c) ? turn_points(turn, &n_points)[0] : 0;
}

/* How many messages have to leave behind the head, for at most `most` tokens: turns as a whole, the
 * last never. */
static size_t too_many(const struct conversation *c, const struct turn *turn, int64_t most)
{
    size_t n = conversation_count(c), head = conversation_head(c), users = 0, seen = 0;
    const int64_t whole = point_from_end(turn, 0), begin = head_end(c, turn);
    for (size_t i = 0; i < n; i++) users += conversation_message(c, i)->role == CHAT_USER;
    for (size_t i = head; i < n; i++) {
        if (conversation_message(c, i)->role != CHAT_USER) continue;
        int64_t at = point_from_end(turn, users - seen++);
        if (whole - (at - begin) <= most || seen == users) return i - head;
    }
    return 0;
}

/* What the head and the last message alone take. */
static int64_t least(const struct conversation *c, const struct turn *turn)
{
    return head_end(c, turn) + point_from_end(turn, 0) - point_from_end(turn, 1);
}

static enum sol_status too_long(int64_t tokens, int64_t context, int64_t room)
{
    return status_set(SOL_E_ARGUMENT,
                      "the message is too long: with what is before all messages it has %lld "
                      "tokens, and the context of %lld keeps %lld for the answer; shorten it, "
                      "or make the context longer with -c",
                      (long long)tokens, (long long)context, (long long)room);
}

/* Once is enough, but where the format has the instructions in the oldest message: they are in the
 * next one then, and count only there. */
static enum sol_status make_room(struct chat *chat, struct turn **turn)
{
    const int64_t context = session_context(chat->session), room = room_for_answer(chat);
    while ((int64_t)turn_prompt(*turn)->count + room > context) {
        const int64_t shortest = least(chat->conversation, *turn);
        const size_t head = conversation_head(chat->conversation);
        const size_t leave = too_many(chat->conversation, *turn, context / 2);
        if (shortest + room > context || leave == 0) return too_long(shortest, context, room);
        SOL_TRY(chat_drop(chat, head, head + leave));
        progress_note("the context of %lld tokens is full: the oldest %zu messages have left the "
                      "conversation",
                      (long long)context, leave);
        turn_destroy(*turn);
        *turn = NULL;
        SOL_TRY(open_turn(chat, chat->conversation, turn));
    }
    return SOL_OK;
}

/* ---- a turn ---- */

static bool on_event(void *arg, const struct turn_event *event)
{
    struct chat *chat = arg;
    if (chat->stats.first_token_s == 0)
        chat->stats.first_token_s = (double)(clock_ns() - chat->began_ns) * 1e-9;
    return chat_show_event(&chat->show, event);
}

static enum sol_status keep_messages(struct chat *chat, const struct turn *turn)
{
    const struct conversation *new = turn_messages(turn);
    for (size_t i = 0; i < conversation_count(new); i++) {
        const struct chat_message *m = conversation_message(new, i);
        SOL_TRY(conversation_add_text(chat->conversation, m, m->contents->text));
        if (!text_is(m->channel, "analysis")) chat->stats.answered = true;
    }
    return SOL_OK;
}

static enum sol_status write_turn(struct chat *chat, struct turn *turn)
{
    const struct session_params params = {
        .sampler = chat->sampler,
        .limit = chat->options->predict ? chat->options->predict : INT64_MAX,
        .draft = chat->drafting.draft,
        .on_event = on_event,
        .arg = chat,
    };
    struct chat_stats *stats = &chat->stats;
    chat->began_ns = clock_ns();
    stats->first_token_s = 0;
    stats->answered = false;
    SOL_TRY(session_turn(chat->session, turn, &params, &stats->last));
    turn_count(turn, &stats->counts);
    stats->faults = chat_faults_total(turn_faults(turn));
    stats->turns++;
    stats->tokens += stats->last.generated;
    SOL_TRY(keep_messages(chat, turn));
    return chat_show_end(chat);
}

enum sol_status chat_reply(struct chat *chat, struct chat_text text)
{
    struct turn *turn = NULL;
    const struct chat_message user = {.role = CHAT_USER};
    SOL_TRY(conversation_add_text(chat->conversation, &user, text));
    enum sol_status status = open_turn(chat, chat->conversation, &turn);
    if (status == SOL_OK) status = make_room(chat, &turn);
    size_t count = conversation_count(chat->conversation);
    if (status == SOL_OK) status = write_turn(chat, turn);
    if (status != SOL_OK) conversation_truncate(chat->conversation, count - 1);
    turn_destroy(turn);
    return status;
}
