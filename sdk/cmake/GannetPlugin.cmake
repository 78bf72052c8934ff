# gannet_add_plugin(NAME KIND kind SOURCES file... [PINNED [VENDOR]] [LIBRARIES lib...])
#
# Builds gannet_<kind>_<name>.so, a plugin that exports one symbol, and fails the build if it exports anything else or has
# no note. PINNED: may link LibTorch, and carries the fingerprint of the one found. VENDOR: uses its vendor's half (CUDA's),
# and works with LibTorchs of that vendor's version alone.
#
#   find_package(gannet REQUIRED COMPONENTS sdk)
#   gannet_add_plugin(sign KIND optimizer SOURCES sign.cpp)
set(_gannet_plugin_module_dir ${CMAKE_CURRENT_LIST_DIR})

function(gannet_add_plugin name)
  cmake_parse_arguments(plugin "PINNED;VENDOR" "KIND" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT plugin_KIND OR NOT plugin_SOURCES)
    message(FATAL_ERROR "gannet_add_plugin(${name}): KIND and SOURCES are needed")
  endif()
  set(target gannet_${plugin_KIND}_${name})
  add_library(${target} MODULE ${plugin_SOURCES})
  set_target_properties(${target} PROPERTIES PREFIX "" CXX_VISIBILITY_PRESET hidden C_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/gannet
    LINK_DEPENDS ${_gannet_plugin_module_dir}/plugin.map)
  target_compile_features(${target} PRIVATE cxx_std_17)
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
  if(TARGET plugins)
    add_dependencies(plugins ${target})
  endif()
  if(DEFINED GANNET_INSTALL_PLUGIN_DIR)
    install(TARGETS ${target} LIBRARY DESTINATION ${GANNET_INSTALL_PLUGIN_DIR} COMPONENT runtime)
  endif()
endfunction()
