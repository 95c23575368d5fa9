// Communicator over Gloo's TCP transport.
//
// Only Gloo's connections and unbound buffers are used, not its collectives:
// - a wait inside a Gloo collective cannot be aborted from another thread, one
//   on a buffer of our own can;
// - its all-reduce adds in ring order, ours in rank order.
// What Gloo does that matters here: a context is finished after any exception;
// a timeout of 0 waits for ever; closing a pair wakes the other end, not
// waiters of this one.

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "worker/collective/gloo/connection.h"
#include "worker/collective/gloo/factory.h"

namespace kronserve::worker {
namespace {

using Buffer = gloo::transport::UnboundBuffer;

// Reductions up to this size trade bytes for one round trip less.
constexpr size_t kOneRoundBytes = 4096;

class GlooCommunicator final : public Communicator {
 public:
  // `context` is null for a group of one rank.
  GlooCommunicator(const GroupSpec& spec,
                   std::shared_ptr<gloo::Context> context)
      : spec_(spec), context_(std::move(context)) {}

  int rank() const override { return spec_.rank; }
  int size() const override { return spec_.size; }

  absl::Status Broadcast(void* data, size_t bytes, int root) override {
    KRONSERVE_RETURN_IF_ERROR(CheckRoot(root));
    return Run("broadcast", [&] {
      if (bytes > 0) BroadcastTree(data, bytes, root);
    });
  }

  absl::Status Gather(const void* in, size_t bytes, void* out,
                      int root) override {
    KRONSERVE_RETURN_IF_ERROR(CheckRoot(root));
    return Run("gather", [&] {
      if (bytes == 0) return;
      if (rank() == root) std::memcpy(PartOf(out, bytes), in, bytes);
      if (size() > 1) GatherAt(root, in, bytes, out);
    });
  }

  absl::Status AllGather(const void* in, size_t bytes, void* out) override {
    return Run("all-gather", [&] {
      if (bytes == 0) return;
      std::memcpy(PartOf(out, bytes), in, bytes);
      GatherEverywhere(in, bytes, out);
    });
  }

  absl::Status AllReduceMin(int64_t* values, size_t n) override {
    return AllReduce("all-reduce", values, n,
                     [](int64_t a, int64_t b) { return b < a ? b : a; });
  }

  absl::Status AllReduceSum(float* values, size_t n) override {
    return AllReduce("all-reduce", values, n,
                     [](float a, float b) { return a + b; });
  }

  absl::Status Barrier() override {
    std::vector<char> tokens(size());
    return Run("barrier", [&] {
      const char token = 0;
      GatherEverywhere(&token, 1, tokens.data());
    });
  }

  void Abort() override ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(&mu_);
      aborted_ = true;
      if (waiting_ != nullptr) {
        waiting_->abortWaitRecv();
        waiting_->abortWaitSend();
      }
    }
    if (context_ != nullptr) context_->closeConnections();
  }

 private:
  template <typename Body>
  absl::Status Run(const char* operation, Body body) ABSL_LOCKS_EXCLUDED(mu_) {
    if (!finished_.ok()) {
      return absl::UnavailableError(absl::StrCat(
          "group '", spec_.name, "' is finished: ", finished_.message()));
    }
    deadline_ = SteadyClock().Now() + spec_.timeout;
    try {
      CheckNotAborted();
      body();
      return absl::OkStatus();
    } catch (const std::exception& error) {
      finished_ =
          StatusFromGloo(absl::StrCat("group '", spec_.name, "', ", operation,
                                      " on rank ", rank(), " of ", size()),
                         error);
    }
    // Tells the ranks that wait for this one.
    if (context_ != nullptr) context_->closeConnections();
    return finished_;
  }

  absl::Status CheckRoot(int root) const {
    if (root >= 0 && root < size()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("group '", spec_.name, "': root ", root, " is not one of ",
                     size(), " ranks"));
  }

  void CheckNotAborted() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    ThrowIfAbortedLocked();
  }
  void ThrowIfAbortedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (aborted_) throw StatusException(absl::UnavailableError("aborted"));
  }

  // Every message of a group has a slot of its own: all ranks count alike.
  uint64_t NextSlot() { return ++slot_; }

  std::unique_ptr<Buffer> Wrap(const void* data, size_t bytes) {
    // Gloo has one type for sending and receiving; sends do not write.
    return context_->createUnboundBuffer(const_cast<void*>(data), bytes);
  }

  template <typename Visit>
  void ForEachPeer(Visit visit) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) visit(peer);
    }
  }

  void WaitReceives(Buffer& buffer, int count) {
    for (int i = 0; i < count; ++i) {
      Wait(buffer, [&](auto left) { return buffer.waitRecv(left); });
    }
  }
  void WaitSends(Buffer& buffer, int count) {
    for (int i = 0; i < count; ++i) {
      Wait(buffer, [&](auto left) { return buffer.waitSend(left); });
    }
  }

  // Waits on `buffer` such that Abort() can end it.
  template <typename WaitOnce>
  void Wait(Buffer& buffer, WaitOnce wait_once) ABSL_LOCKS_EXCLUDED(mu_) {
    const WaitScope scope(this, &buffer);
    wait_once(GlooTimeout(deadline_ - SteadyClock().Now()));
    CheckNotAborted();
  }

  class WaitScope {
   public:
    WaitScope(GlooCommunicator* group, Buffer* buffer) : group_(group) {
      MutexLock lock(&group_->mu_);
      group_->ThrowIfAbortedLocked();
      group_->waiting_ = buffer;
    }
    ~WaitScope() {
      MutexLock lock(&group_->mu_);
      group_->waiting_ = nullptr;
    }

   private:
    GlooCommunicator* const group_;
  };

  // Binomial tree: in each round the ranks that have the data double.
  void BroadcastTree(void* data, size_t bytes, int root) {
    const uint64_t slot = NextSlot();
    const int place = (rank() - root + size()) % size();
    const auto rank_at = [&](int other) { return (other + root) % size(); };
    auto buffer = size() > 1 ? Wrap(data, bytes) : nullptr;
    int sends = 0;
    for (int have = 1; have < size(); have *= 2) {
      if (place < have && place + have < size()) {
        buffer->send(rank_at(place + have), slot);
        ++sends;
      } else if (place >= have && place < 2 * have) {
        buffer->recv(rank_at(place - have), slot);
        WaitReceives(*buffer, 1);
      }
    }
    if (sends > 0) WaitSends(*buffer, sends);
  }

  // This rank's part of a gathered `out` [size * bytes].
  char* PartOf(void* out, size_t bytes) const {
    return static_cast<char*>(out) + rank() * bytes;
  }

  // Fills the other ranks' parts of `out` on `root`; bytes > 0.
  void GatherAt(int root, const void* in, size_t bytes, void* out) {
    const uint64_t slot = NextSlot();
    if (rank() != root) {
      auto send = Wrap(in, bytes);
      send->send(root, slot);
      return WaitSends(*send, 1);
    }
    auto receive = Wrap(out, bytes * size());
    ForEachPeer(
        [&](int peer) { receive->recv(peer, slot, peer * bytes, bytes); });
    WaitReceives(*receive, size() - 1);
  }

  // Fills the other ranks' parts of `out` everywhere; bytes > 0.
  void GatherEverywhere(const void* in, size_t bytes, void* out) {
    if (size() == 1) return;
    const uint64_t slot = NextSlot();
    auto send = Wrap(in, bytes);
    auto receive = Wrap(out, bytes * size());
    ForEachPeer([&](int peer) {
      receive->recv(peer, slot, peer * bytes, bytes);
      send->send(peer, slot);
    });
    WaitReceives(*receive, size() - 1);
    WaitSends(*send, size() - 1);
  }

  template <typename T, typename Combine>
  absl::Status AllReduce(const char* operation, T* values, size_t n,
                         Combine combine) {
    return Run(operation, [&] {
      if (n == 0 || size() == 1) return;
      if (n * sizeof(T) <= kOneRoundBytes || n < size_t(size())) {
        std::vector<T> all(n * size());
        std::copy(values, values + n, all.begin() + rank() * n);
        GatherEverywhere(values, n * sizeof(T), all.data());
        ReduceInRankOrder(all, n, values, combine);
      } else {
        ReduceSegment(values, n, combine);
        ShareSegments(values, n);
      }
    });
  }

  // Segment of `n` elements that `rank` reduces: [first, first + count).
  struct Segment {
    size_t first;
    size_t count;
  };
  Segment SegmentOf(int rank, size_t n) const {
    const size_t ranks = size();
    const size_t base = n / ranks;
    const size_t longer = std::min<size_t>(rank, n % ranks);
    return {rank * base + longer, base + (rank < int64_t(n % ranks) ? 1 : 0)};
  }

  template <typename T, typename Combine>
  void ReduceInRankOrder(const std::vector<T>& parts, size_t n, T* out,
                         Combine combine) {
    std::copy(parts.begin(), parts.begin() + n, out);
    for (int rank = 1; rank < size(); ++rank) {
      const T* part = parts.data() + rank * n;
      for (size_t i = 0; i < n; ++i) out[i] = combine(out[i], part[i]);
    }
  }

  // Leaves the reduced segment of this rank in `values`; n >= size().
  template <typename T, typename Combine>
  void ReduceSegment(T* values, size_t n, Combine combine) {
    const uint64_t slot = NextSlot();
    const Segment mine = SegmentOf(rank(), n);
    std::vector<T> parts(mine.count * size());
    auto send = Wrap(values, n * sizeof(T));
    auto receive = Wrap(parts.data(), parts.size() * sizeof(T));
    ForEachPeer([&](int peer) {
      const Segment theirs = SegmentOf(peer, n);
      receive->recv(peer, slot, peer * mine.count * sizeof(T),
                    mine.count * sizeof(T));
      send->send(peer, slot, theirs.first * sizeof(T),
                 theirs.count * sizeof(T));
    });
    std::copy(values + mine.first, values + mine.first + mine.count,
              parts.begin() + rank() * mine.count);
    WaitReceives(*receive, size() - 1);
    WaitSends(*send, size() - 1);
    ReduceInRankOrder(parts, mine.count, values + mine.first, combine);
  }

  template <typename T>
  void ShareSegments(T* values, size_t n) {
    const uint64_t slot = NextSlot();
    const Segment mine = SegmentOf(rank(), n);
    auto send = Wrap(values, n * sizeof(T));
    auto receive = Wrap(values, n * sizeof(T));
    ForEachPeer([&](int peer) {
      const Segment theirs = SegmentOf(peer, n);
      receive->recv(peer, slot, theirs.first * sizeof(T),
                    theirs.count * sizeof(T));
      send->send(peer, slot, mine.first * sizeof(T), mine.count * sizeof(T));
    });
    WaitReceives(*receive, size() - 1);
    WaitSends(*send, size() - 1);
  }

  // Constant after construction.
  const GroupSpec spec_;
  const std::shared_ptr<gloo::Context> context_;

  // Of the thread that uses the group.
  uint64_t slot_ = 0;
  absl::Time deadline_;
  absl::Status finished_;

  Mutex mu_;
  bool aborted_ ABSL_GUARDED_BY(mu_) = false;
  Buffer* waiting_ ABSL_GUARDED_BY(mu_) = nullptr;
};

absl::Status CheckSpec(const GroupSpec& spec, const Rendezvous* rendezvous) {
  if (spec.size < 1 || spec.rank < 0 || spec.rank >= spec.size ||
      spec.timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "group '", spec.name, "': rank ", spec.rank, " of ", spec.size,
        " with timeout ", absl::FormatDuration(spec.timeout)));
  }
  if (spec.size > 1 && rendezvous == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "group '", spec.name, "' of ", spec.size, " ranks has no rendezvous"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Communicator>> CreateGlooCommunicator(
    const GlooOptions& options, const GroupSpec& spec, Rendezvous* rendezvous) {
  KRONSERVE_RETURN_IF_ERROR(CheckSpec(spec, rendezvous));
  std::shared_ptr<gloo::Context> context;
  if (spec.size > 1) {
    KRONSERVE_ASSIGN_OR_RETURN(context,
                               ConnectGloo(options.host, spec, rendezvous));
  }
  auto group = std::make_unique<GlooCommunicator>(spec, std::move(context));
  // A rank that left while others still connect to it would keep them waiting.
  KRONSERVE_RETURN_IF_ERROR(group->Barrier());
  return group;
}

}  // namespace

CommunicatorFactory CreateGlooFactory(const GlooOptions& options) {
  return [options](const GroupSpec& spec, Rendezvous* rendezvous) {
    return CreateGlooCommunicator(options, spec, rendezvous);
  };
}

}  // namespace kronserve::worker
