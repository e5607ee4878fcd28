/* How far what-if was off for changes that were made, byte for byte, in read-only data. */
    .section .rodata.sol_whatif_error,"a",%progbits
    .globl sol_whatif_error
    .hidden sol_whatif_error
    .type sol_whatif_error, %object
sol_whatif_error:
    .incbin SOL_WHATIF_ERROR
    .byte 0
    .size sol_whatif_error, . - sol_whatif_error

    .section .note.GNU-stack,"",%progbits
