/* Continues a text with the C API of sol: the likeliest token each time, until the model stops.
 *
 *     cc continue.c $(pkg-config --cflags --libs sol) -o continue
 *     ./continue "Once upon a time" [TOKENS [MODEL.gguf [BACKEND]]]
 *
 * BACKEND is cpu (the default), cuda, or auto: a GPU where there is one that can.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sol/sol.h>

enum { PROMPT_MAX = 4096 };

static int fail(const char *what)
{
    fprintf(stderr, "continue: %s: %s\n", what, sol_last_error());
    return 1;
}

static int print_token(const struct sol_model *model, int32_t id)
{
    char text[1024];
    size_t length;
    if (sol_model_decode(model, &id, 1, text, sizeof text, &length) != SOL_OK)
        return fail("cannot decode");
    fwrite(text, 1, length < sizeof text ? length : sizeof text, stdout);
    return fflush(stdout) != 0;
}

/* Writes at most `limit` tokens after the prompt. */
static int generate(struct sol_model *model, struct sol_session *session,
                    struct sol_sampler *sampler, const char *prompt, int limit)
{
    int32_t ids[PROMPT_MAX];
    size_t count, begin = 0;
    if (sol_model_begin(model) >= 0) ids[begin++] = sol_model_begin(model);
    if (sol_model_encode(model, prompt, strlen(prompt), false, ids + begin, PROMPT_MAX - begin,
                         &count) != SOL_OK)
        return fail("cannot encode the prompt");
    if (count > PROMPT_MAX - begin) {
        fprintf(stderr, "continue: the prompt has %zu tokens, %d are possible\n", count,
                PROMPT_MAX);
        return 1;
    }
    count += begin;
    for (int i = 0; i < limit; i++) {
        int32_t id;
        if (sol_session_eval(session, ids, count) != SOL_OK) return fail("cannot evaluate");
        if (sol_sampler_next(sampler, sol_session_logits(session), &id) != SOL_OK)
            return fail("cannot sample");
        if (sol_model_is_stop(model, id)) break;
        if (print_token(model, id) != 0) return 1;
        ids[0] = id;
        count = 1;
    }
    putchar('\n');
    return 0;
}

int main(int argc, char **argv)
{
    struct sol_model *model = NULL;
    struct sol_session *session = NULL;
    struct sol_sampler *sampler = NULL;
    struct sol_model_params params;
    struct sol_sampler_params greedy;
    int status = 1;
    if (argc < 2) {
        fprintf(stderr, "usage: continue TEXT [TOKENS [MODEL.gguf [BACKEND]]]\n");
        return 2;
    }
    sol_model_params_init(&params);
    if (argc > 4) params.backend = argv[4];
    sol_sampler_params_init(&greedy);
    greedy.temperature = 0;
    if (sol_model_open(argc > 3 ? argv[3] : NULL, &params, &model) != SOL_OK)
        fail("cannot open the model");
    else if (sol_session_create(model, NULL, &session) != SOL_OK)
        fail("cannot create a session");
    else if (sol_sampler_create(model, &greedy, &sampler) != SOL_OK)
        fail("cannot create a sampler");
    else
        status = generate(model, session, sampler, argv[1], argc > 2 ? atoi(argv[2]) : 64);
    sol_sampler_destroy(sampler);
    sol_session_destroy(session);
    sol_model_close(model);
    return status;
}
