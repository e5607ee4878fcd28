/* Types with nothing lost, in the layout that the model knows from typescript.c. */
#include "chat/typescript_private.h"

#include <stdlib.h>

enum { NEST_MAX = 64 }; /* types in each other; further in there is only `any` */

/* The definitions that are being written, so that one inside of itself ends. */
struct open_ref {
    const json_t *target;
    const struct open_ref *outer;
};

struct place {
    const json_t *root; /* what "#" means */
    const struct open_ref *open;
    int depth, indent;
};

/* How tightly a type that was written holds together: "A | B"[] needs parentheses. */
enum binding { BINDS_TIGHT, BINDS_AND, BINDS_OR };

static enum binding put_type(struct text_buffer *to, const json_t *schema, struct place at);

/* Writes a type, in parentheses if it binds less than `least`. */
static void put_bound(struct text_buffer *to, const json_t *schema, struct place at,
                      enum binding least)
{
    size_t mark = to->length;
    if (put_type(to, schema, at) <= least) return;
    text_puts(to, "()");
    if (to->failed) return;
    memmove(to->data + mark + 1, to->data + mark, to->length - mark - 2);
    to->data[mark] = '(';
    to->data[to->length - 1] = ')';
}

/* ---- references ---- */

/* One step of a JSON pointer, "~1" a slash and "~0" a tilde. */
static const json_t *step(const json_t *from, const char *name, size_t length)
{
    struct text_buffer key = {0};
    for (size_t i = 0; i < length; i++) {
        bool escape =
            name[i] == '~' && i + 1 < length && (name[i + 1] == '0' || name[i + 1] == '1');
        text_puts(&key, escape ? (name[i + 1] == '0' ? "~" : "/") : (char[]){name[i], 0});
        i += escape;
    }
    const json_t *found = json_object_getn(from, key.data ? key.data : "", key.length);
    if (json_is_array(from) && key.length && key.length < 8 && !key.failed) {
        text_put(&key, "", 1);
        char *end;
        unsigned long index = strtoul(key.data, &end, 10);
        if (!*end) found = json_array_get(from, index);
    }
    text_buffer_free(&key);
    return found;
}

static const json_t *resolve(const json_t *root, struct chat_text ref)
{
    const char *at = ref.data + 1, *end = ref.data + ref.length;
    if (!text_begins(ref, "#")) return NULL;
    const json_t *found = root;
    while (found && at < end) {
        if (*at++ != '/') return NULL;
        const char *slash = memchr(at, '/', (size_t)(end - at));
        size_t length = (size_t)((slash ? slash : end) - at);
        found = step(found, at, length);
        at += length;
    }
    return found;
}

static enum binding put_ref(struct text_buffer *to, struct chat_text ref, struct place at)
{
    const json_t *target = resolve(at.root, ref);
    struct open_ref open = {target, at.open};
    for (const struct open_ref *o = at.open; o && target; o = o->outer)
        if (o->target == target) target = NULL;
    at.open = &open;
    if (target) return put_type(to, target, at);
    text_puts(to, "any");
    return BINDS_TIGHT;
}

/* ---- comments ---- */

static void put_comment(struct text_buffer *to, int indent, struct chat_text text)
{
    struct chat_text line;
    while (text.data && typescript_line(&text, &line)) {
        typescript_indent(to, indent);
        text_puts(to, line.length ? "// " : "//");
        text_put_text(to, line);
        text_puts(to, "\n");
    }
}

/* A description as one line, for the end of one. */
static void put_on_line(struct text_buffer *to, struct chat_text text)
{
    struct chat_text line;
    for (const char *between = ""; typescript_line(&text, &line); between = " ") {
        text_puts(to, between);
        text_put_text(to, line);
    }
}

static void put_trailing(struct text_buffer *to, const json_t *schema, bool description)
{
    struct chat_text text = chat_json_text(json_object_get(schema, "description"));
    const json_t *value = json_object_get(schema, "default");
    bool said = description && text.data;
    if (said || value) text_puts(to, " // ");
    if (said) put_on_line(to, text);
    if (!value) return;
    text_puts(to, said ? " default: " : "default: ");
    chat_json_print(value, to);
}

static void put_comments(struct text_buffer *to, const json_t *schema, int indent)
{
    struct chat_text title = chat_json_text(json_object_get(schema, "title"));
    const json_t *examples = json_object_get(schema, "examples");
    put_comment(to, indent, title);
    if (title.length) put_comment(to, indent, CHAT_TEXT("\n"));
    put_comment(to, indent, chat_json_text(json_object_get(schema, "description")));
    if (json_array_size(examples)) put_comment(to, indent, CHAT_TEXT("Examples:"));
    for (size_t i = 0; i < json_array_size(examples); i++) {
        typescript_indent(to, indent);
        text_puts(to, "// - ");
        chat_json_print(json_array_get(examples, i), to);
        text_puts(to, "\n");
    }
}

/* ---- types ---- */

/* Joined types; a union is BINDS_OR. `list` may hold strings where it is of types' names. */
static enum binding put_list(struct text_buffer *to, const json_t *list, struct place at, bool all)
{
    size_t count = json_array_size(list);
    if (count == 0) {
        text_puts(to, all ? "any" : "never");
        return BINDS_TIGHT;
    }
    if (count == 1) return put_type(to, json_array_get(list, 0), at);
    for (size_t i = 0; i < count && !to->failed; i++) {
        if (i) text_puts(to, all ? " & " : " | ");
        put_bound(to, json_array_get(list, i), at, all ? BINDS_AND : BINDS_OR);
    }
    return all ? BINDS_AND : BINDS_OR;
}

static bool talkative(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *variant = json_array_get(list, i);
        if (json_object_get(variant, "default") ||
            chat_json_text(json_object_get(variant, "description")).data)
            return true;
    }
    return false;
}

/* Variants with comments: a line for each. */
static void put_lines(struct text_buffer *to, const json_t *list, struct place at)
{
    struct place inner = at;
    inner.indent += 3;
    for (size_t i = 0; i < json_array_size(list) && !to->failed; i++) {
        const json_t *variant = json_array_get(list, i);
        text_puts(to, "\n");
        typescript_indent(to, at.indent);
        text_puts(to, " | ");
        put_bound(to, variant, inner, BINDS_OR);
        put_trailing(to, variant, true);
    }
}

static bool plain_name(const char *key)
{
    if (!*key || (*key >= '0' && *key <= '9')) return false;
    for (; *key; key++)
        if (*key != '_' && *key != '$' && !(*key >= '0' && *key <= '9') &&
            !((*key | 32) >= 'a' && (*key | 32) <= 'z'))
            return false;
    return true;
}

static void put_name(struct text_buffer *to, const char *key)
{
    json_t *name = plain_name(key) ? NULL : json_string(key);
    if (name)
        chat_json_print(name, to);
    else
        text_puts(to, key);
    json_decref(name);
}

static const json_t *variants_of(const json_t *schema)
{
    const json_t *list = json_object_get(schema, "oneOf");
    if (!json_is_array(list)) list = json_object_get(schema, "anyOf");
    return json_is_array(list) ? list : NULL;
}

static void put_property(struct text_buffer *to, const json_t *object, const char *key,
                         const json_t *value, struct place at)
{
    struct place inner = at;
    inner.indent += 4;
    put_comments(to, value, at.indent);
    typescript_indent(to, at.indent);
    put_name(to, key);
    text_puts(to, typescript_requires(object, key) ? ":" : "?:");
    if (talkative(variants_of(value)) && !json_object_get(value, "$ref")) {
        put_lines(to, variants_of(value), at);
        text_puts(to, "\n");
        typescript_indent(to, at.indent);
    } else {
        text_puts(to, " ");
        put_type(to, value, inner);
    }
    text_puts(to, ",");
    put_trailing(to, value, false);
    text_puts(to, "\n");
}

static void put_object(struct text_buffer *to, const json_t *schema, struct place at)
{
    json_t *properties = json_object_get(schema, "properties"), *value;
    const json_t *more = json_object_get(schema, "additionalProperties");
    struct place inner = at;
    const char *key;
    inner.indent += 4;
    bool open = json_object_size(properties) == 0 && !json_is_false(more);
    text_puts(to, "{\n");
    json_object_foreach(properties, key, value) if (!to->failed)
        put_property(to, schema, key, value, at);
    if (json_is_object(more) || json_is_true(more) || open) {
        typescript_indent(to, at.indent);
        text_puts(to, "[key: string]: ");
        put_type(to, more, inner);
        text_puts(to, ",\n");
    }
    typescript_indent(to, at.indent);
    text_puts(to, "}");
}

static void put_array(struct text_buffer *to, const json_t *schema, struct place at)
{
    const json_t *items = json_object_get(schema, "items");
    const json_t *first = json_object_get(schema, "prefixItems");
    if (json_array_size(first) == 0) {
        put_bound(to, items, at, BINDS_TIGHT);
        text_puts(to, "[]");
        return;
    }
    for (size_t i = 0; i < json_array_size(first) && !to->failed; i++) {
        text_puts(to, i ? ", " : "[");
        put_type(to, json_array_get(first, i), at);
    }
    if (json_is_object(items)) {
        text_puts(to, ", ...");
        put_bound(to, items, at, BINDS_TIGHT);
        text_puts(to, "[]");
    }
    text_puts(to, "]");
}

/* A type by its name; without one by what is said of it. */
static void put_named(struct text_buffer *to, struct chat_text name, const json_t *schema,
                      struct place at)
{
    bool guess = !name.data;
    if (text_is(name, "object") || (guess && json_object_get(schema, "properties")))
        put_object(to, schema, at);
    else if (text_is(name, "array") || (guess && (json_object_get(schema, "items") ||
                                                  json_object_get(schema, "prefixItems"))))
        put_array(to, schema, at);
    else if (text_is(name, "number") || text_is(name, "integer"))
        text_puts(to, "number");
    else if (text_is(name, "string") || text_is(name, "boolean") || text_is(name, "null"))
        text_put_text(to, name);
    else
        text_puts(to, "any");
}

/* The names in a list. Properties and items go with each that has them. */
static enum binding put_names(struct text_buffer *to, const json_t *schema, struct place at)
{
    const json_t *type = json_object_get(schema, "type");
    size_t count = json_array_size(type);
    if (!json_is_array(type) || count == 0) {
        put_named(to, chat_json_text(type), schema, at);
        return BINDS_TIGHT;
    }
    for (size_t i = 0; i < count && !to->failed; i++) {
        if (i) text_puts(to, " | ");
        put_named(to, chat_json_text(json_array_get(type, i)), schema, at);
    }
    return count > 1 ? BINDS_OR : BINDS_TIGHT;
}

static enum binding put_values(struct text_buffer *to, const json_t *list)
{
    size_t count = json_array_size(list);
    for (size_t i = 0; i < count; i++) {
        if (i) text_puts(to, " | ");
        chat_json_print(json_array_get(list, i), to);
    }
    return count > 1 ? BINDS_OR : BINDS_TIGHT;
}

/* What a schema says beside allOf and its variants. */
static enum binding put_plain(struct text_buffer *to, const json_t *schema, struct place at)
{
    const json_t *value = json_object_get(schema, "const");
    struct chat_text ref = chat_json_text(json_object_get(schema, "$ref"));
    if (json_is_false(schema)) {
        text_puts(to, "never");
        return BINDS_TIGHT;
    }
    if (ref.data) return put_ref(to, ref, at);
    if (value) {
        chat_json_print(value, to);
        return BINDS_TIGHT;
    }
    if (typescript_is_enum(schema)) return put_values(to, json_object_get(schema, "enum"));
    if (variants_of(schema)) return put_list(to, variants_of(schema), at, false);
    return put_names(to, schema, at);
}

static enum binding put_type(struct text_buffer *to, const json_t *schema, struct place at)
{
    const json_t *all = json_object_get(schema, "allOf");
    size_t mark = to->length;
    enum binding binding = BINDS_TIGHT;
    if (at.depth++ >= NEST_MAX || to->failed) {
        text_puts(to, "any");
        return BINDS_TIGHT;
    }
    if (json_array_size(all)) {
        binding = put_list(to, all, at, true);
        if (json_object_get(schema, "properties")) {
            text_puts(to, " & ");
            put_object(to, schema, at);
            binding = BINDS_AND;
        }
    } else {
        binding = put_plain(to, schema, at);
    }
    if (json_is_true(json_object_get(schema, "nullable")) && !typescript_has(to, mark, "null")) {
        text_puts(to, " | null");
        binding = BINDS_OR;
    }
    return binding;
}

void typescript_full(const json_t *schema, struct text_buffer *to)
{
    put_type(to, schema, (struct place){.root = schema});
}
