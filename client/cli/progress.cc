#include "client/cli/progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace kronserve::client {
namespace {

constexpr int kCells = 30;

}  // namespace

void Progress::Show(int64_t done, int64_t all) {
  const int64_t most = std::max({done, all, int64_t{1}});
  if (terminal_) {
    const int filled = static_cast<int>(kCells * done / most);
    const std::string line = absl::StrCat(
        "\r[", std::string(filled, '#'), std::string(kCells - filled, '.'),
        "] ", done, "/", all, " ", what_, "\x1b[K");
    std::fputs(line.c_str(), out_);
    drawn_ = true;
  } else if (done != last_) {
    std::fputs(absl::StrCat(done, "/", all, " ", what_, "\n").c_str(), out_);
  }
  last_ = done;
  std::fflush(out_);
}

void Progress::End() {
  if (drawn_) std::fputs("\r\x1b[K", out_);
  drawn_ = false;
  std::fflush(out_);
}

}  // namespace kronserve::client
