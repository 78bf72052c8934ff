# cmake -DOUT=header -DFOLDER=folder -DLIBRARY=dygraph.min.js -DLIBRARY_STYLE=dygraph.min.css -P embed.cmake: the report's page
# as a header of raw strings.
#
# Each source stays a file that an editor understands, and the binary needs no file beside it.
set(_text "// Made from the files of tools/report and dygraphs by embed.cmake.\n#pragma once\n\nnamespace gannet::report {\n\n")
function(embed name)
  set(_all "")
  foreach(_file ${ARGN})
    file(READ ${_file} _content)
    string(REGEX REPLACE "\n?(//|/\\*)# sourceMappingURL=[^\n]*" "\n" _content "${_content}")  # a page has no file beside it
    string(APPEND _all "${_content}")
  endforeach()
  set(_text "${_text}inline constexpr const char ${name}[] = R\"embedded(${_all})embedded\";\n" PARENT_SCOPE)
endfunction()
embed(kPage ${FOLDER}/report.html.in)
embed(kStyle ${FOLDER}/report.css)
embed(kScript ${FOLDER}/view.js ${FOLDER}/charts.js ${FOLDER}/jump.js ${FOLDER}/search.js)
embed(kLicence ${FOLDER}/dygraphs_licence.txt)
embed(kLibrary ${LIBRARY})
embed(kLibraryStyle ${LIBRARY_STYLE})
file(WRITE ${OUT} "${_text}\n}  // namespace gannet::report\n")
