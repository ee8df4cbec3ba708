# Prints what each kernel of PROGRAM takes, and fails if one has local memory, or more of a stack, which is where spilled
# registers go, than is known: 40 bytes for the reduction of large angles under RotaryTablesKernel, 8 in AttentionKernel
# for 256 dims, which fills its 128 registers.
set(known_stack 40)
execute_process(COMMAND "${CUOBJDUMP}" --dump-resource-usage "${PROGRAM}"
  OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "cuobjdump failed: ${errors}")
endif()
string(REGEX MATCHALL "Function [^\n]*\n[^\n]*" kernels "${output}")
list(LENGTH kernels count)
if(count EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} has no kernels:\n${output}")
endif()
set(bad 0)
foreach(kernel IN LISTS kernels)
  string(REGEX REPLACE "^Function ([^:\n]*):.*REG:([0-9]+) STACK:([0-9]+).*LOCAL:([0-9]+).*$" "\\2 registers, stack \\3, local \\4: \\1"
    text "${kernel}")
  message(STATUS "${text}")
  if(NOT text MATCHES "stack ([0-9]+), local 0:" OR CMAKE_MATCH_1 GREATER known_stack)
    math(EXPR bad "${bad} + 1")
    message(SEND_ERROR "spills: ${text}")
  endif()
endforeach()
message(STATUS "${count} kernels, ${bad} of them take more than is known")
