// How far something is: a bar on a terminal, lines elsewhere.
//
// Layer: client. May include common/.

#ifndef KRONSERVE_CLIENT_CLI_PROGRESS_H_
#define KRONSERVE_CLIENT_CLI_PROGRESS_H_

#include <cstdint>
#include <cstdio>
#include <string>

namespace kronserve::client {

// Thread safety: none.
// Lifetime:      `out` outlives it.
class Progress {
 public:
  Progress(std::string what, std::FILE* out, bool terminal)
      : what_(std::move(what)), out_(out), terminal_(terminal) {}
  ~Progress() { End(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Draws the bar, or prints a line when `done` has changed.
  void Show(int64_t done, int64_t all);
  // Takes the bar away. Idempotent.
  void End();

 private:
  const std::string what_;
  std::FILE* const out_;
  const bool terminal_;
  bool drawn_ = false;
  int64_t last_ = -1;
};

}  // namespace kronserve::client

#endif  // KRONSERVE_CLIENT_CLI_PROGRESS_H_
