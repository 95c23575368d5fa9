#include "tests/simulation/trace.h"

#include "absl/strings/str_format.h"

namespace kronserve::simulation {

void Trace::Write(absl::Time now, const std::string& who,
                  const std::string& text) {
  const double seconds =
      absl::ToDoubleSeconds(now - absl::UnixEpoch() - absl::Hours(1));
  const std::string line =
      absl::StrFormat("%11.6f  %-9s %s", seconds, who, text);
  if (sink_ != nullptr) sink_(line);
  if (keep_ == 0) return;
  lines_.push_back(line);
  if (lines_.size() > keep_) lines_.pop_front();
}

}  // namespace kronserve::simulation
