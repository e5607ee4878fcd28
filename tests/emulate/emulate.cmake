# libcuda.so.1 that computes: the fake driver with the kernels, compiled for the processor as they are, but
# for attention_prefill. g++ because of -fno-extern-tls-init: shared memory is thread-local,
# and has no initialisation to look for. SOL_EMULATED_GPU is its folder, or empty.
include(CheckLanguage)
check_language(CXX)
set(SOL_EMULATED_GPU "")
if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER AND NOT CMAKE_CROSSCOMPILING AND NOT SOL_SAN_FLAGS)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_C_COMPILER_LAUNCHER})
  enable_language(CXX)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(SOL_EMULATED_GPU ${CMAKE_BINARY_DIR}/emulated_gpu)
  file(GLOB emulated CONFIGURE_DEPENDS kernels/*/*.cu)
  list(FILTER emulated EXCLUDE REGEX "attention_prefill.cu|/ceiling/(math|wgmma)")
  set_property(SOURCE ${emulated} PROPERTY LANGUAGE CXX)
  set_property(SOURCE ${emulated} PROPERTY COMPILE_OPTIONS -xc++ -include emulate.hpp)
  set_property(SOURCE kernels/grouped_gemm/grouped_tcgen05.cu PROPERTY COMPILE_OPTIONS
    -xc++ -include emulate_tcgen05.hpp)
  set(emulated_wgmma ${emulated})
  list(FILTER emulated_wgmma INCLUDE REGEX "(_wgmma|_ladder|attn_out_many|moe_few|moe_several).cu")
  # -O1 compiles them in half the time. They run as fast: what takes time is what they call.
  set_property(SOURCE ${emulated_wgmma} PROPERTY COMPILE_OPTIONS
    -xc++ -include emulate_wgmma.hpp -fstack-reuse=none -O1)
  # emulate.cpp copies so many bytes of arguments where a kernel's name says nothing else (FEW there).
  file(GLOB args_headers CONFIGURE_DEPENDS kernels/*/*_args.h)
  foreach(header IN LISTS args_headers)
    file(STRINGS ${header} sizes REGEX "sizeof\\(struct [a-z0-9_]+\\) == [0-9]+")
    foreach(line IN LISTS sizes)
      string(REGEX MATCH "struct ([a-z0-9_]+)\\) == ([0-9]+)" size "${line}")
      set(name ${CMAKE_MATCH_1})
      if(CMAKE_MATCH_2 GREATER 768 AND NOT name MATCHES "^(grouped_|gemm_wgmma_args$)")
        message(FATAL_ERROR "${header}: emulate_args_bytes() in tests/emulate/emulate.cpp takes less of ${name}")
      endif()
    endforeach()
  endforeach()
  add_library(emulated_threads SHARED tests/emulate/threads.cpp)
  add_library(emulated_gpu SHARED ${emulated} tests/emulate/emulate.cpp
    tests/emulate/emulate_async.cpp tests/emulate/emulate_tcgen05.cpp tests/emulate/emulate_wgmma.cpp
    tests/inject/fake_gpu.c ${fake_cuda})
  set_target_properties(emulated_gpu PROPERTIES PREFIX "" OUTPUT_NAME libcuda SUFFIX .so.1)
  foreach(library emulated_threads emulated_gpu)
    set_target_properties(${library} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${SOL_EMULATED_GPU} CXX_STANDARD 17)
    target_compile_definitions(${library} PRIVATE _GNU_SOURCE)
    target_include_directories(${library} PRIVATE tests/emulate kernels include src tests)
    # Optimised in every build, or it takes minutes.
    target_compile_options(${library} PRIVATE -O2 $<$<COMPILE_LANGUAGE:CXX>:-fno-extern-tls-init
      -fno-strict-aliasing -ffp-contract=off -Wno-enum-compare -Wno-psabi -Wno-unknown-pragmas>)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(${SOL_X86})$")
      target_compile_options(${library} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-mtls-dialect=gnu2>)
    endif()
  endforeach()
  target_link_libraries(emulated_gpu PRIVATE emulated_threads Threads::Threads ${CMAKE_DL_LIBS})
  add_library(emulated_nvrtc SHARED tests/emulate/fake_nvrtc.c)
  set_target_properties(emulated_nvrtc PROPERTIES PREFIX "" OUTPUT_NAME libnvrtc SUFFIX .so.13
    LIBRARY_OUTPUT_DIRECTORY ${SOL_EMULATED_GPU})
endif()
list(APPEND SOL_TEST_ENV SOL_EMULATED_GPU=${SOL_EMULATED_GPU})
