# Headers that are compiled once. GANNET_PRECOMPILED_HEADERS off: every file is checked for includes of its own (the presets debug,
# asan and tsan).
option(GANNET_PRECOMPILED_HEADERS "Compile LibTorch's headers once" ON)

# gannet_reuse_headers(target other): the precompiled headers of `other`, which is compiled with the same options.
function(gannet_reuse_headers target other)
  if(GANNET_PRECOMPILED_HEADERS)
    target_precompile_headers(${target} REUSE_FROM ${other})
  endif()
endfunction()
