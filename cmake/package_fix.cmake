# Runs in cpack, between the installation of the components into their folders and the packing of these.
#
# `cmake --install --component` puts `gannet` and the kit into runtime and sdk, and the package's config into devel and sdk, so
# that each works alone. A file can belong to one Debian package: gannet-sdk, which the others need. And the libraries look for
# LibTorch where the package says, not where this machine has it.
file(REMOVE
  ${CPACK_TEMPORARY_DIRECTORY}/runtime/usr/bin/gannet
  ${CPACK_TEMPORARY_DIRECTORY}/runtime/usr/libexec/gannet/gannet-kit
  ${CPACK_TEMPORARY_DIRECTORY}/devel/usr/lib/cmake/gannet/gannet-config.cmake
  ${CPACK_TEMPORARY_DIRECTORY}/devel/usr/lib/cmake/gannet/gannet-config-version.cmake)
file(GLOB_RECURSE _files ${CPACK_TEMPORARY_DIRECTORY}/*)
foreach(_file ${_files})
  if(IS_SYMLINK ${_file})
    continue()
  endif()
  file(READ ${_file} _magic LIMIT 4 HEX)
  set(_runpath "")
  if(_magic STREQUAL "7f454c46")
    file(READ_ELF ${_file} RUNPATH _runpath CAPTURE_ERROR _none)
  endif()
  while(_runpath MATCHES "${CPACK_GANNET_BUILT_WITH}")
    file(RPATH_CHANGE FILE ${_file} OLD_RPATH "${CPACK_GANNET_BUILT_WITH}/lib" NEW_RPATH "${CPACK_GANNET_LIBTORCH}/lib")
    file(READ_ELF ${_file} RUNPATH _runpath CAPTURE_ERROR _none)
  endwhile()
endforeach()
