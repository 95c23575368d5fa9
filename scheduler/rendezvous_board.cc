#include "scheduler/rendezvous_board.h"

#include "absl/strings/str_cat.h"

namespace kronserve::scheduler {

absl::Status RendezvousBoard::Put(const std::string& key,
                                  const std::string& value) {
  const int64_t key_bytes = static_cast<int64_t>(key.size());
  const int64_t value_bytes = static_cast<int64_t>(value.size());
  if (key_bytes < 1 || key_bytes > kMaxRendezvousKeyBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the rendezvous key has ", key_bytes,
                     " bytes, allowed are 1 to ", kMaxRendezvousKeyBytes));
  }
  if (value_bytes > kMaxRendezvousValueBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "rendezvous value '", key, "' has ", value_bytes, " bytes, at most ",
        kMaxRendezvousValueBytes, " are allowed"));
  }
  const auto found = values_.find(key);
  const bool is_new = found == values_.end();
  const int64_t entries =
      static_cast<int64_t>(values_.size()) + (is_new ? 1 : 0);
  const int64_t replaced =
      is_new ? 0 : key_bytes + static_cast<int64_t>(found->second.size());
  const int64_t total = total_bytes_ - replaced + key_bytes + value_bytes;
  if (entries > kMaxRendezvousEntries || total > kMaxRendezvousTotalBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the rendezvous board is full: with '", key, "' it would hold ",
        entries, " values and ", total, " bytes, allowed are ",
        kMaxRendezvousEntries, " and ", kMaxRendezvousTotalBytes));
  }
  values_[key] = value;
  total_bytes_ = total;
  return absl::OkStatus();
}

absl::StatusOr<v1::GetRendezvousResponse> RendezvousBoard::Get(
    const v1::GetRendezvousRequest& request) const {
  v1::GetRendezvousResponse response;
  int64_t bytes = 0;
  for (const std::string& key : request.keys()) {
    const auto found = values_.find(key);
    if (found == values_.end()) continue;
    bytes += static_cast<int64_t>(key.size() + found->second.size());
    if (bytes > kMaxRendezvousReplyBytes) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the values of ", request.keys_size(), " keys are above ",
          kMaxRendezvousReplyBytes, " bytes: ask for fewer at once"));
    }
    v1::RendezvousEntry* entry = response.add_entries();
    entry->set_key(key);
    entry->set_value(found->second);
  }
  return response;
}

void RendezvousBoard::Clear() {
  values_.clear();
  total_bytes_ = 0;
}

}  // namespace kronserve::scheduler
