# gannet_add_plugin(NAME KIND kind SOURCES file... [DEVICES cpu cuda rocm [GPU_SOURCES file...]] [PINNED [VENDOR]]
#                   [LIBRARIES lib...])
#
# Builds gannet_<kind>_<name>.so, a plugin that exports one symbol, and fails the build if it exports anything else or has
# no note. PINNED: may link LibTorch, and carries the fingerprint of the one found. VENDOR: uses its vendor's half (CUDA's),
# and works with LibTorchs of that vendor's version alone.
#
# DEVICES: the sources are element-wise rules (gannet/sdk_elementwise.hpp), to be compiled for each of these. "cuda" builds
# gannet_<kind>_<name>_cuda.so too, where the language CUDA is enabled, and "rocm" gannet_<kind>_<name>_rocm.so where there is
# a compiler for HIP (GannetRocm.cmake): both from GPU_SOURCES where they are given (CUDA_SOURCES: CUDA's alone). Rules use
# Highway's SIMD where it is found (Debian: libhwy-dev); -DGANNET_RULE_HIGHWAY=OFF leaves it out. Results do not depend on it.
#
#   find_package(gannet REQUIRED COMPONENTS sdk)
#   gannet_add_plugin(sign KIND optimizer SOURCES sign.cpp)
#
# Sources in C are compiled as C99; a project may have that language alone.
#
# gannet_add_plugin_test(NAME KIND kind [PARAMS json] [EXCLUSIONS file] [REFERENCE plugin-file [REFERENCE_PARAMS json]])
#
# A CTest test, gannet_<kind>_<name>_check: every check of the contract by `gannet plugins check`, whose options these are.
set(_gannet_plugin_module_dir ${CMAKE_CURRENT_LIST_DIR})
option(GANNET_RULE_HIGHWAY "Compile element-wise rules with Highway's SIMD, where it is found" ON)

function(gannet_add_plugin name)
  cmake_parse_arguments(plugin "PINNED;VENDOR" "KIND" "SOURCES;LIBRARIES;DEVICES;CUDA_SOURCES;GPU_SOURCES" ${ARGN})
  if(plugin_CUDA_SOURCES AND NOT "cuda" IN_LIST plugin_DEVICES)
    message(FATAL_ERROR "gannet_add_plugin(${name}): CUDA_SOURCES needs 'cuda' among the DEVICES")
  endif()
  if(plugin_GPU_SOURCES AND NOT ("cuda" IN_LIST plugin_DEVICES OR "rocm" IN_LIST plugin_DEVICES))
    message(FATAL_ERROR "gannet_add_plugin(${name}): GPU_SOURCES needs 'cuda' or 'rocm' among the DEVICES")
  endif()
  set(_unknown ${plugin_DEVICES})
  list(REMOVE_ITEM _unknown cpu cuda rocm)
  if(_unknown)
    message(FATAL_ERROR "gannet_add_plugin(${name}): DEVICES are cpu, cuda and rocm, not ${_unknown}")
  endif()
  if(NOT plugin_KIND OR NOT plugin_SOURCES)
    message(FATAL_ERROR "gannet_add_plugin(${name}): KIND and SOURCES are needed")
  endif()
  set(target gannet_${plugin_KIND}_${name})
  add_library(${target} MODULE ${plugin_SOURCES})
  set_target_properties(${target} PROPERTIES PREFIX "" CXX_VISIBILITY_PRESET hidden C_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/gannet
    LINK_DEPENDS ${_gannet_plugin_module_dir}/plugin.map)
  get_property(_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if("CXX" IN_LIST _languages)
    target_compile_features(${target} PRIVATE cxx_std_17)
  endif()
  if("C" IN_LIST _languages)
    target_compile_features(${target} PRIVATE c_std_99)
  endif()
  # A result is rounded where the source says, whatever the compiler and the processor. sqrt() that
  # sets errno, and select() where a comparison may trap, are not vectorised: plain loops would take
  # three times as long.
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off;-fno-math-errno;-fno-trapping-math>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;-Xcompiler=-ffp-contract=off>")
  if("cpu" IN_LIST plugin_DEVICES AND GANNET_RULE_HIGHWAY)
    find_package(Highway QUIET MODULE)
    if(Highway_FOUND)
      target_link_libraries(${target} PRIVATE Highway::hwy)
      target_compile_definitions(${target} PRIVATE GANNET_RULE_HIGHWAY=1)
    else()
      get_property(_is_said GLOBAL PROPERTY GANNET_HIGHWAY_HINT)
      if(NOT _is_said)
        set_property(GLOBAL PROPERTY GANNET_HIGHWAY_HINT TRUE)
        message(NOTICE "Highway was not found: element-wise rules are compiled as plain loops, with the same results but up "
          "to 1.6 times the time. Debian has it as libhwy-dev; -DGANNET_RULE_HIGHWAY=OFF hides this note.")
      endif()
    endif()
  endif()
  if("cuda" IN_LIST plugin_DEVICES AND CMAKE_CUDA_COMPILER)
    _gannet_add_cuda_plugin(${name})
  endif()
  if("rocm" IN_LIST plugin_DEVICES)
    include(${_gannet_plugin_module_dir}/GannetRocm.cmake)
    if(GANNET_HAS_ROCM)
      _gannet_add_rocm_plugin(${name})
    endif()
  endif()
  target_link_libraries(${target} PRIVATE gannet::sdk ${plugin_LIBRARIES})
  target_link_options(${target} PRIVATE -Wl,--version-script=${_gannet_plugin_module_dir}/plugin.map)
  if(plugin_PINNED)
    if(NOT TARGET LibTorch::cpu)
      message(FATAL_ERROR "gannet_add_plugin(${name}): PINNED needs LibTorch: find_package(gannet REQUIRED), without COMPONENTS sdk alone")
    endif()
    string(REPLACE ";" "\\;" _fingerprint "${LibTorch_FINGERPRINT}")  # else CMake sees a list
    target_compile_definitions(${target} PRIVATE "GANNET_FINGERPRINT=\"${_fingerprint}\"")
    if(plugin_VENDOR)
      target_compile_definitions(${target} PRIVATE "GANNET_VENDOR=\"${LibTorch_VENDOR}\"")
    endif()
    target_link_libraries(${target} PRIVATE LibTorch::cpu)
  endif()
  if(NOT GANNET_SANITIZE)
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
  add_custom_command(TARGET ${target} POST_BUILD VERBATIM
    COMMAND ${CMAKE_COMMAND} -DPLUGIN=$<TARGET_FILE:${target}> -DNM=${CMAKE_NM} -DREADELF=${CMAKE_READELF}
            -P ${_gannet_plugin_module_dir}/check_plugin.cmake)
  if(DEFINED GANNET_INSTALL_PLUGIN_DIR)
    if(TARGET plugins)
      add_dependencies(plugins ${target})
    endif()
    install(TARGETS ${target} LIBRARY DESTINATION ${GANNET_INSTALL_PLUGIN_DIR} COMPONENT runtime)
  endif()
endfunction()

# GPU_SOURCES or CUDA_SOURCES, or else the same sources as CUDA's, by files that include them: a source has one language in a folder.
function(_gannet_add_cuda_plugin name)
  set(units ${plugin_GPU_SOURCES} ${plugin_CUDA_SOURCES})
  set(shared ${plugin_SOURCES})
  if(units)
    set(shared "")
  endif()
  foreach(source IN LISTS shared)
    get_filename_component(path ${source} ABSOLUTE)
    get_filename_component(stem ${source} NAME_WE)
    set(unit ${CMAKE_CURRENT_BINARY_DIR}/${stem}_cuda.cu)
    file(CONFIGURE OUTPUT ${unit} CONTENT "#include \"${path}\"\n" @ONLY)
    list(APPEND units ${unit})
  endforeach()
  find_package(CUDAToolkit REQUIRED)
  gannet_add_plugin(${name}_cuda KIND ${plugin_KIND} SOURCES ${units} LIBRARIES CUDA::cudart_static ${plugin_LIBRARIES})
endfunction()

function(_gannet_add_rocm_plugin name)
  set(target gannet_${plugin_KIND}_${name}_rocm)
  set(units ${plugin_GPU_SOURCES})
  if(NOT units)
    set(units ${plugin_SOURCES})
  endif()
  _gannet_hip_objects(objects ${target} ${units})
  gannet_add_plugin(${name}_rocm KIND ${plugin_KIND} SOURCES ${objects} LIBRARIES ${GANNET_HIP_LIBRARY} ${plugin_LIBRARIES})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
endfunction()

function(gannet_add_plugin_test name)
  cmake_parse_arguments(test "" "KIND;PARAMS;EXCLUSIONS;REFERENCE;REFERENCE_PARAMS" "" ${ARGN})
  set(target gannet_${test_KIND}_${name})
  if(NOT TARGET ${target})
    message(FATAL_ERROR "gannet_add_plugin_test(${name}): there is no target ${target}: call gannet_add_plugin(${name} KIND kind ...) first, with the same KIND")
  endif()
  if(NOT TARGET gannet::kit)
    message(FATAL_ERROR "gannet_add_plugin_test(${name}): this installation has no libexec/gannet/gannet-kit: install the component sdk whole")
  endif()
  set(options "")
  foreach(json PARAMS REFERENCE_PARAMS)
    if(DEFINED test_${json})
      string(TOLOWER ${json} option)
      string(REPLACE _ - option ${option})
      list(APPEND options --${option} ${test_${json}})
    endif()
  endforeach()
  foreach(file EXCLUSIONS REFERENCE)
    if(DEFINED test_${file})
      get_filename_component(path ${test_${file}} ABSOLUTE)
      string(TOLOWER ${file} option)
      list(APPEND options --${option} ${path})
    endif()
  endforeach()
  add_test(NAME ${target}_check COMMAND gannet::kit plugins check $<TARGET_FILE:${target}> ${options})
endfunction()
