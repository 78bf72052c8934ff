# Headers that are compiled once. GANNET_PRECOMPILED_HEADERS off: every file is checked for includes of its own (the presets debug,
# asan and tsan).
option(GANNET_PRECOMPILED_HEADERS "Compile LibTorch's headers once" ON)

# torch/torch.h, for libraries and programs with modules of their own: 5 s a file in place of 18. Programs are compiled as libraries
# are (-fPIC), so that both can have it.
function(gannet_make_torch_headers)
  if(GANNET_PRECOMPILED_HEADERS)
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/torch_headers.cpp "// Carries the precompiled header.\nint main() {}\n")
    add_executable(gannet_torch_headers ${CMAKE_CURRENT_BINARY_DIR}/torch_headers.cpp)
    target_link_libraries(gannet_torch_headers PRIVATE gannet::core)
    target_compile_options(gannet_torch_headers PRIVATE -fPIC)
    target_precompile_headers(gannet_torch_headers PRIVATE <torch/torch.h>)
  endif()
endfunction()

# What uses them calls LibTorch's operators and has no hot loop of its own: -O3 takes a third longer to compile, for nothing.
function(gannet_use_torch_headers target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(GANNET_PRECOMPILED_HEADERS)
    target_compile_options(${target} PRIVATE -fPIC)
    target_precompile_headers(${target} REUSE_FROM gannet_torch_headers)
  endif()
endfunction()
