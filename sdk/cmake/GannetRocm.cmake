# Plugins for AMD GPUs, where a compiler for HIP and its runtime are found: sets GANNET_HAS_ROCM.
#
#   -DGANNET_ROCM=AUTO                       build them where both are found (the default); ON: they must be; OFF: never
#   -DGANNET_ROCM_ARCHITECTURES="gfx90a;gfx942"    the processors that kernels are compiled for
#   -DGANNET_HIP_COMPILER=/path/to/clang++   ROCm's amdclang++, or a clang++ of version 17 or newer with its tools and lld
#   -DROCM_PATH=/opt/rocm                    where ROCm is installed, besides the system's own folders
#
# CMake's language HIP is not used, for it needs ROCm's own CMake files. Kernels need the compiler's builtins alone: no
# device library, and of HIP's headers the runtime's.
set(GANNET_ROCM AUTO CACHE STRING "Build the plugins for AMD GPUs: AUTO (where a HIP compiler and the runtime are), ON or OFF")
set_property(CACHE GANNET_ROCM PROPERTY STRINGS AUTO ON OFF)
set(GANNET_ROCM_ARCHITECTURES gfx90a gfx942 CACHE STRING "AMD processors that kernels are compiled for")
set(GANNET_HAS_ROCM OFF)
set(_rocm_missing "")

# The flags of every unit. -include: the C++ library's headers, which the compiler wraps, use HIP's keywords.
set(GANNET_HIP_FLAGS -x hip -nogpuinc -nogpulib -include gannet/elementwise/gpu_runtime.h -std=c++17 -O2 -fPIC -fvisibility=hidden
  -fvisibility-inlines-hidden -ffp-contract=off)
foreach(_processor IN LISTS GANNET_ROCM_ARCHITECTURES)
  list(APPEND GANNET_HIP_FLAGS --offload-arch=${_processor})
endforeach()

if(GANNET_ROCM STREQUAL "AUTO" OR GANNET_ROCM)
  set(_rocm_hints ${ROCM_PATH} $ENV{ROCM_PATH} /opt/rocm)
  find_program(GANNET_HIP_COMPILER NAMES amdclang++ clang++-21 clang++-20 clang++-19 clang++-18 clang++-17 clang++ HINTS ${_rocm_hints}
    PATH_SUFFIXES bin llvm/bin DOC "A clang++ that compiles HIP")
  find_path(GANNET_HIP_INCLUDE_DIR hip/hip_runtime_api.h HINTS ${_rocm_hints} PATH_SUFFIXES include)
  find_library(GANNET_HIP_LIBRARY amdhip64 HINTS ${_rocm_hints} PATH_SUFFIXES lib lib64)
  mark_as_advanced(GANNET_HIP_COMPILER GANNET_HIP_INCLUDE_DIR GANNET_HIP_LIBRARY)
  if(NOT GANNET_HIP_INCLUDE_DIR OR NOT GANNET_HIP_LIBRARY)
    set(_rocm_missing "HIP's runtime (hip/hip_runtime_api.h and libamdhip64.so) was not found")
  elseif(NOT GANNET_HIP_COMPILER)
    set(_rocm_missing "no clang++ was found")
  else()
    # A clang without its bundler or lld, or too old for a processor, says so on the smallest kernel. Tried once.
    set(_probed "${GANNET_HIP_COMPILER} ${GANNET_ROCM_ARCHITECTURES} ${GANNET_HIP_INCLUDE_DIR}")
    if(NOT "${_probed}" STREQUAL "${GANNET_ROCM_PROBED}")
      file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/rocm/probe.cpp @ONLY CONTENT
        "#define __HIP_PLATFORM_AMD__ 1\n#include <hip/hip_runtime_api.h>\n__global__ void probe(int* x) { *x = 1; }\n")
      set(_offloads ${GANNET_ROCM_ARCHITECTURES})
      list(TRANSFORM _offloads PREPEND --offload-arch=)
      execute_process(COMMAND ${GANNET_HIP_COMPILER} -x hip -nogpuinc -nogpulib ${_offloads} -I${GANNET_HIP_INCLUDE_DIR} -c
        -o ${CMAKE_BINARY_DIR}/rocm/probe.o ${CMAKE_BINARY_DIR}/rocm/probe.cpp RESULT_VARIABLE _failed ERROR_VARIABLE _errors OUTPUT_QUIET)
      string(REGEX MATCH "[^\n]*error[^\n]*" _error "${_errors}")
      if(_failed AND NOT _error)
        set(_error "${_failed}")
      elseif(NOT _failed)
        set(_error "")
      endif()
      set(GANNET_ROCM_PROBED "${_probed}" CACHE INTERNAL "")
      set(GANNET_ROCM_PROBE_ERROR "${_error}" CACHE INTERNAL "")
    endif()
    if(GANNET_ROCM_PROBE_ERROR)
      list(JOIN GANNET_ROCM_ARCHITECTURES ", " _processors)
      set(_rocm_missing "${GANNET_HIP_COMPILER} does not compile HIP for ${_processors} (${GANNET_ROCM_PROBE_ERROR})")
    else()
      file(STRINGS ${GANNET_HIP_INCLUDE_DIR}/hip/hip_version.h _lines REGEX "define HIP_VERSION_(MAJOR|MINOR) ")
      string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*" "\\1.\\2" GANNET_HIP_VERSION "${_lines}")
      set(GANNET_HAS_ROCM ON)
    endif()
  endif()
endif()

if(_rocm_missing AND NOT GANNET_ROCM STREQUAL "AUTO")
  message(FATAL_ERROR "GANNET_ROCM is ON, but ${_rocm_missing}: install ROCm (Debian: libamdhip64-dev clang-19 clang-tools-19 lld-19), "
    "or name the compiler with -DGANNET_HIP_COMPILER=/path/to/clang++ and the folder with -DROCM_PATH=/path")
endif()
get_property(_is_said GLOBAL PROPERTY GANNET_ROCM_STATUS)
if(NOT _is_said)
  set_property(GLOBAL PROPERTY GANNET_ROCM_STATUS TRUE)
  if(GANNET_HAS_ROCM)
    list(JOIN GANNET_ROCM_ARCHITECTURES " " _processors)
    message(STATUS "ROCm: ${GANNET_HIP_COMPILER}, HIP ${GANNET_HIP_VERSION}, for ${_processors}; its plugins have never run on an AMD GPU")
  elseif(_rocm_missing)
    message(STATUS "ROCm: ${_rocm_missing}, so its plugins are not built")
  endif()
endif()

# Objects of a target's sources in HIP, which see the target's include folders and definitions: _gannet_hip_objects(OUT target file...)
function(_gannet_hip_objects out target)
  set(objects "")
  foreach(source IN LISTS ARGN)
    get_filename_component(path ${source} ABSOLUTE)
    get_filename_component(name ${source} NAME)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${target}.dir/${name}.hip.o)
    set(includes "$<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>")
    set(definitions "$<TARGET_PROPERTY:${target},COMPILE_DEFINITIONS>")
    add_custom_command(OUTPUT ${object} VERBATIM COMMAND_EXPAND_LISTS DEPENDS ${path} DEPFILE ${object}.d
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/${target}.dir
      COMMAND ${GANNET_HIP_COMPILER} ${GANNET_HIP_FLAGS} "$<$<BOOL:${includes}>:-I$<JOIN:${includes},;-I>>"
              "$<$<BOOL:${definitions}>:-D$<JOIN:${definitions},;-D>>" -I${GANNET_HIP_INCLUDE_DIR} -MD -MF ${object}.d -MT ${object}
              -c -o ${object} ${path}
      COMMENT "Building HIP object ${name} of ${target}")
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    list(APPEND objects ${object})
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()
