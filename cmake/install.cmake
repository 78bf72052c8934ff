# cmake --install build --prefix P [--component C]
#
#   runtime   the core library, the binary `gannet`, the plugins in lib/gannet, completion for shells, the manual page
#   devel     headers and the CMake package: find_package(gannet) gives gannet::core and the libraries over it:
#             gannet::exported, gannet::generation, gannet::models, gannet::nn, gannet::trainer, gannet::trial
#   sdk       all that a plugin is built from and checked with: find_package(gannet COMPONENTS sdk) gives gannet::sdk and
#             gannet_add_plugin(), `gannet plugins check` its conformance kit; no LibTorch
#   docs      the docs and the examples' sources and configs, in share/doc/gannet
set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gannet)

# The tree may be moved: what is in it is found from where it lies, LibTorch from where it is now.
set(_libraries_over_core gannet_exported gannet_generation gannet_models gannet_nn gannet_trainer gannet_trial)
set_target_properties(gannet_core ${_libraries_over_core} PROPERTIES
  INSTALL_RPATH "$ORIGIN;${LibTorch_ROOT}/lib" BUILD_WITH_INSTALL_RPATH ON)
file(RELATIVE_PATH _tools_to_lib ${CMAKE_INSTALL_PREFIX}/libexec/gannet ${CMAKE_INSTALL_FULL_LIBDIR})
set_target_properties(gannet-tools gannet-train PROPERTIES INSTALL_RPATH "$ORIGIN/${_tools_to_lib};${LibTorch_ROOT}/lib")

install(TARGETS gannet_core ${_libraries_over_core} EXPORT gannet-core
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT devel)
foreach(_component runtime sdk)
  install(TARGETS gannet RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${_component})
  install(TARGETS gannet-kit RUNTIME DESTINATION libexec/gannet COMPONENT ${_component})
endforeach()
install(TARGETS gannet-tools gannet-train RUNTIME DESTINATION libexec/gannet COMPONENT runtime)
# What shells and man(1) read, as the program itself prints it.
install(CODE "
  set(_gannet \"$<TARGET_FILE:gannet>\")
  set(_folder \"${CMAKE_BINARY_DIR}/shell\")
  file(MAKE_DIRECTORY \${_folder})
  foreach(_file \"gannet completion bash\" \"_gannet completion zsh\" \"gannet.fish completion fish\" \"gannet.1 help --man\")
    separate_arguments(_words UNIX_COMMAND \${_file})
    list(POP_FRONT _words _name)
    execute_process(COMMAND \${_gannet} \${_words} OUTPUT_FILE \${_folder}/\${_name} RESULT_VARIABLE _failed)
    if(_failed)
      message(FATAL_ERROR \"'gannet \${_words}' failed: \${_failed}\")
    endif()
  endforeach()
  set(_share \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\")
  file(INSTALL DESTINATION \${_share}/bash-completion/completions FILES \${_folder}/gannet)
  file(INSTALL DESTINATION \${_share}/zsh/site-functions FILES \${_folder}/_gannet)
  file(INSTALL DESTINATION \${_share}/fish/vendor_completions.d FILES \${_folder}/gannet.fish)
  file(INSTALL DESTINATION \${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man1 FILES \${_folder}/gannet.1)
" COMPONENT runtime)
install(DIRECTORY core/include/gannet exported/include/gannet generation/include/gannet models/include/gannet nn/include/gannet
  trainer/include/gannet trial/include/gannet DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT devel FILES_MATCHING PATTERN "*.h")
install(EXPORT gannet-core NAMESPACE gannet:: FILE gannet-core-targets.cmake DESTINATION ${_package_dir} COMPONENT devel)
install(FILES cmake/FindLibTorch.cmake DESTINATION ${_package_dir} COMPONENT devel)

# As in the tree, so that the pages' links to one another and to the examples hold.
install(FILES README.md CHANGELOG.md CONTRIBUTING.md LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/gannet COMPONENT docs)
file(GLOB _rooms RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} */README.md bench/parity/*.md)
list(FILTER _rooms EXCLUDE REGEX "^(docs|examples)/")  # installed above
foreach(_page ${_rooms})
  get_filename_component(_room ${_page} DIRECTORY)
  install(FILES ${_page} DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/gannet/${_room} COMPONENT docs)
endforeach()
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/gannet COMPONENT docs PATTERN Doxyfile EXCLUDE)

install(TARGETS gannet_sdk EXPORT gannet-sdk)
install(DIRECTORY sdk/include/gannet DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT sdk)
install(EXPORT gannet-sdk NAMESPACE gannet:: FILE gannet-sdk-targets.cmake DESTINATION ${_package_dir} COMPONENT sdk)
install(DIRECTORY sdk/cmake/ DESTINATION ${_package_dir} COMPONENT sdk)
install(FILES cmake/FindHighway.cmake DESTINATION ${_package_dir} COMPONENT sdk)

# The package's own two files serve both: whichever component is there brings them.
include(CMakePackageConfigHelpers)
set(GANNET_KIT libexec/gannet/gannet-kit)
configure_package_config_file(cmake/gannet-config.cmake.in ${CMAKE_BINARY_DIR}/package/gannet-config.cmake
  INSTALL_DESTINATION ${_package_dir} PATH_VARS GANNET_KIT)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/gannet-config-version.cmake COMPATIBILITY SameMinorVersion)
foreach(_component devel sdk)
  install(FILES ${CMAKE_BINARY_DIR}/package/gannet-config.cmake ${CMAKE_BINARY_DIR}/package/gannet-config-version.cmake
    DESTINATION ${_package_dir} COMPONENT ${_component})
endforeach()
