# dygraphs, which draws the charts of `gannet report`: DYGRAPHS_SCRIPT and DYGRAPHS_STYLE, files that are embedded in its page.
# -DDYGRAPHS_ROOT=/folder names another than the one of Debian's libjs-dygraphs.
find_file(DYGRAPHS_SCRIPT dygraph.min.js HINTS ${DYGRAPHS_ROOT} PATHS ${CMAKE_PREFIX_PATH} ENV CMAKE_PREFIX_PATH /usr PATH_SUFFIXES share/javascript/dygraphs)
find_file(DYGRAPHS_STYLE dygraph.min.css HINTS ${DYGRAPHS_ROOT} PATHS ${CMAKE_PREFIX_PATH} ENV CMAKE_PREFIX_PATH /usr PATH_SUFFIXES share/javascript/dygraphs)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Dygraphs REQUIRED_VARS DYGRAPHS_SCRIPT DYGRAPHS_STYLE
  REASON_FAILURE_MESSAGE "dygraph.min.js draws the charts of the report. Install the package libjs-dygraphs (scripts/setup.sh does), or name the folder that has the file: -DDYGRAPHS_ROOT=/folder")
mark_as_advanced(DYGRAPHS_SCRIPT DYGRAPHS_STYLE)
