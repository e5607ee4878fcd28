/* The built-in model, byte for byte, in read-only data. 64-byte alignment keeps the tensor data that
 * GGUF aligns within the file aligned in memory too. Without SOL_BUILTIN_GGUF (set by the build when
 * models/builtin.gguf exists) start and end coincide. */
    .section .rodata.sol_builtin_model,"a",%progbits
    .balign 64
    .globl sol_builtin_model
    .hidden sol_builtin_model
    .type sol_builtin_model, %object
sol_builtin_model:
#ifdef SOL_BUILTIN_GGUF
    .incbin SOL_BUILTIN_GGUF
#endif
    .globl sol_builtin_model_end
    .hidden sol_builtin_model_end
    .type sol_builtin_model_end, %object
sol_builtin_model_end:
    .byte 0
    .size sol_builtin_model, sol_builtin_model_end - sol_builtin_model

    .section .note.GNU-stack,"",%progbits
