// A readable account of a run, written only when somebody will read it.
//
// Layer: tests.

#ifndef KRONSERVE_TESTS_SIMULATION_TRACE_H_
#define KRONSERVE_TESTS_SIMULATION_TRACE_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <string>

#include "absl/time/time.h"

namespace kronserve::simulation {

// Keeps the newest lines, or hands each to `sink` at once.
//
// Thread safety: none.
class Trace {
 public:
  bool on() const { return keep_ > 0 || sink_ != nullptr; }
  void Keep(size_t lines) { keep_ = lines; }
  void SendTo(std::function<void(const std::string&)> sink) {
    sink_ = std::move(sink);
  }

  // "   12.345678  s1    text"
  void Write(absl::Time now, const std::string& who, const std::string& text);

  const std::deque<std::string>& lines() const { return lines_; }

 private:
  size_t keep_ = 0;
  std::function<void(const std::string&)> sink_;
  std::deque<std::string> lines_;
};

}  // namespace kronserve::simulation

#endif  // KRONSERVE_TESTS_SIMULATION_TRACE_H_
