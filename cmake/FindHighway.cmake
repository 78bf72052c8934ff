# Highway (SIMD with run-time dispatch): Highway::hwy.
find_path(Highway_INCLUDE_DIR hwy/highway.h)
find_library(Highway_LIBRARY hwy)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Highway REQUIRED_VARS Highway_LIBRARY Highway_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install Debian's libhwy-dev (scripts/setup.sh does)")
if(Highway_FOUND AND NOT TARGET Highway::hwy)
  add_library(Highway::hwy INTERFACE IMPORTED)
  target_include_directories(Highway::hwy SYSTEM INTERFACE ${Highway_INCLUDE_DIR})
  target_link_libraries(Highway::hwy INTERFACE ${Highway_LIBRARY})
  if(Highway_LIBRARY MATCHES "\\.so")
    target_compile_definitions(Highway::hwy INTERFACE HWY_SHARED_DEFINE)
  endif()
  # Left out: what adds nothing to these loops (SSSE3 over none, AVX3_DL over AVX3), and vectors without a fixed size, which
  # can stand in no array.
  target_compile_definitions(Highway::hwy INTERFACE
    "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_AVX3_DL|HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128|HWY_RVV)")
endif()
mark_as_advanced(Highway_INCLUDE_DIR Highway_LIBRARY)
