// Calls to whichever of several schedulers leads.
//
// Layer: common. May include common/ only.

#ifndef KRONSERVE_COMMON_GRPC_LEADER_H_
#define KRONSERVE_COMMON_GRPC_LEADER_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/mutex.h"

namespace kronserve {

// Trailing metadata of an UNAVAILABLE answer: host:port of the scheduler that
// leads instead of the one that was asked; empty: that one leads, and cannot
// answer just now.
inline constexpr char kLeaderMetadata[] = "kronserve-leader";

// Remembers who led last, follows when it is told of another, and tries the
// next when nobody answers. With one address, and no word of a leader, a call
// is one attempt.
//
// Thread safety: thread-safe; calls do not wait for one another.
class LeaderChannels {
 public:
  //   addresses  host:port, comma-separated; at least one.
  explicit LeaderChannels(const std::string& addresses);

  // One attempt: a blocking call over `channel`. It sets the deadline.
  using Attempt =
      std::function<grpc::Status(const std::shared_ptr<grpc::Channel>& channel,
                                 grpc::ClientContext* context)>;
  struct Outcome {
    grpc::Status status;
    std::string address;  // Who gave it.
  };

  // Attempts until one is answered by a leader, whatever it says, its time is
  // over, or every address was tried.
  Outcome Call(const Attempt& attempt) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  std::shared_ptr<grpc::Channel> ChannelOf(const std::string& address)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // After a failure of `address`: where to go next.
  void MoveOn(const std::string& address, const std::string& leader)
      ABSL_LOCKS_EXCLUDED(mu_);

  const std::vector<std::string> addresses_;
  Mutex mu_;
  std::string current_ ABSL_GUARDED_BY(mu_);
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace kronserve

#endif  // KRONSERVE_COMMON_GRPC_LEADER_H_
