#include "worker/elastic_join.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace kronserve::worker {
namespace {

// Between two looks at a rank whose last holder's lease is still running.
constexpr absl::Duration kHeldRetry = absl::Milliseconds(200);

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> JoinElastic(
    SessionOptions options, const JoinOnce& join,
    const client::Timing& timing) {
  const absl::Duration patience = options.join_timeout;
  const absl::Time deadline = timing.clock->Now() + patience;
  for (;;) {
    auto session = join(options);
    const absl::Status& status = session.status();
    if (absl::IsAborted(status)) {
      ++options.restart_count;
    } else if (absl::IsAlreadyExists(status)) {
      timing.wait(kHeldRetry);
    } else {
      return session;
    }
    options.join_timeout = deadline - timing.clock->Now();
    if (options.join_timeout > absl::ZeroDuration()) continue;
    return absl::DeadlineExceededError(
        absl::StrCat("no world within ", absl::FormatDuration(patience), ": ",
                     std::string(status.message())));
  }
}

}  // namespace kronserve::worker
