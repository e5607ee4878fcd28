#include "chat/builtin_tools.h"

#include "chat/json.h"

/* These texts are what the model saw in training, byte by byte, and so data of the format (source:
 * openai-harmony 0.0.8, ToolNamespaceConfig.browser and .python). tools/chat compares them. */
static const char browser_json[] =
    "{\"name\": \"browser\", \"description\": \"Tool for browsing.\\nThe `cursor` appears in "
    "brackets before each browsing display: `[{cursor}]`.\\nCite information from the tool using "
    "the following format:\\n`【{cursor}†L{line_start}(-L{line_end})?】`, for example: "
    "`【6†L9-L11】` or `【8†L3】`.\\nDo not quote more than 10 words directly from the tool "
    "output.\\nsources=web (default: web)\", \"tools\": ["
    "{\"name\": \"search\", \"description\": \"Searches for information related to `query` and "
    "displays `topn` results.\", \"parameters\": {\"type\": \"object\", \"properties\": {"
    "\"query\": {\"type\": \"string\"}, \"topn\": {\"type\": \"number\", \"default\": 10}, "
    "\"source\": {\"type\": \"string\"}}, \"required\": [\"query\"]}},"
    "{\"name\": \"open\", \"description\": \"Opens the link `id` from the page indicated by "
    "`cursor` starting at line number `loc`, showing `num_lines` lines.\\nValid link ids are "
    "displayed with the formatting: `【{id}†.*】`.\\nIf `cursor` is not provided, the most recent "
    "page is implied.\\nIf `id` is a string, it is treated as a fully qualified URL associated "
    "with `source`.\\nIf `loc` is not provided, the viewport will be positioned at the beginning "
    "of the document or centered on the most relevant passage, if available.\\nUse this function "
    "without `id` to scroll to a new location of an opened page.\", \"parameters\": {\"type\": "
    "\"object\", \"properties\": {\"id\": {\"type\": [\"number\", \"string\"], \"default\": -1}, "
    "\"cursor\": {\"type\": \"number\", \"default\": -1}, \"loc\": {\"type\": \"number\", "
    "\"default\": -1}, \"num_lines\": {\"type\": \"number\", \"default\": -1}, \"view_source\": "
    "{\"type\": \"boolean\", \"default\": false}, \"source\": {\"type\": \"string\"}}}},"
    "{\"name\": \"find\", \"description\": \"Finds exact matches of `pattern` in the current "
    "page, or the page given by `cursor`.\", \"parameters\": {\"type\": \"object\", "
    "\"properties\": {\"pattern\": {\"type\": \"string\"}, \"cursor\": {\"type\": \"number\", "
    "\"default\": -1}}, \"required\": [\"pattern\"]}}]}";

static const char python_json[] =
    "{\"name\": \"python\", \"description\": \"Use this tool to execute Python code in your chain "
    "of thought. The code will not be shown to the user. This tool should be used for internal "
    "reasoning, but not for code that is intended to be visible to the user (e.g. when creating "
    "plots, tables, or files).\\n\\nWhen you send a message containing Python code to python, it "
    "will be executed in a stateful Jupyter notebook environment. python will respond with the "
    "output of the execution or time out after 120.0 seconds. The drive at '/mnt/data' can be "
    "used to save and persist user files. Internet access for this session is UNKNOWN. Depends "
    "on the cluster.\", \"tools\": []}";

enum sol_status builtin_tools_add(struct conversation *c, struct chat_tools *tools,
                                  const char *name)
{
    const char *text = strcmp(name, "browser") == 0  ? browser_json
                       : strcmp(name, "python") == 0 ? python_json
                                                     : NULL;
    json_t *json;
    struct chat_namespace space = {0};
    if (!text)
        return status_set(SOL_E_ARGUMENT,
                          "there is no built-in tool '%s': they are browser and python", name);
    SOL_TRY(chat_json_read(text, strlen(text), name, &json));
    enum sol_status status = chat_namespace_read(c, json, &space);
    if (status == SOL_OK) status = conversation_keep(c, json);
    json_decref(json);
    space.key = space.name;
    return status == SOL_OK ? chat_tools_add(c, tools, &space) : status;
}
