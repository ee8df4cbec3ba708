# Prints what each kernel of PROGRAM takes, and fails if one has local memory or a stack, which is where spilled registers
# go, but for those that are known: the reduction of large angles takes a stack in RotaryTablesKernel, and AttentionKernel
# for 256 dims fills its 128 registers.
set(known "RotaryTablesKernel.*stack 40, local 0:|AttentionKernel.*Li256ELi16E.*stack 8, local 0:")
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
  string(REGEX REPLACE "^(.*): (.*)$" "\\2 \\1:" by_name "${text}")
  if(NOT text MATCHES "stack 0, local 0:" AND NOT by_name MATCHES "${known}")
    math(EXPR bad "${bad} + 1")
    message(SEND_ERROR "spills: ${text}")
  endif()
endforeach()
message(STATUS "${count} kernels, ${bad} of them take more than is known")
