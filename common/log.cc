#include "common/log.h"

#include <unistd.h>

#include <atomic>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/mutex.h"

namespace kronserve {
namespace {

std::atomic<LogLevel> minimum{LogLevel::kInfo};

struct Prefix {
  Mutex mu;
  std::string text ABSL_GUARDED_BY(mu);
};

Prefix& GlobalPrefix() {
  static Prefix* const prefix = new Prefix;
  return *prefix;
}

std::string Quoted(const std::string& value) {
  if (!value.empty() && value.find_first_of(" \"\n\t=") == std::string::npos) {
    return value;
  }
  return absl::StrCat("\"", absl::CEscape(value), "\"");
}

}  // namespace

void SetLogPrefix(std::string role_and_incarnation) {
  Prefix& prefix = GlobalPrefix();
  MutexLock lock(&prefix.mu);
  prefix.text = std::move(role_and_incarnation);
}

void SetLogLevel(LogLevel level) { minimum = level; }

void Log(LogLevel level, const std::string& message,
         std::initializer_list<LogField> fields) {
  if (level < minimum) return;
  static constexpr const char* kNames[] = {"DEBUG", "INFO", "WARN", "ERROR"};
  std::string line =
      absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(),
                                    absl::UTCTimeZone()),
                   " ", kNames[static_cast<int>(level)], " ");
  {
    MutexLock lock(&GlobalPrefix().mu);
    absl::StrAppend(&line, GlobalPrefix().text);
  }
  absl::StrAppend(&line, " ", message);
  for (const LogField& field : fields) {
    absl::StrAppend(&line, " ", field.name, "=", Quoted(field.value));
  }
  line += '\n';
  // A log line that cannot be written has nowhere to be reported.
  (void)!write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace kronserve
