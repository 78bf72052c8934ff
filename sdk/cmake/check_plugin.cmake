# Run after a plugin is linked: it must export gannet_plugins_v2 and nothing else, and carry the note.
execute_process(COMMAND ${NM} -D --defined-only -f posix ${PLUGIN} OUTPUT_VARIABLE symbols RESULT_VARIABLE failed)
string(REGEX REPLACE "\n$" "" symbols "${symbols}")
string(REPLACE "\n" ";" symbols "${symbols}")
set(names "")
foreach(line IN LISTS symbols)
  string(REGEX REPLACE " .*" "" name "${line}")
  list(APPEND names ${name})
endforeach()
if(failed OR NOT names STREQUAL "gannet_plugins_v2")
  file(REMOVE ${PLUGIN})
  list(JOIN names ", " names)
  message(FATAL_ERROR "${PLUGIN} must export gannet_plugins_v2 and nothing else; it exports: ${names}")
endif()
execute_process(COMMAND ${READELF} -SW ${PLUGIN} OUTPUT_VARIABLE sections)
if(NOT sections MATCHES "\\.note\\.gannet")
  file(REMOVE ${PLUGIN})
  message(FATAL_ERROR "${PLUGIN} has no .note.gannet: declare its plugins with GANNET_PLUGINS(...)")
endif()
# An allocator of its own: what libstdc++ allocates (std::string is compiled into it) would be freed by the plugin's delete.
execute_process(COMMAND ${NM} --defined-only -f posix ${PLUGIN} OUTPUT_VARIABLE all_symbols)
execute_process(COMMAND ${READELF} -dW ${PLUGIN} OUTPUT_VARIABLE dynamic)
# With the C++ library linked statically both new and delete are the library's own.
if(dynamic MATCHES "NEEDED[^\n]*lib(std)?c\\+\\+" AND all_symbols MATCHES
    "(^|\n)(_Zn[wa][mj]|_Zd[la]Pv[mj]?)(St11align_val_t)?(RKSt9nothrow_t)? [TtWw]")  # not placement new: _ZnwmPv
  file(REMOVE ${PLUGIN})
  message(FATAL_ERROR "${PLUGIN} defines operator new or delete: a plugin must use the process's; "
    "allocate large arrays with the host's allocate(), or declare them as states")
endif()
