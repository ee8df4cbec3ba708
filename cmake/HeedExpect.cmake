# Runs PROGRAM; it must succeed, and its output must match every `// expect: <regex>` line of SOURCE. Unlike ctest's
# PASS_REGULAR_EXPRESSION this looks at the exit code too.
execute_process(COMMAND "${PROGRAM}" OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE result)
message(STATUS "${PROGRAM} printed:\n${output}${errors}")
if(NOT result EQUAL 0)
  message(FATAL_ERROR "the program ended with ${result}")
endif()

file(STRINGS "${SOURCE}" expectations REGEX "^// expect: ")
if(NOT expectations)
  message(FATAL_ERROR "${SOURCE} has no line `// expect: <regex>`, so its output is not checked")
endif()
string(REPLACE "[" "\\open" expectations "${expectations}")  # a lone bracket would glue list elements together
foreach(expectation IN LISTS expectations)
  string(REPLACE "\\open" "[" expectation "${expectation}")
  string(REGEX REPLACE "^// expect: " "" regex "${expectation}")
  if(NOT output MATCHES "${regex}")
    message(FATAL_ERROR "the output does not match: ${regex}")
  endif()
endforeach()
