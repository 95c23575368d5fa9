#include "checkpoint/markers.h"

#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/folder.h"
#include "checkpoint/names.h"
#include "common/status_macros.h"

namespace kronserve::checkpoint {
namespace {

constexpr size_t kIncarnationDigits = 16;

std::string MarkersFolder(const std::string& directory) {
  return absl::StrCat(directory, "/", kMarkersName);
}

// `server` is escaped.
std::string MarkerName(const std::string& server, uint64_t incarnation) {
  return absl::StrFormat("%s-%016x", server, incarnation);
}

std::string MarkerPath(const std::string& directory, const std::string& name) {
  return absl::StrCat(MarkersFolder(directory), "/", name);
}

std::string MarkerText(const std::string& name) {
  return absl::StrCat("kronserve-server ", name, "\n");
}

// Empty when the marker is there and says what it should.
std::string FaultOf(const std::string& path, const std::string& text) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return "cannot be opened";
  const std::string found((std::istreambuf_iterator<char>(file)),
                          std::istreambuf_iterator<char>());
  return found == text ? "" : "does not say what it should";
}

}  // namespace

absl::Status WriteMarker(Writer* writer, const std::string& directory) {
  const std::string folder = MarkersFolder(directory);
  KRONSERVE_RETURN_IF_ERROR(MakeFolders(writer, folder));
  const std::string name = MarkerName(writer->server, writer->incarnation);
  const std::string text = MarkerText(name);
  const auto bytes = static_cast<int64_t>(text.size());
  DurableFile file(writer, MarkerPath(directory, name), bytes);
  KRONSERVE_RETURN_IF_ERROR(file.Append(text.data(), bytes));
  KRONSERVE_RETURN_IF_ERROR(file.Commit());

  KRONSERVE_ASSIGN_OR_RETURN(const auto names, ListFolder(folder));
  for (const std::string& other : names) {
    // A name may hold '-': only the length tells where the incarnation begins.
    const bool own =
        other.size() == name.size() && other != name &&
        absl::StartsWith(other, writer->server + "-") &&
        other.find_first_not_of("0123456789abcdef",
                                other.size() - kIncarnationDigits) ==
            std::string::npos;
    if (own) unlink(MarkerPath(directory, other).c_str());
  }
  return absl::OkStatus();
}

absl::Status CheckMarker(const Writer& writer, const std::string& directory) {
  const std::string name = MarkerName(writer.server, writer.incarnation);
  const std::string path = MarkerPath(directory, name);
  if (access(path.c_str(), F_OK) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "this server's marker '", path,
      "' is gone: is the checkpoint directory still mounted there? Nothing "
      "was written; a restart of the server makes it anew"));
}

std::vector<std::string> UnreadableMarkers(
    const std::string& directory, const std::vector<v1::ServerAddress>& peers) {
  std::vector<std::string> lines;
  for (const v1::ServerAddress& peer : peers) {
    const std::string name =
        MarkerName(EscapeName(peer.name()), peer.incarnation());
    const std::string path = MarkerPath(directory, name);
    const std::string fault = FaultOf(path, MarkerText(name));
    if (fault.empty()) continue;
    lines.push_back(absl::StrCat("server '", peer.name(), "': its marker '",
                                 path, "' ", fault,
                                 ": is its --checkpoint-dir another one?"));
  }
  return lines;
}

}  // namespace kronserve::checkpoint
