# kronserve_library, kronserve_program and kronserve_test: one call per target,
# so that link edges are include edges.

include(CMakeParseArguments)
include(GoogleTest)

# What every target of this project is compiled with.
add_library(kronserve_flags INTERFACE)
target_include_directories(kronserve_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_features(kronserve_flags INTERFACE cxx_std_17)
target_compile_options(kronserve_flags INTERFACE -Wall -Wextra -pthread)
if(KRONSERVE_WERROR)
  target_compile_options(kronserve_flags INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(kronserve_flags INTERFACE
    -Wthread-safety -Werror=thread-safety)
endif()

# kronserve_library(NAME common_log HDRS log.h SRCS log.cc DEPS absl::strings)
#
# Creates kronserve_<NAME>; DEPS are linked publicly. Without SRCS it is an
# interface library.
function(kronserve_library)
  cmake_parse_arguments(ARG "" "NAME" "HDRS;SRCS;DEPS" ${ARGN})
  set(target kronserve_${ARG_NAME})
  if(ARG_SRCS)
    add_library(${target} STATIC ${ARG_SRCS} ${ARG_HDRS})
    target_link_libraries(${target} PUBLIC kronserve_flags ${ARG_DEPS})
    target_precompile_headers(${target} REUSE_FROM kronserve_headers)
  else()
    add_library(${target} INTERFACE ${ARG_HDRS})
    target_link_libraries(${target} INTERFACE kronserve_flags ${ARG_DEPS})
  endif()
endfunction()

# kronserve_program(NAME kronctl SRCS kronctl_main.cc DEPS ...): an executable,
# put into <build>/bin.
function(kronserve_program)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PRIVATE kronserve_flags ${ARG_DEPS})
  target_precompile_headers(${ARG_NAME} REUSE_FROM kronserve_headers)
  set_target_properties(${ARG_NAME} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  install(TARGETS ${ARG_NAME})
endfunction()

# A test's own code is not worth optimising: what it tests is.
set(KRONSERVE_TEST_OPTIONS $<$<CONFIG:Release>:-O0>)

# kronserve_test(NAME round_test SRCS round_test.cc DEPS ... [LABEL unit]
#                [TIMEOUT 30])
#
# One binary and one ctest entry per file. LABEL: unit (under 1 s, default),
# integration (under 10 s), multiprocess, gpu, slow.
function(kronserve_test)
  cmake_parse_arguments(ARG "" "NAME;LABEL;TIMEOUT" "SRCS;DEPS" ${ARGN})
  if(NOT KRONSERVE_BUILD_TESTS)
    return()
  endif()
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PRIVATE kronserve_flags ${ARG_DEPS}
    GTest::gmock GTest::gtest_main)
  target_compile_options(${ARG_NAME} PRIVATE ${KRONSERVE_TEST_OPTIONS})
  target_precompile_headers(${ARG_NAME} REUSE_FROM kronserve_test_headers)
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME})
  set_tests_properties(${ARG_NAME} PROPERTIES
    LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT "${KRONSERVE_TEST_ENVIRONMENT}")
endfunction()

# kronserve_script_test(NAME check_sizes COMMAND python3 ... [LABEL] [TIMEOUT])
function(kronserve_script_test)
  cmake_parse_arguments(ARG "" "NAME;LABEL;TIMEOUT" "COMMAND" ${ARGN})
  if(NOT KRONSERVE_BUILD_TESTS)
    return()
  endif()
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_COMMAND}
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${ARG_NAME} PROPERTIES
    LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
endfunction()
