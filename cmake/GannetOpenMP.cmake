# gannet_use_openmp(target file...): compiles these files of the target's folder with OpenMP. It is LibTorch's own runtime where that
# brings one: one pool of threads, not two.
function(gannet_use_openmp target)
  foreach(_file IN LISTS ARGN)
    set_property(SOURCE ${CMAKE_CURRENT_SOURCE_DIR}/${_file} TARGET_DIRECTORY ${target} APPEND PROPERTY COMPILE_OPTIONS "${OpenMP_CXX_FLAGS}")
    set_property(SOURCE ${CMAKE_CURRENT_SOURCE_DIR}/${_file} TARGET_DIRECTORY ${target} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
  endforeach()
  if(EXISTS ${LibTorch_ROOT}/lib/libgomp.so.1)
    target_link_libraries(${target} PRIVATE ${LibTorch_ROOT}/lib/libgomp.so.1)
  else()
    target_link_libraries(${target} PRIVATE OpenMP::OpenMP_CXX)
  endif()
endfunction()
