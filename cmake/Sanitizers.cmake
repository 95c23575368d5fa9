# KRONSERVE_SANITIZE: empty, "address" (with undefined behaviour) or "thread".

set(KRONSERVE_TEST_ENVIRONMENT "")
if(KRONSERVE_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-omit-frame-pointer
    -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=address,undefined)
  set(KRONSERVE_TEST_ENVIRONMENT "LSAN_OPTIONS=print_suppressions=0:suppressions=${PROJECT_SOURCE_DIR}/cmake/lsan_suppressions.txt;UBSAN_OPTIONS=print_stacktrace=1")
elseif(KRONSERVE_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
  # Debian's gRPC and Abseil are not built for it (see the file).
  set(KRONSERVE_TEST_ENVIRONMENT "TSAN_OPTIONS=ignore_noninstrumented_modules=1 suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan_suppressions.txt")
elseif(KRONSERVE_SANITIZE)
  message(FATAL_ERROR
    "KRONSERVE_SANITIZE is '${KRONSERVE_SANITIZE}': use address or thread")
endif()
