#include "worker/collective/gloo/connection.h"

#include <gloo/common/error.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <signal.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace kronserve::worker {
namespace {

// Gloo's key-value store over a Rendezvous.
class RendezvousStore final : public gloo::rendezvous::Store {
 public:
  RendezvousStore(Rendezvous* rendezvous, const GroupSpec& group)
      : rendezvous_(rendezvous), group_(group) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    own_bytes_ = data.size();
    Check(rendezvous_->Put(Key(key), std::string(data.begin(), data.end())));
  }

  std::vector<char> get(const std::string& key) override {
    auto values = rendezvous_->Get({Key(key)}, group_.timeout);
    Check(values.status());
    // Gloo cuts the value into addresses without looking at its size.
    if (values->size() != 1 || (*values)[0].size() != own_bytes_) {
      Check(absl::UnavailableError(
          absl::StrCat("rank ", key,
                       " published another number of addresses; "
                       "do all ranks agree on the world size?")));
    }
    return std::vector<char>((*values)[0].begin(), (*values)[0].end());
  }

  void wait(const std::vector<std::string>& keys) override {
    std::vector<std::string> names;
    for (const std::string& key : keys) names.push_back(Key(key));
    Check(rendezvous_->Get(names, group_.timeout).status());
  }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds&) override {
    wait(keys);
  }

 private:
  static void Check(const absl::Status& status) {
    if (!status.ok()) throw StatusException(status);
  }
  std::string Key(const std::string& rank) const {
    return absl::StrCat(group_.name, "/rank/", rank);
  }

  Rendezvous* const rendezvous_;
  const GroupSpec group_;
  size_t own_bytes_ = 0;
};

absl::StatusOr<std::shared_ptr<gloo::transport::Device>> CreateDevice(
    const std::string& host) {
  try {
    return gloo::transport::tcp::CreateDevice(
        gloo::transport::tcp::attr(host.c_str()));
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(absl::StrCat(
        "collectives cannot listen on '", host, "': ", error.what()));
  }
}

// Gloo writes to sockets whose peer may have gone. A handler of the program's
// own is left alone.
void IgnoreSigpipe() {
  struct sigaction current = {};
  sigaction(SIGPIPE, nullptr, &current);
  if (current.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
}

}  // namespace

StatusException::StatusException(absl::Status status)
    : status(std::move(status)) {}

const char* StatusException::what() const noexcept {
  return "kronserve status";
}

absl::Status StatusFromGloo(const std::string& context,
                            const std::exception& error) {
  if (const auto* carried = dynamic_cast<const StatusException*>(&error)) {
    return absl::Status(carried->status.code(),
                        absl::StrCat(context, ": ", carried->status.message()));
  }
  const std::string what = error.what();
  const bool timed_out = absl::StrContains(what, "Timed out") ||
                         absl::StrContains(what, "Connect timeout") ||
                         absl::StrContains(what, "Wait timeout");
  const std::string message = absl::StrCat(context, ": gloo: ", what);
  return timed_out ? absl::DeadlineExceededError(message)
                   : absl::UnavailableError(message);
}

std::chrono::milliseconds GlooTimeout(absl::Duration timeout) {
  return std::chrono::milliseconds(
      std::max<int64_t>(1, absl::ToInt64Milliseconds(timeout)));
}

absl::StatusOr<std::shared_ptr<gloo::Context>> ConnectGloo(
    const std::string& host, const GroupSpec& group, Rendezvous* rendezvous) {
  IgnoreSigpipe();
  KRONSERVE_ASSIGN_OR_RETURN(auto device, CreateDevice(host));
  auto context =
      std::make_shared<gloo::rendezvous::Context>(group.rank, group.size);
  // Gloo waits five times this for a connection; every later wait here brings
  // its own deadline.
  context->setTimeout(GlooTimeout(group.timeout / 5));
  try {
    RendezvousStore store(rendezvous, group);
    context->connectFullMesh(store, device);
  } catch (const std::exception& error) {
    return StatusFromGloo(
        absl::StrCat("group '", group.name, "', connecting rank ", group.rank,
                     " of ", group.size),
        error);
  }
  return std::shared_ptr<gloo::Context>(std::move(context));
}

}  // namespace kronserve::worker
