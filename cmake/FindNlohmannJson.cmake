# nlohmann-json 3.12 or newer (the first that knows each value's position in the text): NlohmannJson::headers.
# Looks beside the LibTorch of scripts/setup.sh, then in the system.
find_path(NlohmannJson_INCLUDE_DIR nlohmann/json.hpp
  PATHS $ENV{GANNET_CACHE}/json/nlohmann_json/include $ENV{XDG_CACHE_HOME}/gannet/json/nlohmann_json/include $ENV{HOME}/.cache/gannet/json/nlohmann_json/include
  NO_DEFAULT_PATH)
find_path(NlohmannJson_INCLUDE_DIR nlohmann/json.hpp)
if(NlohmannJson_INCLUDE_DIR)
  file(STRINGS ${NlohmannJson_INCLUDE_DIR}/nlohmann/detail/abi_macros.hpp _lines REGEX "define NLOHMANN_JSON_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" NlohmannJson_VERSION "${_lines}")
  if(NlohmannJson_VERSION VERSION_LESS 3.12)
    message(FATAL_ERROR "nlohmann-json ${NlohmannJson_VERSION} in ${NlohmannJson_INCLUDE_DIR} is too old (3.12 is needed for positions in error messages): run scripts/setup.sh")
  endif()
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NlohmannJson REQUIRED_VARS NlohmannJson_INCLUDE_DIR VERSION_VAR NlohmannJson_VERSION)
if(NlohmannJson_FOUND AND NOT TARGET NlohmannJson::headers)
  add_library(NlohmannJson::headers INTERFACE IMPORTED)
  target_include_directories(NlohmannJson::headers SYSTEM INTERFACE ${NlohmannJson_INCLUDE_DIR})
  target_compile_definitions(NlohmannJson::headers INTERFACE JSON_DIAGNOSTIC_POSITIONS=1)
endif()
