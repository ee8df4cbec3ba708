# Runs PROGRAM in GDB with PRINTERS, and compares what it prints of each variable with the line after its name here.
set(expected
  view "View<float, 2> [2, 3] = {{1, 2, 3}, {4.5, -5, 6}}"
  columns "View<const float, 2> [2, 2] strides [4, 1] = {{1, 2}, {-5, 6}}"
  repeated "View<const float, 3> [2, 1, 2] strides [0, 9, 1] = {{{1, 2}}, {{1, 2}}}"
  absent "View<float, 4> (none)"
  empty "View<float, 2> [2, 0]"
  tensor "Tensor<double, 2> [2, 2] = {{0, 0}, {0.25, 0}}"
  halves "Tensor<bfloat16, 1> [3] = {0, 1.5, 0}"
  flags "Tensor<bool, 1> [2] = {false, true}"
  many "View<float, 1> [8] = {1, 2, 3, 4.5, ...}"
  half "-0.5"
  heads "{num_heads = 8, num_kv_heads = 2, head_dim = dynamic, value_head_dim = dynamic}")

if(NOT GDB)
  message("SKIPPED: there is no gdb (Debian, Ubuntu: apt-get install gdb)")
  return()
endif()
set(commands -ex "source ${PRINTERS}" -ex "break stop" -ex run -ex up)
set(variables ${expected})
while(variables)
  list(POP_FRONT variables name text)
  if(name STREQUAL "many")
    list(APPEND commands -ex "set print elements 4")
  endif()
  list(APPEND commands -ex "output ${name}" -ex "echo \\n")
endwhile()
execute_process(COMMAND "${GDB}" -nx -batch -iex "set debuginfod enabled off" ${commands} "${PROGRAM}"
  OUTPUT_VARIABLE output ERROR_VARIABLE output)
message(STATUS "gdb printed:\n${output}")
if(output MATCHES "ptrace: Operation not permitted|Python scripting is not supported|Could not trace")
  message("SKIPPED: gdb cannot do its work here")
  return()
endif()
while(expected)
  list(POP_FRONT expected name text)
  string(FIND "${output}" "\n${text}\n" found)
  if(found EQUAL -1)
    message(SEND_ERROR "of ${name} it should have printed: ${text}")
  endif()
endwhile()
