# cmake -DOUT=header -DFOLDER=folder -P embed.cmake: the report's page as a header of raw strings.
#
# A file stays a file that an editor understands, and the binary needs none beside it.
set(_text "// Made from report.html.in, report.css and report.js by embed.cmake.\n#pragma once\n\nnamespace gannet::report {\n\n")
foreach(_pair "kPage report.html.in" "kStyle report.css" "kScript report.js")
  string(REGEX MATCH "([^ ]+) ([^ ]+)" _ "${_pair}")
  file(READ ${FOLDER}/${CMAKE_MATCH_2} _content)
  string(APPEND _text "inline constexpr const char ${CMAKE_MATCH_1}[] = R\"embedded(${_content})embedded\";\n")
endforeach()
file(WRITE ${OUT} "${_text}\n}  // namespace gannet::report\n")
