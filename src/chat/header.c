#include "chat/header.h"

#include "tok/pretokenize.h"
#include "tok/unicode_tables.h"

static const char channel_mark[] = "<|channel|>";
static const char constrain_mark[] = "<|constrain|>";

enum { CHANNEL_MARK = sizeof channel_mark - 1, CONSTRAIN_MARK = sizeof constrain_mark - 1 };

/* ---- UTF-8 ---- */

size_t utf8_bad_length(const char *data, size_t length)
{
    uint32_t code;
    size_t n = 1;
    while (n < length && n < 3 && utf8_decode(data, n, &code) == 0 &&
           utf8_decode(data, n + 1, &code) == 0)
        n++;
    return n;
}

size_t utf8_put(struct text_buffer *to, const char *data, size_t length, bool more,
                size_t *replaced)
{
    size_t at = 0, from = 0;
    uint32_t code;
    if (length == 0) return 0;
    while (at < length) {
        int size = utf8_decode(data + at, length - at, &code);
        if (size > 0) {
            at += (size_t)size;
            continue;
        }
        if (size == 0 && more) break;
        text_put(to, data + from, at - from);
        text_puts(to, "\xef\xbf\xbd");
        ++*replaced;
        at += size == 0 ? length - at : utf8_bad_length(data + at, length - at);
        from = at;
    }
    text_put(to, data + from, at - from);
    return at;
}

/* ---- words ---- */

/* White space as Unicode has it; *size is the length of the character. */
static bool blank_at(struct chat_text text, size_t at, size_t *size)
{
    uint32_t code;
    int length = utf8_decode(text.data + at, text.length - at, &code);
    *size = length > 0 ? (size_t)length : 1;
    return length > 0 && unicode_class_of(code) == UNICODE_SPACE;
}

static struct chat_text trim(struct chat_text text)
{
    size_t size, last = 0;
    while (text.length && blank_at(text, 0, &size)) {
        text.data += size;
        text.length -= size;
    }
    for (size_t at = 0; at < text.length; at += size)
        if (!blank_at(text, at, &size)) last = at + size;
    text.length = last;
    return text;
}

/* The next word; words are split at ASCII blanks. Nothing left: without data. */
static struct chat_text next_word(struct chat_text *text)
{
    static const char blanks[] = " \t\n\f\r";
    size_t n = 0;
    while (text->length && memchr(blanks, *text->data, sizeof blanks - 1)) {
        text->data++;
        text->length--;
    }
    while (n < text->length && !memchr(blanks, text->data[n], sizeof blanks - 1)) n++;
    struct chat_text word = {n ? text->data : NULL, n};
    text->data += n;
    text->length -= n;
    return word;
}

static const char *find(struct chat_text text, const char *mark, size_t length)
{
    return text.length ? memmem(text.data, text.length, mark, length) : NULL;
}

/* The word behind a channel's mark, up to a blank or '<'. */
static struct chat_text channel_name(struct chat_text text, const char *mark)
{
    struct chat_text name = {mark + CHANNEL_MARK, 0};
    struct chat_text left = {name.data, text.length - (size_t)(name.data - text.data)};
    for (size_t size; name.length < left.length; name.length += size)
        if (left.data[name.length] == '<' || blank_at(left, name.length, &size)) break;
    return name;
}

static struct chat_text behind(struct chat_text word, size_t length)
{
    return (struct chat_text){word.data + length, word.length - length};
}

static struct chat_text recipient_of(struct chat_text word)
{
    return text_begins(word, "to=") ? behind(word, 3) : word;
}

/* ---- as openai-harmony ---- */

/* A copy with a blank before each content type. */
static void put_words(struct text_buffer *to, struct chat_text text)
{
    for (const char *type; (type = find(text, constrain_mark, CONSTRAIN_MARK));) {
        text_put(to, text.data, (size_t)(type - text.data));
        text_puts(to, " <|constrain|>");
        text = behind(text, (size_t)(type - text.data) + CONSTRAIN_MARK);
    }
    text_put_text(to, text);
}

/* Takes the channel out of `text` and puts a blank before each content type: what is left is words.
 * False where it names none. */
static bool split_channel(struct chat_text text, struct chat_header *out)
{
    struct text_buffer *room = &out->room;
    const char *mark = find(text, channel_mark, CHANNEL_MARK);
    struct chat_text before = text, after = {0};
    room->length = 0;
    if (mark) {
        struct chat_text name = channel_name(text, mark);
        if (name.length == 0) return false;
        before.length = (size_t)(mark - text.data);
        after.data = name.data + name.length;
        after.length = text.length - (size_t)(after.data - text.data);
        text_put_text(room, name);
    }
    size_t channel = room->length;
    put_words(room, before);
    put_words(room, after);
    if (room->failed) return false;
    out->head.channel = mark ? (struct chat_text){room->data, channel} : (struct chat_text){0};
    out->rest = trim(behind(text_of(room), channel));
    return true;
}

enum { WORDS = 4 }; /* a role, a recipient, a type; one more is too much */

/* The role from the words, where it is not known. The format writes a user's name behind the role,
 * which the library's reader takes for a tool if more follows, and refuses if nothing does. */
static bool read_role(struct chat_text *words, size_t *n, struct chat_message *head)
{
    if (*n == 0) return false;
    struct chat_text first = words[0];
    const char *colon = memchr(first.data, ':', first.length);
    head->role = chat_role_find(first);
    if (head->role == CHAT_TOOL) head->name = first;
    if (head->role != CHAT_NOBODY) return true;
    if (*n > 1 || text_begins(first, "to=")) {
        head->role = CHAT_TOOL;
        head->name = first;
    } else if (colon) {
        size_t length = (size_t)(colon - first.data);
        head->role = chat_role_find((struct chat_text){first.data, length});
        head->name = behind(first, length + 1);
        if (head->role == CHAT_NOBODY || head->role == CHAT_TOOL) return false;
    } else {
        return false;
    }
    memmove(words, words + 1, --*n * sizeof *words);
    return true;
}

bool header_read(struct chat_text text, enum chat_role role, struct chat_header *out)
{
    struct chat_text words[WORDS] = {{0}};
    size_t n = 0;
    out->head = (struct chat_message){.role = role};
    if (!split_channel(text, out)) return false;
    struct chat_text left = out->rest;
    for (struct chat_text word; (word = next_word(&left)).data;) {
        if (n == WORDS) return false;
        words[n++] = word;
    }
    out->rest = (struct chat_text){0};
    if (role == CHAT_NOBODY && !read_role(words, &n, &out->head)) return false;
    if (n && text_is(words[0], chat_role_name(out->head.role)))
        memmove(words, words + 1, --n * sizeof *words);
    if (n > 2) return false;
    if (n == 0) return true;
    struct chat_text last = words[n - 1];
    if (n == 1) {
        out->head.recipient = recipient_of(last);
    } else if (text_begins(last, "to=")) {
        return false; /* something stands before the recipient */
    } else {
        out->head.recipient = recipient_of(words[0]);
        out->head.content_type = last;
    }
    return true;
}

/* ---- whatever it is ---- */

/* Copies what is not a channel to `to`, and the last channel's name. */
static struct chat_text without_channels(struct chat_text text, struct text_buffer *to)
{
    struct chat_text channel = {0};
    for (const char *mark; (mark = find(text, channel_mark, CHANNEL_MARK));) {
        struct chat_text name = channel_name(text, mark);
        if (name.length) channel = name;
        text_put(to, text.data, (size_t)(mark - text.data));
        text = behind(text, (size_t)(name.data + name.length - text.data));
    }
    text_put_text(to, text);
    return channel;
}

/* Takes role, recipient and type from the front of `text`. */
static void take_parts(struct chat_text *text, bool role_known, struct chat_message *head)
{
    for (bool first = true;; first = false) {
        struct chat_text left = *text, word = next_word(&left);
        /* "to=f<|constrain|>json": the type is glued to the name. */
        const char *type = find(word, constrain_mark, CONSTRAIN_MARK);
        if (type && type > word.data) {
            word.length = (size_t)(type - word.data);
            left = behind(*text, (size_t)(type - text->data));
        }
        enum chat_role role = first ? chat_role_find(word) : CHAT_NOBODY;
        if (role != CHAT_NOBODY && (!role_known || role == head->role)) {
            head->role = role;
            if (role == CHAT_TOOL) head->name = word;
        } else if (!head->recipient.data && text_begins(word, "to=") && word.length > 3) {
            head->recipient = behind(word, 3);
        } else if (!head->content_type.data && type && word.length > CONSTRAIN_MARK) {
            head->content_type = word;
        } else {
            return;
        }
        *text = left;
    }
}

void header_recover(struct chat_text text, enum chat_role role, struct chat_header *out)
{
    struct text_buffer whole = {0}, plain = {0};
    size_t replaced = 0;
    utf8_put(&whole, text.data, text.length, false, &replaced);
    struct chat_text channel = without_channels(text_of(&whole), &plain);
    out->head = (struct chat_message){.role = role == CHAT_NOBODY ? CHAT_ASSISTANT : role};
    out->room.length = 0;
    text_put_text(&out->room, channel);
    text_put_text(&out->room, text_of(&plain));
    out->room.failed = out->room.failed || whole.failed || plain.failed;
    if (channel.data) out->head.channel = (struct chat_text){out->room.data, channel.length};
    out->rest = (struct chat_text){out->room.data ? out->room.data + channel.length : "",
                                   out->room.failed ? 0 : plain.length};
    take_parts(&out->rest, role != CHAT_NOBODY, &out->head);
    out->rest = trim(out->rest);
    if (!channel.data && out->head.role == CHAT_ASSISTANT) out->head.channel = CHAT_TEXT("final");
    text_buffer_free(&whole);
    text_buffer_free(&plain);
}

/* ---- what was meant ---- */

enum sol_status header_mend(struct conversation *c, const struct chat_namespace *functions,
                            struct chat_message *head, bool *changed)
{
    const char *type = find(head->recipient, constrain_mark, CONSTRAIN_MARK);
    *changed = false;
    if (type) {
        size_t length = (size_t)(type - head->recipient.data);
        if (!head->content_type.data) head->content_type = behind(head->recipient, length);
        head->recipient.length = length;
        if (length == 0) head->recipient = (struct chat_text){0};
        *changed = true;
    }
    for (size_t i = 0; functions && head->recipient.data && i < functions->n_tools; i++) {
        struct chat_text name = functions->tools[i].name;
        if (name.length != head->recipient.length ||
            memcmp(name.data, head->recipient.data, name.length) != 0)
            continue;
        struct text_buffer full = {0};
        text_put_text(&full, functions->name);
        text_puts(&full, ".");
        text_put_text(&full, name);
        enum sol_status status = text_check(&full, "a name");
        if (status == SOL_OK) status = conversation_copy(c, text_of(&full), &head->recipient);
        text_buffer_free(&full);
        *changed = true;
        return status;
    }
    return SOL_OK;
}
