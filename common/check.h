// Ends the process on a broken invariant: never for input, network or memory.
//
// Layer: common. May include nothing else of this repository.

#ifndef KRONSERVE_COMMON_CHECK_H_
#define KRONSERVE_COMMON_CHECK_H_

#include <cstdio>
#include <cstdlib>
#include <string>

namespace kronserve {

[[noreturn]] inline void CheckFailed(const char* file, int line,
                                     const char* condition,
                                     const std::string& message) {
  std::fprintf(stderr, "%s:%d: check failed: %s: %s\n", file, line, condition,
               message.c_str());
  std::abort();
}

}  // namespace kronserve

// `message` is evaluated only when `condition` is false.
#define KRONSERVE_CHECK(condition, message)                                \
  do {                                                                     \
    if (!(condition)) {                                                    \
      ::kronserve::CheckFailed(__FILE__, __LINE__, #condition, (message)); \
    }                                                                      \
  } while (false)

#endif  // KRONSERVE_COMMON_CHECK_H_
