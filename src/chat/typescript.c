/* The rules are openai-harmony's, with all that is odd about them: models were trained on what it
 * writes, and another text is other tokens. Some of what looks wrong here and is not:
 *   - an object's description stands above its property, and again before its brace;
 *   - of a text over several lines only the first is a comment, but for descriptions of tools;
 *   - a closing brace has the indentation of the object's own properties;
 *   - names are printed as they are, and so are strings, without escapes. */
#include "chat/typescript.h"

#include "chat/typescript_private.h"

/* Bytes with references written out: of a schema, of all tools' together. */
enum { TYPES_MAX = 256 << 10, TOOLS_MAX = 1 << 20 };

/* ---- what both ways share ---- */

void typescript_indent(struct text_buffer *to, int blanks)
{
    for (; blanks > 0; blanks--) text_puts(to, " ");
}

bool typescript_has(const struct text_buffer *to, size_t mark, const char *word)
{
    return to->length > mark && memmem(to->data + mark, to->length - mark, word, strlen(word));
}

void typescript_nullable(const json_t *schema, size_t mark, struct text_buffer *to)
{
    if (json_is_true(json_object_get(schema, "nullable")) && !typescript_has(to, mark, "null"))
        text_puts(to, " | null");
}

bool typescript_is_enum(const json_t *schema)
{
    return json_array_size(json_object_get(schema, "enum")) > 0;
}

bool typescript_requires(const json_t *schema, const char *key)
{
    const json_t *list = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (text_is(chat_json_text(json_array_get(list, i)), key)) return true;
    return false;
}

bool typescript_line(struct chat_text *text, struct chat_text *line)
{
    if (text->length == 0) return false;
    const char *end = memchr(text->data, '\n', text->length);
    size_t length = end ? (size_t)(end - text->data) : text->length;
    *line = (struct chat_text){text->data, length};
    if (end && length && text->data[length - 1] == '\r') line->length--;
    text->data += length + (end != NULL);
    text->length -= length + (end != NULL);
    return true;
}

/* ---- comments ---- */

static void put_comment(struct text_buffer *to, int indent, struct chat_text text)
{
    if (!text.data) return;
    typescript_indent(to, indent);
    text_puts(to, "// ");
    text_put_text(to, text);
    text_puts(to, "\n");
}

/* default: "a", an enum's bare, anything else as JSON; an enum's too where `whole`. */
static void put_default(struct text_buffer *to, const json_t *schema, bool whole)
{
    const json_t *value = json_object_get(schema, "default");
    struct chat_text text = chat_json_text(value);
    bool quoted = text.data && !typescript_is_enum(schema);
    text_puts(to, "default: ");
    if (!text.data || (!quoted && whole)) {
        chat_json_print(value, to);
        return;
    }
    if (quoted) text_puts(to, "\"");
    text_put_text(to, text);
    if (quoted) text_puts(to, "\"");
}

/* " // description default: ..." behind a variant. */
static void put_trailing(struct text_buffer *to, const json_t *variant, struct chat_text text,
                         bool whole)
{
    bool has_default = json_object_get(variant, "default") != NULL;
    if (!text.data && !has_default) return;
    text_puts(to, " // ");
    text_put_text(to, text);
    if (text.data && has_default) text_puts(to, " ");
    if (has_default) put_default(to, variant, whole);
}

static void put_examples(struct text_buffer *to, const json_t *schema, int indent)
{
    const json_t *list = json_object_get(schema, "examples");
    if (json_array_size(list) == 0) return;
    put_comment(to, indent, CHAT_TEXT("Examples:"));
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct chat_text text = chat_json_text(json_array_get(list, i));
        if (!text.data) continue;
        typescript_indent(to, indent);
        text_puts(to, "// - \"");
        text_put_text(to, text);
        text_puts(to, "\"\n");
    }
}

/* ---- types ---- */

static void put_type(struct text_buffer *to, const json_t *schema, int indent);

static void put_variant(struct text_buffer *to, const json_t *variant, int indent)
{
    typescript_indent(to, indent);
    text_puts(to, " | ");
    size_t mark = to->length;
    put_type(to, variant, indent + 3);
    typescript_nullable(variant, mark, to);
}

static void put_name(struct text_buffer *to, const json_t *object, const char *key, int indent)
{
    typescript_indent(to, indent);
    text_puts(to, key);
    text_puts(to, typescript_requires(object, key) ? ":" : "?:");
}

/* A property with a list `variants` in oneOf: a line for each, and a comma on its own. Its own
 * description stands above unless the first variant has the same; behind the first variant there is
 * none then. */
static void put_one_of(struct text_buffer *to, const json_t *object, const char *key,
                       const json_t *value, const json_t *variants, int indent)
{
    struct chat_text text = chat_json_text(json_object_get(value, "description"));
    for (size_t i = 0; i < json_array_size(variants) || i == 0; i++) {
        const json_t *variant = json_array_get(variants, i);
        struct chat_text own = chat_json_text(json_object_get(variant, "description"));
        bool same = text.data && own.data && own.length == text.length &&
                    memcmp(own.data, text.data, own.length) == 0;
        bool above = text.data && !same;
        if (i == 0) {
            if (above) put_comment(to, indent, text);
            if (json_object_get(value, "default")) {
                typescript_indent(to, indent);
                text_puts(to, "// ");
                put_default(to, value, false);
                text_puts(to, "\n");
            }
            put_name(to, object, key, indent);
            text_puts(to, "\n");
            if (!variant) break;
        }
        put_variant(to, variant, indent);
        if (same || (i == 0 && above)) own = (struct chat_text){0};
        put_trailing(to, variant, own, false);
        text_puts(to, "\n");
    }
    typescript_indent(to, indent);
    text_puts(to, ",\n");
}

static void put_property(struct text_buffer *to, const json_t *object, const char *key,
                         const json_t *value, int indent)
{
    const json_t *variants = json_object_get(value, "oneOf");
    struct chat_text title = chat_json_text(json_object_get(value, "title"));
    put_comment(to, indent, title);
    if (title.data) {
        typescript_indent(to, indent);
        text_puts(to, "//\n");
    }
    if (!variants) put_comment(to, indent, chat_json_text(json_object_get(value, "description")));
    put_examples(to, value, indent);
    if (json_is_array(variants)) {
        put_one_of(to, object, key, value, variants, indent);
        return;
    }
    put_name(to, object, key, indent);
    text_puts(to, " ");
    size_t mark = to->length;
    put_type(to, value, indent + 4);
    typescript_nullable(value, mark, to);
    text_puts(to, ",");
    if (!variants && json_object_get(value, "default")) {
        text_puts(to, " // ");
        put_default(to, value, false);
    }
    text_puts(to, "\n");
}

static void put_object(struct text_buffer *to, const json_t *schema, int indent)
{
    const char *key;
    json_t *value;
    put_comment(to, indent, chat_json_text(json_object_get(schema, "description")));
    text_puts(to, "{\n");
    json_object_foreach(json_object_get(schema, "properties"), key, value)
        put_property(to, schema, key, value, indent);
    typescript_indent(to, indent);
    text_puts(to, "}");
}

/* The strings of a list, with `quote` around each; false when it has none. */
static bool put_strings(struct text_buffer *to, const json_t *list, const char *quote)
{
    const char *between = "";
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct chat_text text = chat_json_text(json_array_get(list, i));
        if (!text.data) continue;
        if (!*quote && text_is(text, "integer")) text = CHAT_TEXT("number");
        text_puts(to, between);
        text_puts(to, quote);
        text_put_text(to, text);
        text_puts(to, quote);
        between = " | ";
    }
    return *between;
}

static void put_type(struct text_buffer *to, const json_t *schema, int indent)
{
    const json_t *variants = json_object_get(schema, "oneOf");
    const json_t *type = json_object_get(schema, "type"), *items = json_object_get(schema, "items");
    struct chat_text name = chat_json_text(type);
    if (json_is_array(variants)) {
        for (size_t i = 0; i < json_array_size(variants); i++) {
            const json_t *variant = json_array_get(variants, i);
            text_puts(to, "\n");
            put_variant(to, variant, indent);
            put_trailing(to, variant, chat_json_text(json_object_get(variant, "description")),
                         true);
        }
    } else if (json_is_array(type)) {
        if (!put_strings(to, type, "")) text_puts(to, "any");
    } else if (text_is(name, "object")) {
        put_object(to, schema, indent);
    } else if (text_is(name, "string")) {
        if (!put_strings(to, json_object_get(schema, "enum"), "\"")) text_puts(to, "string");
    } else if (text_is(name, "number") || text_is(name, "integer")) {
        text_puts(to, "number");
    } else if (text_is(name, "boolean")) {
        text_puts(to, "boolean");
    } else if (text_is(name, "array") && items) {
        put_type(to, items, indent);
        text_puts(to, "[]");
    } else {
        text_puts(to, text_is(name, "array") ? "Array<any>" : "any");
    }
}

enum sol_status typescript_schema(const json_t *schema, enum chat_types types,
                                  struct text_buffer *to)
{
    if (types == CHAT_TYPES_HARMONY) {
        put_type(to, schema, 0);
        return text_check(to, "a schema");
    }
    struct text_buffer out = {.most = TYPES_MAX};
    typescript_full(schema, &out);
    enum sol_status status = text_check(&out, "a schema");
    text_put_text(to, text_of(&out));
    text_buffer_free(&out);
    return status == SOL_OK ? text_check(to, "a schema") : status;
}

/* ---- tools ---- */

enum chat_types typescript_types_find(const char *name)
{
    return name && strcmp(name, "full") == 0 ? CHAT_TYPES_FULL : CHAT_TYPES_HARMONY;
}

/* Each line behind a line end. */
static void put_lines(struct text_buffer *to, struct chat_text text, const char *before)
{
    struct chat_text line;
    while (typescript_line(&text, &line)) {
        text_puts(to, "\n");
        text_puts(to, before);
        text_put_text(to, line);
    }
}

/* *written: bytes of all schemas so far. */
static enum sol_status put_tool(struct text_buffer *to, const struct chat_tool *tool,
                                enum chat_types types, size_t *written)
{
    const int name = tool->name.length < 64 ? (int)tool->name.length : 64;
    put_lines(to, tool->description, "// ");
    text_puts(to, "\ntype ");
    text_put_text(to, tool->name);
    text_puts(to, " = (");
    if (tool->parameters) {
        text_puts(to, "_: ");
        const size_t before = to->length;
        enum sol_status status = typescript_schema(tool->parameters, types, to);
        *written += to->length - before;
        if (status == SOL_OK && types == CHAT_TYPES_FULL && *written > TOOLS_MAX)
            status = status_set(SOL_E_UNSUPPORTED,
                                "all types together, references written out, take more than "
                                "%d KiB",
                                TOOLS_MAX >> 10);
        if (status != SOL_OK) return status_prefix(status, "tool '%.*s'", name, tool->name.data);
    }
    text_puts(to, ") => any;\n");
    return SOL_OK;
}

enum sol_status typescript_tools(const struct chat_tools *tools, enum chat_types types,
                                 struct text_buffer *to)
{
    size_t written = 0;
    if (tools->count) text_puts(to, "# Tools");
    for (size_t i = 0; i < tools->count; i++) {
        const struct chat_namespace *space = &tools->spaces[i];
        text_puts(to, "\n\n## ");
        text_put_text(to, space->name);
        text_puts(to, "\n");
        put_lines(to, space->description, space->n_tools ? "// " : "");
        if (space->n_tools == 0) continue;
        text_puts(to, "\nnamespace ");
        text_put_text(to, space->name);
        text_puts(to, " {\n");
        for (size_t n = 0; n < space->n_tools; n++)
            SOL_TRY(put_tool(to, &space->tools[n], types, &written));
        text_puts(to, "\n} // namespace ");
        text_put_text(to, space->name);
    }
    return text_check(to, "the tools");
}
