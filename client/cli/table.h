// Text in columns.
//
// Layer: client. May include common/ and proto/.

#ifndef KRONSERVE_CLIENT_CLI_TABLE_H_
#define KRONSERVE_CLIENT_CLI_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace kronserve::client {

// What a cell is painted in on a terminal.
enum class Color { kNone, kGreen, kYellow, kRed, kDim };

struct Cell {
  Cell(std::string cell_text) : text(std::move(cell_text)) {}
  Cell(const char* cell_text) : text(cell_text) {}
  Cell(std::string cell_text, Color cell_color)
      : text(std::move(cell_text)), color(cell_color) {}
  std::string text;
  Color color = Color::kNone;
};

// Rows of equal length, as lines in which every column is as wide as its
// widest cell. Cells that begin with a digit are aligned to the right. Control
// characters are shown as '?', so that a name cannot steer the terminal.
std::string FormatTable(const std::vector<std::vector<Cell>>& rows,
                        bool colors);

// "3.0 MiB"; below 1024 exact.
std::string FormatBytes(int64_t bytes);

// As it may be shown: control characters as '?'.
std::string Printable(std::string text);

}  // namespace kronserve::client

#endif  // KRONSERVE_CLIENT_CLI_TABLE_H_
