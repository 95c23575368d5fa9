# Headers that cost more to parse than most files that include them: parsed
# once for the libraries and once for the tests (docs/decisions/0006). Every
# file still includes what it uses: the cpu-gcc preset builds without these.

set(kronserve_heavy_headers
  <algorithm> <chrono> <cmath> <cstdint> <fstream> <functional> <limits>
  <map> <memory> <optional> <set> <string> <thread> <utility> <vector>
  <absl/container/flat_hash_map.h>
  <absl/status/statusor.h>
  <absl/strings/numbers.h>
  <absl/strings/str_cat.h>
  <absl/strings/str_join.h>
  <absl/strings/str_split.h>
  <absl/synchronization/mutex.h>
  <absl/time/clock.h>
  <absl/time/time.h>
  <kronserve/v1/preconditioner.pb.h>
  <kronserve/v1/scheduler.pb.h>)

function(kronserve_precompile NAME)
  file(WRITE ${PROJECT_BINARY_DIR}/${NAME}.cc "")
  add_library(${NAME} OBJECT ${PROJECT_BINARY_DIR}/${NAME}.cc)
  target_link_libraries(${NAME} PRIVATE kronserve_flags kronserve_proto)
  target_precompile_headers(${NAME} PRIVATE
    ${kronserve_heavy_headers} ${ARGN})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # Without the time of day in it, so that ccache can know it again.
    target_compile_options(${NAME} PRIVATE
      "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endfunction()

kronserve_precompile(kronserve_headers)
if(KRONSERVE_BUILD_TESTS)
  kronserve_precompile(kronserve_test_headers <gmock/gmock.h> <gtest/gtest.h>)
  target_link_libraries(kronserve_test_headers PRIVATE GTest::gmock)
  target_compile_options(kronserve_test_headers PRIVATE
    ${KRONSERVE_TEST_OPTIONS})
endif()
