# Kernels: every kernels/<op>/<name>.cu becomes a fat binary that libsol embeds beside its source, with
# the table src/gpu/kernel.h declares. Without nvcc the sources alone are embedded, and NVRTC compiles
# them on the user's machine.
#
#   SOL_CUDA_ARCHS   "90a" and the like; "all": what a release ships; "tested": 90a, and in a file with a line
#                    "// needs: 100a" that too, as what is in it is that architecture's alone. Default: 90a.
#   SOL_KERNELS_KEPT folder of what other build folders compiled already
find_program(SOL_NVCC nvcc HINTS /usr/local/cuda/bin $ENV{CUDA_HOME}/bin)
set(SOL_CUDA_ARCHS "90a" CACHE STRING "GPU architectures to compile for, or all, or tested")
set(SOL_KERNELS_KEPT "${CMAKE_SOURCE_DIR}/build-kernels/kept" CACHE PATH "Compiled kernels, for all build folders")
set(archs ${SOL_CUDA_ARCHS})
if(archs STREQUAL "all")
  set(archs 80 90a 100a 120a 121a)
endif()

# The compiler's options for a file.
function(gencode_of source out)
  set(of ${archs})
  if(archs STREQUAL "tested")
    file(STRINGS ${source} needs REGEX "^// needs: ")
    string(REPLACE "// needs: " "" needs "${needs}")
    set(of 90a ${needs})
  endif()
  set(options "")
  foreach(arch ${of})
    list(APPEND options -gencode arch=compute_${arch},code=sm_${arch})
  endforeach()
  # PTX of the oldest: what every later card can compile.
  list(APPEND options -gencode arch=compute_80,code=compute_80)
  set(${out} ${options} PARENT_SCOPE)
endfunction()

file(GLOB kernel_files CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/kernels kernels/*/*.cu)
file(GLOB kernel_headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/kernels
  kernels/*.h kernels/*.cuh kernels/*.list kernels/*/*.h kernels/*/*.cuh)

set(asm "/* Made by cmake/kernels.cmake. */\n    .section .rodata.sol_kernels,\"a\",%progbits\n")
set(images "")
set(headers "")
set(externs "")
set(embedded "")
set(embed_number 0)
set(fatbins "")

# Appends a file to the assembly, between two symbols, with a NUL behind it.
function(embed path out)
  set(symbol sol_embedded_${embed_number})
  math(EXPR next "${embed_number} + 1")
  set(embed_number ${next} PARENT_SCOPE)
  string(APPEND asm "    .balign 64\n    .globl ${symbol}\n    .hidden ${symbol}\n${symbol}:\n"
    "    .incbin \"${path}\"\n    .globl ${symbol}_end\n    .hidden ${symbol}_end\n${symbol}_end:\n"
    "    .byte 0\n")
  set(asm "${asm}" PARENT_SCOPE)
  string(APPEND externs "extern const char ${symbol}[], ${symbol}_end[];\n")
  set(externs "${externs}" PARENT_SCOPE)
  set(embedded ${embedded} ${path} PARENT_SCOPE)
  set(${out} ${symbol} PARENT_SCOPE)
endfunction()

set(header_paths ${kernel_headers})
list(TRANSFORM header_paths PREPEND ${CMAKE_SOURCE_DIR}/kernels/)
foreach(file ${kernel_files})
  set(source ${CMAKE_SOURCE_DIR}/kernels/${file})
  embed(${source} text)
  set(fatbin "NULL")
  if(SOL_NVCC)
    string(REPLACE "/" "_" flat ${file})
    set(output ${CMAKE_BINARY_DIR}/kernels/${flat}.fatbin)
    gencode_of(${source} gencode)
    add_custom_command(OUTPUT ${output}
      COMMAND ${CMAKE_SOURCE_DIR}/tools/compile_kernel
        ${SOL_NVCC} ${SOL_KERNELS_KEPT} ${source} ${output} ${gencode}
      DEPENDS ${source} ${header_paths} ${CMAKE_SOURCE_DIR}/tools/compile_kernel VERBATIM)
    embed(${output} fatbin)
    list(APPEND fatbins ${output})
  endif()
  string(APPEND images "    {\"${file}\", ${fatbin}, ${text}},\n")
endforeach()
foreach(file ${kernel_headers})
  embed(${CMAKE_SOURCE_DIR}/kernels/${file} text)
  string(APPEND headers "    {\"${file}\", ${text}},\n")
endforeach()
add_custom_target(kernels DEPENDS ${fatbins}) # these alone, to see that an architecture compiles
string(APPEND asm "    .section .note.GNU-stack,\"\",%progbits\n")

file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/kernels)
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/kernels/embedded.S CONTENT "${asm}")
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/kernels/table.c CONTENT
  "/* Made by cmake/kernels.cmake. */\n#include \"gpu/kernel.h\"\n\n${externs}\nconst struct gpu_image gpu_images[] = {\n${images}    {0},\n};\nconst struct gpu_source_header gpu_headers[] = {\n${headers}    {0},\n};\n")
set(SOL_KERNELS ${CMAKE_BINARY_DIR}/kernels/embedded.S ${CMAKE_BINARY_DIR}/kernels/table.c)
set_property(SOURCE ${CMAKE_BINARY_DIR}/kernels/embedded.S PROPERTY OBJECT_DEPENDS "${embedded}")
