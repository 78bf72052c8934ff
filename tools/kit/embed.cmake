# cmake -DOUT=header -DFOLDER=folder -P embed.cmake: the templates of `gannet plugins new` as a header of raw strings.
#
# A template stays a file that an editor understands, and gannet-kit needs no file beside it.
file(GLOB _files ${FOLDER}/*.in)
list(SORT _files)
set(_text "// Made from the files of tools/kit/templates by embed.cmake.\n#pragma once\n\n#include \"kit/templates.h\"\n\n")
string(APPEND _text "namespace gannet::kit {\n\ninline constexpr Template kTemplates[] = {\n")
foreach(_file IN LISTS _files)
  get_filename_component(_name ${_file} NAME)
  string(REGEX REPLACE "\\.in$" "" _name ${_name})
  file(READ ${_file} _content)
  string(APPEND _text "    {\"${_name}\", R\"embedded(${_content})embedded\"},\n")
endforeach()
file(WRITE ${OUT} "${_text}};\n\n}  // namespace gannet::kit\n")
