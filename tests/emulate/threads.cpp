/* What emulate.hpp calls near, of all files of the emulation. */
#include "emulate.hpp"
#include "schedule.hpp"

struct worker;
struct async_state;
extern EMULATED_NEAR worker *mine;
extern EMULATED_NEAR async_state *state;

EMULATED_NEAR emulated_block emulated;
EMULATED_NEAR emulated_index threadIdx, blockIdx, gridDim, blockDim;
EMULATED_NEAR worker *mine;
EMULATED_NEAR bool async_used;
EMULATED_NEAR async_state *state;
