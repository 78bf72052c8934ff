# libmd (SHA-256): Libmd::md. Its static half is preferred, so that gannet-kit needs nothing but the C and C++ libraries.
find_path(Libmd_INCLUDE_DIR sha2.h)
find_library(Libmd_LIBRARY NAMES libmd.a md)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libmd REQUIRED_VARS Libmd_LIBRARY Libmd_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install Debian's libmd-dev (scripts/setup.sh does)")
if(Libmd_FOUND AND NOT TARGET Libmd::md)
  add_library(Libmd::md INTERFACE IMPORTED)
  target_include_directories(Libmd::md SYSTEM INTERFACE ${Libmd_INCLUDE_DIR})
  target_link_libraries(Libmd::md INTERFACE ${Libmd_LIBRARY})
  target_link_options(Libmd::md INTERFACE -Wl,--exclude-libs,libmd.a)  # its names are not the core's to export
endif()
mark_as_advanced(Libmd_INCLUDE_DIR Libmd_LIBRARY)
