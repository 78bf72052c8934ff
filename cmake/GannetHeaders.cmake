# Headers that are compiled once. GANNET_PRECOMPILED_HEADERS off: every file is checked for includes of its own (the presets debug,
# asan and tsan).
option(GANNET_PRECOMPILED_HEADERS "Compile LibTorch's headers once" ON)

# torch/torch.h, for libraries and programs with modules of their own: 5 s a file in place of 18. One for all of them, since it takes
# half a minute itself: programs are compiled as libraries are (-fPIC), and it has GoogleTest's headers, too, where tests are built.
# What uses it calls LibTorch's operators and has no hot loop of its own: -O1 takes half as long again to compile as -Og, -O3 twice,
# for nothing.
function(gannet_use_torch_headers target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Og>)
  if(GANNET_PRECOMPILED_HEADERS)
    target_compile_options(${target} PRIVATE -fPIC)
    target_precompile_headers(${target} REUSE_FROM gannet_torch_headers)
    if(GANNET_BUILD_TESTS)  # a header is taken where the same macros are defined
      target_compile_options(${target} PRIVATE $<TARGET_PROPERTY:GTest::gtest,INTERFACE_COMPILE_OPTIONS>)
    endif()
  endif()
endfunction()

function(gannet_make_torch_headers)
  if(NOT GANNET_PRECOMPILED_HEADERS)
    return()
  endif()
  set(headers <torch/torch.h>)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/torch_headers.cpp "// Carries the precompiled header.\nint main() {}\n")
  add_executable(gannet_torch_headers ${CMAKE_CURRENT_BINARY_DIR}/torch_headers.cpp)
  target_link_libraries(gannet_torch_headers PRIVATE gannet::core)
  target_compile_options(gannet_torch_headers PRIVATE $<$<CONFIG:Release>:-Og> -fPIC)
  if(GANNET_BUILD_TESTS)
    find_package(GTest REQUIRED)
    target_link_libraries(gannet_torch_headers PRIVATE GTest::gtest GTest::gmock)
    list(APPEND headers <gmock/gmock.h> <gtest/gtest.h>)
  endif()
  target_precompile_headers(gannet_torch_headers PRIVATE ${headers})
endfunction()
