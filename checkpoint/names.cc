#include "checkpoint/names.h"

#include <tuple>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/checksum.h"

namespace kronserve::checkpoint {
namespace {

constexpr char kLayerEnding[] = ".kron";
constexpr size_t kMaxEscaped = 120;
constexpr size_t kKeptOfLong = 100;
constexpr size_t kMaxIdBytes = 64;
constexpr size_t kMaxFileNameBytes = 255;

bool IsPlain(unsigned char c) {
  return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
}

// The number after `word` in `text`, written as we write it.
template <typename T>
bool ParseField(const std::string& text, const std::string& word, T* value) {
  return absl::StartsWith(text, word) &&
         absl::SimpleAtoi(text.substr(word.size()), value);
}

}  // namespace

std::string EscapeName(const std::string& name) {
  if (name.empty()) return "%";
  std::string escaped;
  std::string kept;  // The longest part that ends between two bytes of `name`.
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = IsPlain(byte) && !(c == '.' && escaped.empty());
    escaped += plain ? std::string(1, c) : absl::StrFormat("%%%02X", byte);
    if (escaped.size() <= kKeptOfLong) kept = escaped;
  }
  if (escaped.size() <= kMaxEscaped) return escaped;
  return absl::StrFormat("%s~%016x", kept, Checksum(name.data(), name.size()));
}

absl::Status CheckCheckpointId(const std::string& id) {
  bool good = !id.empty() && id.size() <= kMaxIdBytes && id[0] != '.';
  for (const char c : id) good = good && IsPlain(static_cast<unsigned char>(c));
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "checkpoint id '", absl::CHexEscape(id.substr(0, 2 * kMaxIdBytes)),
      "' must be 1 to ", kMaxIdBytes,
      " of [A-Za-z0-9._-] and not begin with '.'"));
}

bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.size() <= kMaxFileNameBytes &&
         name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

bool IsLayerFileName(const std::string& name) {
  return IsPlainFileName(name) && absl::EndsWith(name, kLayerEnding);
}

bool operator<(const BackgroundKey& a, const BackgroundKey& b) {
  return std::tie(a.epoch, a.world_version, a.closed_through) <
         std::tie(b.epoch, b.world_version, b.closed_through);
}

std::string BackgroundFileName(const BackgroundKey& key) {
  return absl::StrCat("epoch", key.epoch, "-world", key.world_version, "-step",
                      key.closed_through, kLayerEnding);
}

std::optional<BackgroundKey> ParseBackgroundFileName(const std::string& name) {
  absl::string_view stem = name;
  if (!absl::ConsumeSuffix(&stem, kLayerEnding)) return std::nullopt;
  const std::vector<std::string> parts =
      absl::StrSplit(stem, absl::MaxSplits('-', 2));
  BackgroundKey key;
  if (parts.size() != 3 || !ParseField(parts[0], "epoch", &key.epoch) ||
      !ParseField(parts[1], "world", &key.world_version) ||
      !ParseField(parts[2], "step", &key.closed_through) ||
      BackgroundFileName(key) != name) {
    return std::nullopt;
  }
  return key;
}

std::string JobLayerFileName(int layer, const std::string& layer_name,
                             uint64_t epoch) {
  return absl::StrFormat("%05d-%s-epoch%d%s", layer, EscapeName(layer_name),
                         epoch, kLayerEnding);
}

std::string JobFolder(const std::string& directory, const std::string& job) {
  return absl::StrCat(directory, "/", EscapeName(job));
}

std::string RunFolder(const std::string& directory, const std::string& job,
                      const std::string& run_id) {
  return absl::StrCat(JobFolder(directory, job), "/", kBackgroundName, "/",
                      EscapeName(run_id));
}

std::string LayerFolder(const std::string& run_folder,
                        const std::string& layer_name) {
  return absl::StrCat(run_folder, "/", EscapeName(layer_name));
}

std::string CheckpointsFolder(const std::string& directory,
                              const std::string& job) {
  return absl::StrCat(JobFolder(directory, job), "/", kCheckpointsName);
}

std::string CheckpointFolder(const std::string& directory,
                             const std::string& job, const std::string& id) {
  return absl::StrCat(CheckpointsFolder(directory, job), "/", id);
}

}  // namespace kronserve::checkpoint
