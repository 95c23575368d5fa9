#include "common/grpc_leader.h"

#include <optional>

#include "absl/strings/str_split.h"
#include "common/grpc_channel.h"

namespace kronserve {
namespace {

// Words of another leader that one call follows: enough for an election in
// between, and an end to two that name each other.
constexpr size_t kMaxRedirects = 2;

// None: the answer says nothing of a leader.
std::optional<std::string> LeaderNamedBy(const grpc::ClientContext& context) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find(kLeaderMetadata);
  if (found == metadata.end()) return std::nullopt;
  return std::string(found->second.data(), found->second.size());
}

}  // namespace

LeaderChannels::LeaderChannels(const std::string& addresses)
    : addresses_(absl::StrSplit(addresses, ',')),
      current_(addresses_.front()) {}

LeaderChannels::Outcome LeaderChannels::Call(const Attempt& attempt) {
  Outcome outcome;
  for (size_t i = 0; i < addresses_.size() + kMaxRedirects; ++i) {
    std::shared_ptr<grpc::Channel> channel;
    {
      MutexLock lock(&mu_);
      outcome.address = current_;
      channel = ChannelOf(current_);
    }
    grpc::ClientContext context;
    outcome.status = attempt(channel, &context);
    const grpc::StatusCode code = outcome.status.error_code();
    if (code != grpc::StatusCode::UNAVAILABLE &&
        code != grpc::StatusCode::DEADLINE_EXCEEDED) {
      break;
    }
    const std::optional<std::string> leader = LeaderNamedBy(context);
    if (leader == "") break;
    MoveOn(outcome.address, leader.value_or(""));
    if (code == grpc::StatusCode::DEADLINE_EXCEEDED) break;
    if (!leader.has_value() && i + 1 >= addresses_.size()) break;
  }
  return outcome;
}

void LeaderChannels::MoveOn(const std::string& address,
                            const std::string& leader) {
  MutexLock lock(&mu_);
  if (current_ != address) return;  // Another call has moved on.
  if (!leader.empty()) {
    current_ = leader;
    return;
  }
  next_ = (next_ + 1) % addresses_.size();
  current_ = addresses_[next_];
}

std::shared_ptr<grpc::Channel> LeaderChannels::ChannelOf(
    const std::string& address) {
  // Leaders that were named and are not listed pile up with time.
  if (channels_.size() > 2 * addresses_.size() + 8) channels_.clear();
  std::shared_ptr<grpc::Channel>& channel = channels_[address];
  if (channel == nullptr) channel = CreateChannel(address);
  return channel;
}

}  // namespace kronserve
