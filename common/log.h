// One line per event, with the fields a person searches for.
//
// Layer: common. May include nothing else of this repository.

#ifndef KRONSERVE_COMMON_LOG_H_
#define KRONSERVE_COMMON_LOG_H_

#include <initializer_list>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace kronserve {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// A field of a log line: {"job", name}, {"step", 12}.
struct LogField {
  LogField(std::string name, const absl::AlphaNum& value)
      : name(std::move(name)), value(value.data(), value.size()) {}
  std::string name;
  std::string value;
};

// Names this process in every line; called once, at start.
void SetLogPrefix(std::string role_and_incarnation);

// Lines below `level` are dropped. Default: kInfo.
void SetLogLevel(LogLevel level);

// Writes "<time> <level> <prefix> <message> name=value ..." to stderr in one
// write. Thread-safe. Values with spaces are quoted.
void Log(LogLevel level, const std::string& message,
         std::initializer_list<LogField> fields = {});

}  // namespace kronserve

#endif  // KRONSERVE_COMMON_LOG_H_
