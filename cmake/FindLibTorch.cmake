# Finds LibTorch without find_package(Torch), which would ask for the CUDA toolkit and link the CUDA half.
#
#   LibTorch::cpu    libtorch_cpu and libc10, with the include folders and the fingerprint's definitions
#   LibTorch::cuda   adds libtorch_cuda and libc10_cuda (only where they are; link it from plugins alone)
#
# Looks at LIBTORCH_ROOT (variable or environment), Torch_DIR, CMAKE_PREFIX_PATH, then where scripts/setup.sh puts it, then /opt/libtorch.
# Sets LibTorch_VERSION, LibTorch_CUDA_VERSION ("none" for a CPU build), LibTorch_ROOT, LibTorch_FINGERPRINT,
# LibTorch_VENDOR ("cuda=13.0").

set(_libtorch_hints "")
if(LIBTORCH_ROOT)
  list(APPEND _libtorch_hints ${LIBTORCH_ROOT})
elseif(DEFINED ENV{LIBTORCH_ROOT})
  list(APPEND _libtorch_hints $ENV{LIBTORCH_ROOT})
endif()
if(_libtorch_hints AND NOT EXISTS "${_libtorch_hints}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "LIBTORCH_ROOT is '${_libtorch_hints}', which holds no lib/libtorch_cpu.so: name the folder that contains LibTorch's include/ and lib/")
endif()
if(NOT _libtorch_hints)
  if(Torch_DIR)
    list(APPEND _libtorch_hints ${Torch_DIR}/../../..)
  endif()
  foreach(_prefix ${CMAKE_PREFIX_PATH})
    list(APPEND _libtorch_hints ${_prefix} ${_prefix}/../..)
  endforeach()
  if(DEFINED ENV{GANNET_CACHE})
    list(APPEND _libtorch_hints $ENV{GANNET_CACHE}/libtorch/torch)
  endif()
  list(APPEND _libtorch_hints $ENV{XDG_CACHE_HOME}/gannet/libtorch/torch $ENV{HOME}/.cache/gannet/libtorch/torch
    /opt/libtorch)  # where Gannet's Debian packages look for it
endif()
# Another LibTorch than at the last configuration of this build folder: the cached answer is of the former.
if(LibTorch_ROOT AND (LIBTORCH_ROOT OR DEFINED ENV{LIBTORCH_ROOT}))
  file(REAL_PATH "${LibTorch_ROOT}" _libtorch_cached)
  file(REAL_PATH "${_libtorch_hints}" _libtorch_wanted)
  if(NOT _libtorch_cached STREQUAL _libtorch_wanted)
    unset(LibTorch_ROOT CACHE)
  endif()
endif()
find_path(LibTorch_ROOT NAMES lib/libtorch_cpu.so PATHS ${_libtorch_hints} NO_DEFAULT_PATH)

if(LibTorch_ROOT)
  if(EXISTS ${LibTorch_ROOT}/include/torch/headeronly/version.h)
    set(_version_header ${LibTorch_ROOT}/include/torch/headeronly/version.h)
  else()
    set(_version_header ${LibTorch_ROOT}/include/torch/csrc/api/include/torch/version.h)
  endif()
  file(STRINGS ${_version_header} _version_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" LibTorch_VERSION "${_version_lines}")
  # The CUDA that it was built for: the wheel says it in version.py, the zip in build-version.
  set(LibTorch_CUDA_VERSION none)
  if(EXISTS ${LibTorch_ROOT}/version.py)
    file(STRINGS ${LibTorch_ROOT}/version.py _cuda REGEX "^cuda.*= '[0-9.]+'")
    if(_cuda)
      string(REGEX REPLACE ".*'([0-9.]+)'.*" "\\1" LibTorch_CUDA_VERSION "${_cuda}")
    endif()
  elseif(EXISTS ${LibTorch_ROOT}/build-version)
    file(STRINGS ${LibTorch_ROOT}/build-version _cuda REGEX "cu[0-9]+")
    if(_cuda)
      string(REGEX REPLACE ".*cu([0-9]+)([0-9])$" "\\1.\\2" LibTorch_CUDA_VERSION "${_cuda}")
    endif()
  endif()
  # Commas: a semicolon would split it wherever CMake sees a list.
  set(LibTorch_FINGERPRINT "torch=${LibTorch_VERSION},cxx11abi=1,compiler=itanium-libstdc++")
  set(LibTorch_VENDOR "cuda=${LibTorch_CUDA_VERSION}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LibTorch_ROOT VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "no lib/libtorch_cpu.so found: run scripts/setup.sh, or name a LibTorch with -DLIBTORCH_ROOT=/path/to/libtorch")

if(LibTorch_FOUND AND LibTorch_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "LibTorch ${LibTorch_VERSION} in ${LibTorch_ROOT} is too old: Gannet needs 2.11 or newer")
endif()
if(LibTorch_FOUND AND NOT TARGET LibTorch::cpu)
  add_library(LibTorch::cpu INTERFACE IMPORTED)
  target_include_directories(LibTorch::cpu SYSTEM INTERFACE ${LibTorch_ROOT}/include ${LibTorch_ROOT}/include/torch/csrc/api/include)
  target_compile_definitions(LibTorch::cpu INTERFACE _GLIBCXX_USE_CXX11_ABI=1 USE_C10D_GLOO USE_DISTRIBUTED)
  # no-as-needed: LibTorch's operators register themselves when it loads, whether or not a symbol is used.
  target_link_options(LibTorch::cpu INTERFACE -Wl,-rpath,${LibTorch_ROOT}/lib)
  target_link_libraries(LibTorch::cpu INTERFACE -Wl,--push-state,--no-as-needed ${LibTorch_ROOT}/lib/libtorch_cpu.so ${LibTorch_ROOT}/lib/libc10.so -Wl,--pop-state)
  if(EXISTS ${LibTorch_ROOT}/lib/libtorch_cuda.so)
    add_library(LibTorch::cuda INTERFACE IMPORTED)
    target_link_libraries(LibTorch::cuda INTERFACE LibTorch::cpu -Wl,--push-state,--no-as-needed,--allow-shlib-undefined
      ${LibTorch_ROOT}/lib/libtorch_cuda.so ${LibTorch_ROOT}/lib/libc10_cuda.so -Wl,--pop-state)
  endif()
endif()
mark_as_advanced(LibTorch_ROOT)
