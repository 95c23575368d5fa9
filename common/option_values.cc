#include "common/option_values.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace kronserve {
namespace {

constexpr struct {
  const char* suffix;
  int64_t bytes;
} kUnits[] = {{"TiB", int64_t{1} << 40},
              {"GiB", int64_t{1} << 30},
              {"MiB", int64_t{1} << 20},
              {"KiB", int64_t{1} << 10}};

// Number and unit of a size; the unit is 0 for an unknown suffix.
struct SizeParts {
  std::string digits;
  int64_t unit = 1;
};

SizeParts SplitSize(const std::string& text) {
  const size_t end =
      std::min(text.find_first_not_of("0123456789"), text.size());
  SizeParts parts{text.substr(0, end)};
  const std::string suffix = text.substr(end);
  if (suffix.empty()) return parts;
  parts.unit = 0;
  for (const auto& unit : kUnits) {
    if (suffix == unit.suffix) parts.unit = unit.bytes;
  }
  return parts;
}

}  // namespace

std::string ParseBool(const std::string& text, bool* value) {
  if (text != "true" && text != "false") return "must be true or false";
  *value = text == "true";
  return "";
}

std::string ParseChoice(const std::string& text,
                        const std::vector<std::string>& choices,
                        std::string* value) {
  if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
    return absl::StrCat("must be one of ", absl::StrJoin(choices, ", "));
  }
  *value = text;
  return "";
}

std::string ParseInteger(const std::string& text, int64_t least, int64_t most,
                         int64_t* value) {
  int64_t parsed = 0;
  if (!absl::SimpleAtoi(text, &parsed)) {
    return absl::StrCat("must be a whole number ", RangeText(least, most));
  }
  if (parsed < least || parsed > most) {
    return absl::StrCat("must be ", RangeText(least, most));
  }
  *value = parsed;
  return "";
}

std::string ParseReal(const std::string& text, double least, double most,
                      double* value) {
  double parsed = 0;
  if (!absl::SimpleAtod(text, &parsed) || !std::isfinite(parsed)) {
    return absl::StrCat("must be a number ", RangeText(least, most));
  }
  if (parsed < least || parsed > most) {
    return absl::StrCat("must be ", RangeText(least, most));
  }
  *value = parsed;
  return "";
}

std::string FormatReal(double value) {
  char text[32];
  for (int digits = 6; digits <= 17; ++digits) {
    std::snprintf(text, sizeof(text), "%.*g", digits, value);
    double back = 0;
    if (absl::SimpleAtod(text, &back) && back == value) break;
  }
  return text;
}

std::string ParsePositiveDuration(const std::string& text,
                                  absl::Duration* value) {
  absl::Duration parsed;
  if (!absl::ParseDuration(text, &parsed)) {
    return "must be a time with its unit, such as 500ms, 2s or 5m";
  }
  if (parsed <= absl::ZeroDuration() || parsed == absl::InfiniteDuration()) {
    return "must be above zero and finite";
  }
  *value = parsed;
  return "";
}

std::string ParseSize(const std::string& text, int64_t* value) {
  const SizeParts parts = SplitSize(text);
  int64_t count = 0;
  if (parts.unit == 0 || parts.digits.empty()) {
    return "must be a size such as 4096, 512KiB, 64MiB or 2GiB";
  }
  if (!absl::SimpleAtoi(parts.digits, &count) ||
      count > std::numeric_limits<int64_t>::max() / parts.unit) {
    return "must be below 2^63 bytes";
  }
  if (count == 0) return "must be above zero";
  *value = count * parts.unit;
  return "";
}

std::string FormatSize(int64_t bytes) {
  for (const auto& unit : kUnits) {
    if (bytes > 0 && bytes % unit.bytes == 0) {
      return absl::StrCat(bytes / unit.bytes, unit.suffix);
    }
  }
  return absl::StrCat(bytes);
}

std::string RangeText(int64_t least, int64_t most) {
  if (most == std::numeric_limits<int64_t>::max()) {
    return absl::StrCat("at least ", least);
  }
  return absl::StrCat("from ", least, " to ", most);
}

std::string RangeText(double least, double most) {
  if (most >= std::numeric_limits<double>::max()) {
    return absl::StrCat("at least ", FormatReal(least));
  }
  return absl::StrCat("from ", FormatReal(least), " to ", FormatReal(most));
}

}  // namespace kronserve
