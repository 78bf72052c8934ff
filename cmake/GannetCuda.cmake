# CUDA, where there is a compiler for it: sets GANNET_HAS_CUDA, which the CUDA plugins' folders ask. The core never needs it.
#
#   -DGANNET_CUDA=AUTO   build the CUDA plugins if nvcc is found (the default); ON: it must be found; OFF: never
set(GANNET_CUDA AUTO CACHE STRING "Build the CUDA plugins: AUTO (where nvcc is), ON or OFF")
set_property(CACHE GANNET_CUDA PROPERTY STRINGS AUTO ON OFF)
set(GANNET_HAS_CUDA OFF)
set(_cuda_missing "")

if(GANNET_CUDA STREQUAL "AUTO" OR GANNET_CUDA)
  find_program(GANNET_NVCC nvcc HINTS $ENV{CUDACXX} ${CMAKE_CUDA_COMPILER} ${CUDAToolkit_ROOT}/bin $ENV{CUDA_HOME}/bin PATHS /usr/local/cuda/bin
    $ENV{GANNET_CACHE}/cuda/nvidia/cu13/bin $ENV{XDG_CACHE_HOME}/gannet/cuda/nvidia/cu13/bin
    $ENV{HOME}/.cache/gannet/cuda/nvidia/cu13/bin  # of scripts/setup.sh --gpu-code
    DOC "The CUDA compiler")
  mark_as_advanced(GANNET_NVCC)
  if(NOT GANNET_NVCC)
    set(_cuda_missing "nvcc was not found")
  else()
    # Ampere and Hopper in machine code, and as PTX for what comes after. Before enable_language, which has a default of its own.
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80 90 CACHE STRING "Compute capabilities that the CUDA kernels are compiled for")
    endif()
    if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
      set(ENV{CUDACXX} ${GANNET_NVCC})
    endif()
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
      enable_language(CUDA)
      set(CMAKE_CUDA_STANDARD 17)
      set(CMAKE_CUDA_STANDARD_REQUIRED ON)
      set(CMAKE_CUDA_EXTENSIONS OFF)
      find_package(CUDAToolkit REQUIRED)
      set(GANNET_HAS_CUDA ON)
      message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER} ${CMAKE_CUDA_COMPILER_VERSION}, for compute capabilities ${CMAKE_CUDA_ARCHITECTURES}")
    else()
      set(_cuda_missing "${GANNET_NVCC} does not work with this C++ compiler")
    endif()
  endif()
endif()

if(_cuda_missing)
  if(GANNET_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA: ${_cuda_missing}, so its plugins are not built")
  else()
    message(FATAL_ERROR "GANNET_CUDA is ON, but ${_cuda_missing}: run scripts/setup.sh --gpu-code, install the CUDA toolkit, or name its compiler with -DCMAKE_CUDA_COMPILER=/path/to/nvcc")
  endif()
endif()
