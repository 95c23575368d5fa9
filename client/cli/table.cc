#include "client/cli/table.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace kronserve::client {
namespace {

const char* Escape(Color color) {
  switch (color) {
    case Color::kGreen:
      return "\033[32m";
    case Color::kYellow:
      return "\033[33m";
    case Color::kRed:
      return "\033[31m";
    case Color::kDim:
      return "\033[2m";
    case Color::kNone:
      break;
  }
  return "";
}

// The text, painted, between what fills it up to `width`.
std::string Padded(const Cell& cell, size_t width, bool colors) {
  const std::string text = Printable(cell.text);
  const std::string fill(width - text.size(), ' ');
  const bool paint = colors && cell.color != Color::kNone;
  const std::string painted =
      paint ? absl::StrCat(Escape(cell.color), text, "\033[0m") : text;
  const bool to_the_right =
      !text.empty() && absl::ascii_isdigit(static_cast<unsigned char>(text[0]));
  return to_the_right ? fill + painted : painted + fill;
}

}  // namespace

std::string Printable(std::string text) {
  for (char& c : text) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = '?';
  }
  return text;
}

std::string FormatBytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrCat(bytes, " B")
                   : absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string FormatTable(const std::vector<std::vector<Cell>>& rows,
                        bool colors) {
  std::vector<size_t> widths;
  for (const std::vector<Cell>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].text.size());
    }
  }
  std::string text;
  for (const std::vector<Cell>& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&line, i == 0 ? "" : "  ",
                      Padded(row[i], widths[i], colors));
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace kronserve::client
