# Compares abi.rs with gannet/abi.h: writes the table of sizes and offsets, compiles it with rustc and runs it.
set(_here ${CMAKE_CURRENT_LIST_DIR})
execute_process(COMMAND ${PYTHON} ${_here}/layout.py ${CC} ${INCLUDE} ${_here}/abi.rs ${FOLDER} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${RUSTC} --edition 2021 -A warnings -o ${FOLDER}/check ${FOLDER}/check.rs COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${FOLDER}/check COMMAND_ERROR_IS_FATAL ANY)
