/* The library that `sol profile` injects, byte for byte (libsol_inject.so of the same build). */
    .section .rodata.sol_inject_library,"a",%progbits
    .balign 64
    .globl sol_inject_library
    .hidden sol_inject_library
    .type sol_inject_library, %object
sol_inject_library:
    .incbin SOL_INJECT_LIBRARY
    .globl sol_inject_library_end
    .hidden sol_inject_library_end
    .type sol_inject_library_end, %object
sol_inject_library_end:
    .byte 0
    .size sol_inject_library, sol_inject_library_end - sol_inject_library

    .section .note.GNU-stack,"",%progbits
